"""What the page offers to a tree built by hand."""

from __future__ import annotations

from support.engine import evaluated
from support.view_samples import trace

from speclab.views.run_data import step_data


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
        "veiled": None,
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
