"""What the page computes of other settings."""

from __future__ import annotations

from support.engine import evaluated
from support.view_samples import trace

from speclab.drafters import in_force
from speclab.features.whatif import what_if
from speclab.views.run_data import step_data

IDLE = """(async () => {
  const seen = {};
  const told = name => ({ classList: { toggle: (_, on) => { seen[name] = on; } } });
  const cells = Object.entries(data.offers).map(([name, values]) => [name, { cell: told(name), values }]);
  await markIdle(Object.fromEntries(cells), data.values, data.step);
  return seen;
})()"""


def test_a_slider_says_whether_its_ends_draft_another_tree():
    (step,) = [step for step in trace().steps[:1] if len(step.tree) > 4]
    settings = {name: value for name, value in step.settings.items() if name != "strategy"}
    ends = {
        "node_budget": [1, 256],
        "max_depth": [3, 64],
        "prune_probability": [0, 0.5],
        "head": None,
    }
    data = {"offers": ends, "values": settings, "step": step_data(step)}
    unlike = {
        name: {what_if(step, in_force(step).changed(**{name: end})).tree for end in both}
        for name, both in ends.items()
        if both
    }
    idle = {name: trees == {step.tree} for name, trees in unlike.items()}
    assert evaluated(IDLE, data) == idle
    assert set(idle.values()) == {False, True}
