"""What sets a best-first tree apart from another: its record names the first token dropped behind a node alone."""

from __future__ import annotations

from table_runner import random_probs, table_pair

import speclab
from speclab.trace.records import Step
from speclab.views import side_by_side

PROBS = random_probs(24, 3, low=0.5, high=2.0)
SMALL = speclab.DraftHead(node_budget=3, depth=2, children=4)


def twins(other: speclab.DraftHead) -> list[tuple[Step, Step]]:
    """Iterations of the larger tree and of the small one in its place."""
    run = speclab.Session(table_pair(PROBS, PROBS, 24), other, [1, 2, 3], max_new_tokens=40)
    return [(step, run.fork(at=step.index, strategy=SMALL).step()) for step in (run.step(), run.step(), run.step())]


def told(more: Step, less: Step) -> dict[int, str]:
    """What is said of each token that `more` drafted after the root and `less` did not."""
    kept = {int(less.tree.token[child]) for child in less.tree.children[0]}
    extra = [int(more.tree.token[child]) for child in more.tree.children[0]]
    return {token: side_by_side.why_absent(less, 0, token) for token in extra if token not in kept}


def test_every_token_dropped_is_told_by_its_own_figures():
    later = 0
    for more, less in twins(SMALL.changed(node_budget=16)):
        least = min(node.path_prob for node in less.nodes)
        for token, said in told(more, less).items():
            prob = dict(less.nodes[0].draft_top)[token]
            assert prob <= least
            assert said.startswith(f"pruned it: path probability {prob:.2g}, and the ")
            assert said.endswith(f"{least:.2g} and more")
            later += "the nodes kept" in said
        words = side_by_side.steps_words(less, more)
        assert any("; this run pruned it: path probability" in sentence for sentence in words)
    assert later


def test_a_token_that_it_did_not_look_at_is_not_said_to_be_dropped():
    unseen = 0
    for more, less in twins(SMALL.changed(node_budget=16, children=8)):
        seen = {token for token, _ in less.nodes[0].draft_top[:4]}
        for token, said in told(more, less).items():
            assert said.startswith("pruned it" if token in seen else "looked at its 4 most probable tokens alone")
            unseen += token not in seen
    assert unseen
