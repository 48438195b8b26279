"""Both trees as one: the union holds every path of both and accepts what the better one would have."""

from __future__ import annotations

import pytest
from dual_pairs import PROMPT, SMALL, models_of
from hypothesis import given
from strategies import draft_trees

import speclab
from speclab.drafters.base import Draft
from speclab.drafters.dual_draft import merge
from speclab.tree import DraftTree


@given(draft_trees(), draft_trees(vocab=6))
def test_the_union_holds_every_path_of_both_and_no_other(one, other):
    other = DraftTree.of([int(one.token[0]), *other.token[1:]], other.parent, other.log_prob, "random")
    draft, places = merge(["prose", "code"], [Draft(one), Draft(other)])
    paths = [_paths(tree) for tree in (one, other)]
    union = _paths(draft.tree)
    assert union.keys() == paths[0].keys() | paths[1].keys()
    for path, node in union.items():
        held = [name for name, own in zip(("prose", "code"), paths, strict=True) if path in own]
        if path:
            assert draft.tree.source[node] == ("both" if len(held) == 2 else held[0])
        wanted = max(tree.log_prob[own[path]] for tree, own in zip((one, other), paths, strict=True) if path in own)
        assert draft.tree.log_prob[node] == wanted
    for own, place in zip(paths, places, strict=True):
        assert all(place[node] == union[path] for path, node in own.items())
    assert max(len(one), len(other)) <= len(draft.tree) <= len(one) + len(other) - 1


def _paths(tree: DraftTree) -> dict[tuple[int, ...], int]:
    return {tuple(tree.token[list(tree.path(node)[1:])].tolist()): node for node in range(len(tree))}


@pytest.mark.model
def test_merging_accepts_what_the_better_of_both_would_have():
    session = speclab.Session(models_of("llama"), speclab.DualDraft(mode="merge", **SMALL), PROMPT, max_new_tokens=24)
    session.run()
    for step in session.steps:
        reached = speclab.analysis.routing.followed(session.trace, step.index)
        if step.bonus is not None:
            assert len(step.accepted) == max(reached)
