"""What the lab's controls offer, by the functions of the page and a state of it."""

from __future__ import annotations

import numpy as np
from support.engine import evaluated
from support.view_samples import trace

from speclab.analysis.whatif import in_force, what_if
from speclab.views.run_data import run_header, step_data


def test_a_tree_by_hand_is_offered_only_tokens_that_are_no_children():
    step = trace().steps[0]
    top = [token for token, _ in step.nodes[0].draft_top]
    first, *others = [int(step.tree.token[child]) for child in step.tree.children[0]]
    shown = {
        "steps": [step_data(step)],
        "cursor": 1,
        "tick": 99,
        "node": 0,
        "status": {},
        "guess": {"asked": None},
    }
    free = evaluated("freeTokens(data)", shown)
    assert free == [token for token in top if token not in (first, *others)]
    # by hand: all children pruned, another one added
    token = [int(step.tree.token[0]), free[0]]
    what_if = {
        "tree": {"token": token, "parent": [-1, 0], "log_prob": [0, -1]},
        "recorded": [0, None],
        **dict.fromkeys(("accepted", "bonus"), None),
        "unknown": [],
        "texts": {},
        "sentence": "",
    }
    shown |= {"preview": {"index": 0, "what_if": what_if}, "status": {"by_hand": True}}
    assert evaluated("freeTokens(data)", shown) == [one for one in top if one != free[0]]


SHOWN = """data.map(state => {
  const step = stepShown(state), at = positionShown(state);
  const drawn = [treeFigure(step, at), maskFigure(step, at), kindsAt(step, at), story(step, at, {})];
  const said = step.nodes.map((_, node) => nodeSentence(step, node, at));
  return [drawn, said, timelineFigure(state.steps, 0, 0, 1), scoreWords(state), titleOf(state)];
})"""


def test_while_a_guess_is_asked_nothing_shown_depends_on_the_outcome():
    step = trace().steps[0]
    guess = {"asked": 0, "tries": 0, "right": 0}
    state = {"header": run_header(trace()), "cursor": 1, "guess": guess, "status": {}}
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
