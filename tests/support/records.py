"""Whole runs, comparing records, and what every step must tell without contradicting itself."""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

import speclab
from speclab.trace.edit import HAND


def paths_of(tree):
    """The tokens below the root on the way to each node, and the node: level by level, siblings in their order."""
    return {
        tuple(tree.token[list(tree.path(node))[1:]].tolist()): node for node in range(len(tree))
    }


def assert_alike(one, other, where="step"):
    """The same record, decoded again or elsewhere: within rounding, and whatever the time."""
    if dataclasses.is_dataclass(one):
        one = {field.name: getattr(one, field.name) for field in dataclasses.fields(one)}
        other = {name: getattr(other, name) for name in one}
    if isinstance(one, np.ndarray):
        one = one.tolist()
        other = other.tolist()
    if isinstance(one, Mapping):
        assert one.keys() == other.keys(), where
        for name in one.keys() - {"seconds"}:
            assert_alike(one[name], other[name], f"{where}.{name}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), where
        for place, (mine, its) in enumerate(zip(one, other, strict=True)):
            assert_alike(mine, its, f"{where}[{place}]")
    elif isinstance(other, float):
        assert math.isclose(one, other, rel_tol=1e-3, abs_tol=1e-3), where
    else:
        assert one == other, where


def ran(*given, **settings):
    """A session at the end of its text."""
    session = speclab.Session(*given, **settings)
    session.run()
    return session


def assert_same_drafts(run, other):
    """Two runs drafted the same for the same reasons, and committed the same."""
    for mine, its in zip(run.steps, other.steps, strict=True):
        for name in ("tree", "settings", "adaptation", "events", "committed"):
            assert getattr(mine, name) == getattr(its, name)


def assert_consistent(step):
    """What one step says about itself in two places is the same."""
    tree = step.tree
    n = len(step.tree)
    verified = step.root_choice is None
    path = ((0,) if verified else ()) + step.accepted
    assert path in {(), *(tree.path(node) for node in range(n))}
    tokens = tuple(tree.token[list(step.accepted)].tolist())
    assert step.committed == (*tokens, *([] if step.bonus is None else [step.bonus]))
    for node, token in zip(path, step.committed[not verified :], strict=False):
        assert step.nodes[node].target_choice == token
    expected = tree.ancestor_mask()
    windowed = min(step.prefix_seen) < step.prefix_length
    assert not (step.mask & ~expected).any()
    assert windowed or (step.mask == expected).all(), "only a window hides an ancestor"
    assert len(step.nodes) == len(step.prefix_seen) == n
    for node in step.nodes:
        _assert_node(step, node, path)
    assert step.counts.iterations == 1
    assert step.counts.committed == len(step.committed)
    assert step.counts.accepted == len(step.accepted)
    assert step.counts.drafted == n - verified
    last = path[-1] if path else None
    open_end = step.bonus is not None and (last is None or bool(tree.children[last]))
    assert step.counts.looked == len(step.accepted) + open_end
    assert step.counts.longest_path == tree.depth.max() + 1 - verified
    _assert_residual(step, path)
    assert step.seconds.keys() >= {"draft", "verify", "accept", "commit", "learn"}
    assert all(seconds >= 0 for seconds in step.seconds.values())
    _assert_caches(step, path, verified)


def _assert_node(step, node, path):
    tree = step.tree
    i = node.index
    parent = int(tree.parent[i])
    assert node.token == tree.token[i]
    assert math.isclose(node.draft_prob, math.exp(tree.log_prob[i]))
    assert math.isclose(node.path_prob, math.exp(tree.path_log_prob[i]))
    assert node.kv_slot == step.prefix_length + i
    assert node.entropy >= 0
    if parent < 0 and step.root_choice is None:
        assert (node.verdict, node.target_prob) == ("root", None)
    else:
        assert 0 <= node.target_prob <= 1
        reached = parent in path or parent < 0
        due = "accepted" if i in step.accepted else "rejected" if reached else "not reached"
        ended = step.bonus is None and parent == (path or (None,))[-1]
        # Candidates drawn from the draft are tried in order: those behind an accepted one are not.
        untried = (
            any(sibling < i and sibling in step.accepted for sibling in tree.children[parent])
            and "draws" in step.rule
        )
        assert node.verdict == ("not reached" if untried else due) or (
            ended and node.verdict == "not reached"
        )
    merged = max(
        1, sum(proposal.chosen for proposal in step.proposals)
    )  # distributions that a node's candidates come from
    for top, distributions in ((node.target_top, 1), (node.draft_top, merged)):
        probabilities = [probability for _, probability in top]
        assert probabilities == sorted(probabilities, reverse=True)
        assert sum(probabilities) <= distributions + 1e-6
        assert {token for token, _ in top} <= step.texts.keys()
    children = {int(tree.token[child]): child for child in tree.children[i]}
    for token, probability in node.draft_top:
        if token in children:
            assert math.isclose(probability, math.exp(tree.log_prob[children[token]]), rel_tol=1e-6)
    drafted = any(tree.source[child] != HAND for child in children.values())
    assert bool(node.draft_top) >= drafted


def _assert_residual(step, path):
    assert step.rule
    assert (step.residual is None) == (step.rule == "greedy" or step.bonus is None)
    if step.residual is not None:
        shares = {share.token: share for share in step.residual.tokens}
        assert step.residual.node == (path[-1] if path else None)
        assert shares[step.bonus].residual > 0
        assert sum(share.residual for share in shares.values()) <= 1 + 1e-6
        assert all(share.residual <= 1e-9 for share in shares.values() if share.target == 0)
        assert shares.keys() <= step.texts.keys()


def _assert_caches(step, path, verified):
    target = step.caches[0]
    assert target.name == "target"
    assert target.before == step.prefix_length
    assert target.written == len(step.tree) + len(step.extra)
    assert target.after == target.committed == step.prefix_length + len(step.committed)
    gathered = [step.prefix_length + node for node in path][: len(step.committed)]
    if target.kept:
        assert list(target.kept) == gathered
    places = {slot: step.prefix_length + place for place, slot in enumerate(target.kept)}
    assert dict(target.moved) == {slot: place for slot, place in places.items() if slot != place}
    for cache in step.caches:
        assert cache.after <= cache.capacity
        if cache.name in ("target", "draft"):  # some heads keep no keys
            assert cache.slot_bytes > 0
