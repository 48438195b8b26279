"""Trees built by hand: always the target's own text, whatever the tree."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pairs import PROMPT, assert_cache_is_fresh, own_text, pair_of
from support.records import assert_consistent, paths_of
from support.refusals import refused
from support.strategies import draft_trees

import speclab
from speclab import ByHand, DraftTree, DynaTree, SettingsError, TreeEdit
from speclab.trace.edit import HAND, NEUTRAL

pytestmark = pytest.mark.model
NEW = 14


def session_of(
    family: str = "llama", strategy: speclab.Strategy | None = None, **more: object
) -> speclab.Session:
    return speclab.Session(
        pair_of(family), strategy or ByHand(), PROMPT, **({"max_new_tokens": NEW} | more)
    )


def tree_for(
    session: speclab.Session, shape: DraftTree, data: st.DataObject, own: list[int]
) -> DraftTree:
    """`shape` on the newest token, its tokens now and then those that the target will choose."""
    tokens = shape.token.tolist()
    done = len(session.token_ids)
    tokens[0] = session.token_ids[-1]
    for node in range(1, len(shape)):
        ahead = done + int(shape.depth[node]) - 1
        siblings = shape.children[int(shape.parent[node])]
        taken = {tokens[child] for child in siblings if child != node}
        if ahead < len(own) and own[ahead] not in taken and data.draw(st.booleans()):
            tokens[node] = own[ahead]
    return DraftTree.of(tokens, shape.parent.tolist(), shape.log_prob.tolist(), HAND)


@pytest.mark.parametrize(
    ("family", "sampling"),
    [("llama", {"temperature": 1.0, "seed": 2}), ("gpt2", {}), ("mistral", {})],
)
@settings(max_examples=4)
@given(data=st.data())
def test_any_tree_leaves_the_targets_own_text_and_caches(family, sampling, data):
    plain = session_of(family, speclab.Autoregressive(), **sampling)
    plain.run()
    session = session_of(family, check=True, **sampling)
    while not session.done:
        tree = tree_for(session, data.draw(draft_trees(8)), data, plain.token_ids)
        if data.draw(st.booleans()):
            step = session.verify(tree)
            assert (step.tree.token == tree.token).all()
        else:
            step = session.step()
            assert len(step.tree) == 1
        assert not step.note
        assert_consistent(step)
        assert_cache_is_fresh(session.pair.target, session.prompt_ids + session.token_ids)
    assert session.token_ids == plain.token_ids


def test_after_a_tree_by_hand_the_former_strategy_goes_on():
    session = session_of(strategy=DynaTree(), check=True)
    own = own_text("llama", NEW)
    session.step()
    by_hand = session.fork(strategy=ByHand())
    edit = TreeEdit(DraftTree.root(session.token_ids[-1]))
    ahead = own[len(session.token_ids) :][:3]
    for node, token in enumerate(ahead):
        edit = edit.add(node, token)
    assert by_hand.verify(edit).committed[: len(ahead)] == tuple(ahead)
    assert by_hand.back() is session.steps[-1]
    assert by_hand.step().tree.source[1:] == (HAND,) * len(ahead)
    after = by_hand.fork(strategy=session.strategy)
    after.run()
    assert after.token_ids == own
    assert [step.settings["strategy"] for step in after.steps[:3]] == [
        "DynaTree",
        "ByHand",
        "DynaTree",
    ]


@given(data=st.data(), tree=draft_trees(8, vocab=6))
def test_edits_do_to_paths_what_they_say(data, tree):
    """A tree is the set of its paths of tokens."""
    edit = TreeEdit(tree)
    paths = paths_of(tree).keys()
    for _ in range(6):
        before = edit
        node = data.draw(st.integers(0, len(edit.tree) - 1))
        above = next(path for path, other in paths_of(edit.tree).items() if other == node)
        if data.draw(st.booleans()):
            child = (*above, data.draw(st.integers(0, 5)))
            if child in paths:
                with refused(SettingsError, "already"):
                    edit.add(node, child[-1])
                continue
            edit = edit.add(node, child[-1])
            paths = paths | {child}
        elif node:
            edit = edit.prune(node)
            paths = {path for path in paths if path[: len(above)] != above}
        assert paths_of(edit.tree).keys() == paths
        assert before is edit or before.tree is not edit.tree


def test_an_edit_of_an_iteration_knows_what_the_draft_said():
    wide = DynaTree(
        low_confidence=0.9, high_confidence=0.99, stop_probability=0, prune_probability=0.02
    )
    step = session_of(strategy=wide).step()
    edit = TreeEdit.of(step)
    child = step.tree.children[0][0]
    again = edit.prune(child).add(0, int(step.tree.token[child]))
    node = again.tree.children[0][-1]
    assert (again.tree.log_prob[node], again.tree.source[node]) == (step.tree.log_prob[child], HAND)
    assert again.recorded(node) == child
    unknown = next(token for token in range(64) if token not in dict(step.nodes[0].draft_top))
    other = edit.add(0, unknown)
    assert other.tree.log_prob[other.tree.children[0][-1]] == NEUTRAL
