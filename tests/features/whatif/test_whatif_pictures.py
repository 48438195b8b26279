"""The tree of a what-if over that of its iteration."""

from __future__ import annotations

import numpy as np
from support.pictures import nodes, said, texts
from support.view_samples import runs

import speclab
from speclab import views
from speclab.drafters import in_force
from speclab.views.drawing import call
from speclab.views.run_data import LOOKS


def test_what_would_be_gone_or_new_is_told_apart():
    step = next(step for step in runs()["dynatree"].steps if len(step.accepted) == 3)

    def seen(**changes):
        other = in_force(step).changed(**changes)
        return views.whatif(step, speclab.what_if(step, other))

    shallow = seen(max_depth=2, base_depth=2)
    gone = sum(depth > 2 for depth in step.tree.depth.tolist())
    assert sum("<s>" in text for text in texts(shallow)) == gone
    assert "2 accepted (now 3)" in said(shallow)
    assert nodes(shallow)["own"][0] == nodes(shallow)[step.accepted[2]][0], "after the path"
    new = LOOKS["nodes"]["new"]["symbol"]
    same = seen()
    assert "(now 15)" in said(same)
    assert not any(place[4] == new for place in nodes(same).values())
    more = seen(node_budget=40, max_branches=9, low_confidence=0.8)
    assert any(place[4] == new for place in nodes(more).values())
    assert "→ ?" in texts(more)
    assert "is not recorded" in said(more)


def test_the_mask_of_a_preview_has_the_rows_of_its_tree():
    step = next(step for step in runs()["dynatree"].steps if len(step.accepted) == 3)
    for changes in ({"max_depth": 2, "base_depth": 2}, {"node_budget": 40, "max_branches": 9}):
        found = speclab.what_if(step, in_force(step).changed(**changes))
        overlay = call("overlayOf", step, found.data())
        mask = call("maskFigure", overlay["masked"])
        assert np.array_equal(np.isin(mask["cells"], (1, 2)), found.tree.ancestor_mask())
        for row in range(len(found.tree)):
            cell = call("cellAt", mask, {"x": 0, "y": row})
            same = found.recorded[row]
            assert cell["node"] == (f"new {row}" if same is None else same)
