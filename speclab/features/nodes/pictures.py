"""Pictures of many nodes: whether stated probabilities came true, and ranks by depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from speclab.views.drawing import ThemeName

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from speclab.engine.session import Session
    from speclab.trace.records import Trace


def marginals(
    runs: Mapping[str, Sequence[Trace | Session]], *, theme: ThemeName = "light"
) -> Figure:
    """Whether the probabilities that drafters stated came true, on and off the accepted path.

    Above, over the stated probability, the share of drafted tokens that equal the target's choice
    after their parent; below, over depth, that of the most probable child of each node. A draft
    model and an EAGLE head know the parent, so both lines agree; a block head does not.

    Args:
        runs: by the name of a drafter, what it decoded.

    Raises:
        NotRecordedError: a drafter drafted nothing, or the target's choices were not recorded.
        SettingsError: `runs` is no mapping, or empty.
    """
    # needs pandas, which is slow to import
    from speclab.features.nodes.marginals_picture import draw_marginals

    return draw_marginals(runs, theme)


def ranks(
    runs: Trace | Session | Sequence[Trace | Session], *, theme: ThemeName = "light"
) -> Figure:
    """How often the target's token was the draft's most probable one, its second, … by depth.

    So a column says how many children pay at this depth: a tree with r children per node covers its
    first r rows. "missing" is what the draft did not name among its most probable. Below a depth:
    how often the drafted trees had the token, of how many positions on the target's path.

    Raises:
        NotRecordedError: nothing is recorded of what a draft held probable.
        SettingsError: an argument is not a run.
    """
    from speclab.features.nodes.ranks_picture import draw_ranks

    return draw_ranks(runs, theme)
