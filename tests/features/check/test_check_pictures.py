"""A check on the page."""

from __future__ import annotations

from dataclasses import replace

from support.view_samples import trace

from speclab.clinic._diff import diff
from speclab.views.drawing import call
from speclab.views.run_data import step_data


def test_a_check_is_a_verdict_gaps_by_depth_and_two_timelines():
    run = trace()
    gaps = tuple((0.1 * node, 0.01) for node in range(len(run.steps[0].nodes)))
    steps = [step_data(step) for step in (replace(run.steps[0], gaps=gaps), *run.steps[1:])]
    verdict = call("checkVerdict", steps)
    assert f"{len(gaps)} rows" in verdict
    assert f"gap {gaps[-1][0]:.2g}" in verdict
    assert len(call("gapTable", steps)["rows"]) == run.steps[0].tree.depth.max() + 1
    parted = diff(run, replace(run, steps=run.steps[:5])).as_dict()
    counts = [len(bars["x"]) for bars in call("diffFigure", parted)["data"]]
    assert counts == [len(run.steps)] * 2 + [5] * 2
