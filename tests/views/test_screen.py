"""What the lab's controls offer, by the functions of the page and a state of it."""

from __future__ import annotations

import numpy as np
from support.engine import evaluated
from support.view_samples import trace

from speclab.views.run_data import run_header, step_data

SHOWN = """data.map(state => {
  const step = stepShown(state), at = positionShown(state);
  const drawn = [treeFigure(step, at), maskFigure(step, at), kindsAt(step, at), story(step, at, {})];
  const said = step.nodes.map((_, node) => nodeSentence(step, node, at));
  return [drawn, said, timelineFigure(state.steps, 0, 0, 1), gainOf(state), titleOf(state)];
})"""


def test_while_a_guess_is_asked_nothing_shown_depends_on_the_outcome():
    step = trace().steps[0]
    guess = {"tries": 0, "right": 0}
    state = {"header": run_header(trace()), "cursor": 1, "veiled": 0, "guess": guess, "status": {}}
    states = []
    for node in range(len(step.tree)):
        data = step_data(step)
        path = [int(one) for one in np.flatnonzero(step.tree.ancestor_mask()[node])][1:]
        bonus = 7 + node
        data |= {"accepted": path, "committed": [*path, bonus], "bonus": bonus}
        for each in data["nodes"][1:]:
            verdict = "accepted" if each["index"] in path else "rejected"
            each |= {"verdict": verdict, "target_choice": bonus, "target_prob": node / 99}
        data["counts"] |= {"accepted": len(path), "committed": len(path) + 1}
        states += [{**state, "steps": [data], "tick": tick} for tick in (0, 1, 99)]
    shown = evaluated(SHOWN, states)
    for tick in range(3):
        assert all(one == shown[tick] for one in shown[tick::3])
