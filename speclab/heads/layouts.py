"""The layouts of draft heads that speclab reads, a row each."""

from speclab.heads.block_head import BLOCK
from speclab.heads.eagle import EAGLE
from speclab.heads.layout import Layout
from speclab.heads.medusa import MEDUSA
from speclab.heads.mlp_speculator import MLP

LAYOUTS: tuple[Layout, ...] = (
    BLOCK,
    MEDUSA,
    MLP,
    EAGLE,  # last, since it also reads a config without a name
)
"""The first whose `names` match reads a folder."""
