"""Trees built by hand: always the target's own text, whatever the tree; a redrawn mask is told."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pairs import PROMPT, assert_cache_is_fresh, library_text, own_text, pair_of, target_of
from records import assert_consistent
from refusals import refused
from strategies import draft_trees

import speclab
from speclab import ByHand, DraftTree, DynaTree, SettingsError, TreeEdit
from speclab.drafters.by_hand import HAND, MOST, NEUTRAL

NEW = 14
WIDE = DynaTree(low_confidence=0.9, high_confidence=0.99, stop_probability=0, prune_probability=0.02, history="off")


def session_of(family: str = "llama", strategy: speclab.Strategy | None = None, **more: object) -> speclab.Session:
    return speclab.Session(pair_of(family), strategy or ByHand(), PROMPT, **({"max_new_tokens": NEW} | more))


def tree_for(session: speclab.Session, shape: DraftTree, right: st.DataObject | None, own: list[int]) -> DraftTree:
    """`shape` on the newest token, its tokens now and then those that the target will choose."""
    tokens, done = shape.token.tolist(), len(session.token_ids)
    tokens[0] = session.token_ids[-1]
    for node in range(1, len(shape)):
        ahead = done + int(shape.depth[node]) - 1
        taken = {tokens[child] for child in shape.children[int(shape.parent[node])] if child < node}
        if ahead < len(own) and own[ahead] not in taken and (right is None or right.draw(st.booleans())):
            tokens[node] = own[ahead]
    return DraftTree.of(tokens, shape.parent.tolist(), shape.log_prob.tolist(), HAND)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma3_text", "mistral"])
@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_any_tree_leaves_the_target_s_own_text_and_caches(family, data):
    own, session = own_text(family, NEW), session_of(family, check=True)
    while not session.done:
        tree = tree_for(session, data.draw(draft_trees(8)), data, own)
        if data.draw(st.booleans()):
            step = session.verify(tree, data.draw(st.sampled_from([None, tree.ancestor_mask()])))
            assert (step.tree.token == tree.token).all()
            assert not step.note
        else:
            step = session.step()
            assert len(step.tree) == 1
        assert_consistent(step)
        assert_cache_is_fresh(session.pair.target, session.prompt_ids + session.token_ids)
    assert session.token_ids == own


def test_a_chain_of_the_target_s_own_tokens_is_accepted_whole():
    own, session = own_text("llama", NEW), session_of()
    edit = TreeEdit(DraftTree.root(own[0]))
    for depth in range(4):
        edit = edit.add(depth, own[depth + 1])
    step = session.verify(edit)
    assert step.committed == tuple(own[1:6])
    assert set(step.tree.source[1:]) == {HAND}
    assert session.back() is None
    assert session.step() is step
    twin = session.fork(0)
    assert len(twin.step().tree) == 1
    assert twin.fork(strategy=DynaTree()).run() is not None


@settings(max_examples=4, deadline=None)
@given(data=st.data(), seed=st.integers(0, 3))
def test_sampled_text_does_not_depend_on_the_tree(data, seed):
    plain = session_of(strategy=speclab.Autoregressive(), temperature=1.0, seed=seed)
    plain.run()
    session = session_of(temperature=1.0, seed=seed, check=True)
    while not session.done:
        session.verify(tree_for(session, data.draw(draft_trees(8)), data, plain.token_ids))
    assert session.token_ids == plain.token_ids


@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_a_redrawn_mask_is_given_told_and_leaves_the_caches_of_the_text(data):
    session = session_of(check=True)
    for _ in range(2):
        if session.done:
            break
        tree = tree_for(session, data.draw(draft_trees(8)), data, own_text("llama", NEW))
        mask = data.draw(st.lists(st.booleans(), min_size=len(tree) ** 2, max_size=len(tree) ** 2))
        mask = np.array(mask).reshape(len(tree), len(tree))
        step = session.verify(tree, mask)
        assert (step.mask == mask).all()
        redrawn = bool((mask != tree.ancestor_mask()).any())
        assert (bool(step.note), step.counts.lossy) == (redrawn, redrawn)
        assert_cache_is_fresh(session.pair.target, session.prompt_ids + session.token_ids)
    assert (session.metrics.counts.lossy == 0) == (not any(step.note for step in session.steps))
    text = list(session.token_ids)
    session.run()  # compared again from there on
    assert session.token_ids == text + library_text(target_of("llama"), PROMPT + text, NEW - len(text))


def test_after_a_tree_by_hand_the_former_strategy_goes_on():
    session = session_of(strategy=DynaTree(), check=True)
    session.step()
    by_hand = session.fork(strategy=ByHand())
    by_hand.verify(TreeEdit(DraftTree.root(session.token_ids[-1])).add(0, 3))
    after = by_hand.fork(strategy=session.strategy)
    after.run()
    assert after.token_ids == own_text("llama", NEW)
    assert [step.settings["strategy"] for step in after.steps[:3]] == ["DynaTree", "ByHand", "DynaTree"]
    assert max(len(step.tree) for step in after.steps[2:]) > 1


def test_a_redrawn_text_is_not_replayed():
    session = session_of()
    session.verify(TreeEdit(DraftTree.root(session.token_ids[-1])).add(0, 3), np.ones((2, 2), bool))
    session.run()
    with refused(speclab.NotRecordedError, "by hand"):
        speclab.replay(session, DynaTree())


# The editor


@settings(max_examples=40, deadline=None)
@given(data=st.data(), tree=draft_trees(8, vocab=6))
def test_edits_do_to_paths_what_they_say(data, tree):
    """A tree is the set of its paths of tokens."""
    edit, paths = TreeEdit(tree), _paths(tree)
    for _ in range(6):
        before, node = edit, data.draw(st.integers(0, len(edit.tree) - 1))
        at = _path(edit.tree, node)
        if data.draw(st.booleans()):
            child = (*at, data.draw(st.integers(0, 5)))
            if child in paths:
                with refused(SettingsError, "already"):
                    edit.add(node, child[-1])
                continue
            edit, paths = edit.add(node, child[-1]), paths | {child}
        elif node:
            edit, paths = edit.prune(node), {path for path in paths if path[: len(at)] != at}
        assert _paths(edit.tree) == paths
        assert before is edit or before.tree is not edit.tree


def _path(tree: DraftTree, node: int) -> tuple[int, ...]:
    return tuple(tree.token[list(tree.path(node))].tolist())


def _paths(tree: DraftTree) -> set[tuple[int, ...]]:
    return {_path(tree, node) for node in range(len(tree))}


def test_an_edit_of_an_iteration_knows_what_the_draft_said():
    step = session_of(strategy=WIDE).step()
    edit = TreeEdit.of(step)
    child = step.tree.children[0][0]
    drafted = int(step.tree.token[child])
    again = edit.prune(child).add(0, drafted)
    node = again.tree.children[0][-1]
    assert (again.tree.log_prob[node], again.tree.source[node]) == (step.tree.log_prob[child], HAND)
    assert again.recorded(node) == child
    unknown = next(token for token in range(64) if token not in dict(step.nodes[0].draft_top))
    other = edit.add(0, unknown)
    assert other.tree.log_prob[other.tree.children[0][-1]] == NEUTRAL


def test_what_cannot_be_edited_or_verified_is_refused_and_nothing_is_lost():
    edit = TreeEdit(DraftTree.root(3)).add(0, 5)
    for wrong in (2, -1, True, "1", None):
        for operation in (lambda node: edit.add(node, 7), edit.prune):
            with refused(SettingsError, "no node", "2"):
                operation(wrong)
    with refused(SettingsError, "root", "pruned"):
        edit.prune(0)
    for token in (-1, "the", 1.5, 1 << 31, 1 << 70):
        with refused(SettingsError, "token id"):
            edit.add(0, token)
    most = TreeEdit(DraftTree.of(range(MOST), [-1, *[0] * (MOST - 1)], [0.0] * MOST, HAND))
    with refused(SettingsError, str(MOST), "prune"):
        most.add(0, MOST)
    for parents in ([-1, 2, 1], [-1, 0, 5], [0, 0, 0]):
        with refused(SettingsError, "parent"):
            DraftTree.of([3, 4, 5], parents, [0.0] * 3, HAND)
    with refused(SettingsError, "Expected a DraftTree"):
        TreeEdit("x")
    with refused(speclab.NotRecordedError, "drafted", "root alone"):
        TreeEdit.of(session_of(strategy=DynaTree(root="drafted")).step())

    session = session_of()
    root = DraftTree.root(session.token_ids[-1])
    deep = [1] * 256
    for tree, mask, *words in [
        (DraftTree.root(root.token[0] + 1), None, "root", "newest", "begin the tree"),
        (TreeEdit(root).add(0, 64).tree, None, "64", "outside the vocabulary", "63"),
        (root, np.ones((2, 2), bool), "1 × 1", "[2, 2]"),
        (root, [["yes"]], "1 × 1"),
        (DraftTree.of([root.token[0], *deep], range(-1, 256), [0.0] * 257, HAND), None, "context", "prune"),
        (DraftTree.of([root.token[0], *[1] * MOST], [-1, *[0] * MOST], [0.0] * (MOST + 1), HAND), None, "one pass"),
        (DraftTree.of([root.token[0], 1], [-1, 0], [0.0, np.nan], HAND), None, "log-probability"),
        ("tree", None, "DraftTree"),
    ]:
        with refused(SettingsError, *words):
            session.verify(tree, mask)
    assert not session.steps
    session.step()
    session.back()
    with refused(SettingsError, "ahead", "fork"):
        session.verify(root)
    with refused(SettingsError, "DynaTree", "ByHand"):
        session_of(strategy=DynaTree()).verify(root)
    session.run()
    with refused(speclab.FinishedError, "ended"):
        session.verify(root)
