"""An iteration and the same one decoded again, in one tree."""

from __future__ import annotations

from dataclasses import replace

from support.engine import evaluated
from support.view_samples import five_nodes

from speclab.views.run_data import step_data

DRAWN = """
({ before, after }) => {
  const { graph, kinds } = against(before, after);
  return [...graph.values()].map(({ id, parent, token }) => [id, parent, token, kinds[id]]);
}
"""


def test_what_was_drafted_before_is_struck_out_and_what_is_new_is_marked():
    step = five_nodes()
    tokens = step.tree.token.copy()
    tokens[2] += 1  # a leaf
    before = step_data(replace(step, tree=replace(step.tree, token=tokens)))
    drawn = evaluated(f"({DRAWN})(data)", {"before": before, "after": step_data(step)})
    changed = {node: kind for node, _, _, kind in drawn if kind in ("new", "gone")}
    assert changed == {2: "new", "gone 2": "gone"}
    assert drawn[-1][1:3] == [0, int(tokens[2])]
