"""A what-if for the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speclab.views.run_data import Data, tree_data

if TYPE_CHECKING:
    from speclab.features.whatif import WhatIf


def what_if_data(found: WhatIf) -> Data:
    """The tree of a what-if for the page."""
    return {
        **tree_data(found.tree, found.recorded),
        "accepted": list(found.accepted),
        "bonus": found.bonus,
        "unknown": list(found.unknown),
        "settled": found.settled,
        "by": "settings",
    }
