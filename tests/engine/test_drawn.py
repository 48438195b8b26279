"""Candidates drawn from the draft: the trees they make, their records, and the text that a seed gives."""

from __future__ import annotations

import math

import numpy as np
import pytest
from records import assert_consistent, assert_same
from refusals import refused
from table_runner import mixed_probs, random_probs, table_pair
from variants import DRAWN, VARIANTS

import speclab
from speclab.drafters.base import Context, Draft, Strategy
from speclab.engine.acceptance import Rule
from speclab.engine.decode import rule_for
from speclab.settings import SessionSettings
from speclab.trace.files import load_trace
from speclab.tree import CandidateSampling

VOCAB, PROMPT, NEW = 8, [1, 2, 3], 20
TARGET = random_probs(VOCAB, 11, low=0.5, high=2.0)
DRAFT = mixed_probs(TARGET, random_probs(VOCAB, 12), 0.3)
PAIR = table_pair(TARGET, DRAFT, VOCAB)
WARM = {"temperature": 1.3, "top_k": 5, "top_p": 0.95}
SAVED = {
    **DRAWN,
    **{name: VARIANTS[name] for name in ("fixed tree", "copies and transitions", "dynatree as in the paper")},
}
every_drawn = pytest.mark.parametrize("strategy", DRAWN.values(), ids=DRAWN)


def drafted(strategy: Strategy, **sampling: object) -> Draft:
    settings = SessionSettings(**sampling)
    return strategy.drafter(PAIR.fresh()).draft(Context(PROMPT, 1000, lambda: None, settings))


def session_of(strategy: Strategy, **settings: object) -> speclab.Session:
    return speclab.Session(PAIR, strategy, PROMPT, **({"max_new_tokens": NEW, "seed": 5} | WARM | settings))


def finished(strategy: Strategy, **settings: object) -> speclab.Session:
    session = session_of(strategy, **settings)
    session.run()
    return session


# Trees of draws


@every_drawn
def test_a_tree_says_how_it_was_drawn_and_hands_over_every_distribution(strategy):
    """The draft's distribution at the node, warped as the target's; it holds each child with its log-probability."""
    ways = {"independent": CandidateSampling.INDEPENDENT, "without_replacement": CandidateSampling.WITHOUT_REPLACEMENT}
    for seed in range(10):
        draft = drafted(strategy, seed=seed, **WARM)
        tree = draft.tree
        assert tree.candidate_sampling == ways[strategy.candidates]
        for node in range(len(tree)):
            if tree.children[node]:
                text = (*PROMPT, *(int(token) for token in tree.token[list(tree.path(node))][1:]))
                due = np.asarray(DRAFT(text)) ** (1 / WARM["temperature"])
                due[np.argsort(-due)[WARM["top_k"] :]] = 0
                probs = draft.draft_probs[node]
                assert probs.sum() == pytest.approx(1)
                assert probs[probs > 0] == pytest.approx(due[probs > 0] / due[probs > 0].sum(), rel=1e-5)
                assert due[probs == 0].sum() / due.sum() <= 1 - WARM["top_p"]
                for child in tree.children[node]:
                    assert tree.log_prob[child] == pytest.approx(math.log(probs[tree.token[child]]))


@every_drawn
def test_no_draw_is_taken_out(strategy):
    """Whatever a node's own probability: it has as many children as were drawn, unless there are no more tokens."""
    unlikely = 0
    for seed in range(20):
        draft = drafted(strategy, seed=seed, **WARM)
        assert not [event for event in draft.events if event.kind == "prune"]
        for event in draft.events:
            if event.kind == "expand":
                tokens = np.count_nonzero(draft.draft_probs[event.node])
                least = min(event.values["branches"], tokens) if strategy.candidates != "independent" else 0
                room = len(draft.tree) == getattr(strategy, "node_budget", 0)
                assert event.values["added"] == event.values["branches"] or event.values["added"] >= least or room
        unlikely += sum(draft.tree.path_log_prob < math.log(max(getattr(strategy, "prune_probability", 0), 1e-9)))
    assert unlikely or not getattr(strategy, "prune_probability", 0), "else a threshold would have had nothing to drop"


def test_a_copy_is_verified_but_not_expanded():
    copies = 0
    for seed in range(30):
        draft = drafted(speclab.FixedTree(depth=2, branching=4, candidates="independent"), seed=seed, **WARM)
        for children in draft.tree.children:
            tokens = draft.tree.token[list(children)].tolist()
            for place, child in enumerate(children):
                if tokens[place] in tokens[:place]:
                    copies += 1
                    assert not draft.tree.children[child]
    assert copies > 30


@every_drawn
def test_at_temperature_0_candidates_are_the_likeliest_and_the_walk_is_greedy(strategy):
    top = strategy.changed(candidates="top")
    assert_same(drafted(strategy).tree, drafted(top).tree)
    one, other = finished(strategy, temperature=0.0), finished(top, temperature=0.0)
    assert one.token_ids == other.token_ids
    assert {step.rule for step in one.steps} == {"greedy"}


def test_a_drafted_root_cannot_be_combined_with_draws():
    for candidates in ("independent", "without_replacement"):
        with refused(speclab.SettingsError, "root='verified'", "candidates"):
            speclab.DynaTree(root="drafted", candidates=candidates)


# The rule follows the tree


def test_the_rule_is_the_one_that_fits_the_draws():
    warm, cold = SessionSettings(temperature=1.0), SessionSettings()
    assert [rule_for(probs, warm) for probs in CandidateSampling] == [
        Rule.SAMPLE_AND_MATCH,
        Rule.INDEPENDENT,
        Rule.WITHOUT_REPLACEMENT,
    ]
    assert {rule_for(probs, cold) for probs in CandidateSampling} == {Rule.GREEDY}


# A seed and its text


@every_drawn
def test_the_same_seed_gives_the_same_text_again_after_back_and_in_a_fork(strategy):
    session = finished(strategy)
    text, steps = session.token_ids, session.steps
    assert finished(strategy).token_ids == text == finished(strategy, check=True).token_ids
    assert speclab.generate(PAIR, strategy, PROMPT, max_new_tokens=NEW, seed=5, **WARM).token_ids == text
    assert finished(strategy, seed=6).token_ids != text
    session.goto(2)
    session.run()
    assert session.token_ids == text
    for at in (0, 1, len(steps) // 2):
        twin = session.fork(at)
        twin.run()
        assert twin.token_ids == text
        for mine, its in zip(steps, twin.steps, strict=True):
            assert_same(mine.tree, its.tree)


# Records


@pytest.mark.parametrize("strategy", SAVED.values(), ids=SAVED)
def test_records_of_sampled_steps_are_consistent_and_are_saved(tmp_path, strategy):
    session = finished(strategy)
    for step in session.steps:
        assert_consistent(step)
    assert session.metrics.counts.lossy == 0
    assert_same(load_trace(session.trace.save(tmp_path / "t")), session.trace)


def test_a_record_says_with_which_chance_each_draw_was_tried():
    session = finished(DRAWN["tree without replacement"], max_new_tokens=120)
    said = {"accepted": set(), "rejected": set(), "not reached": set(), "root": set()}
    for step in session.steps:
        for node in step.nodes:
            said[node.verdict].add(node.reason)
    assert all(reason.startswith("drawn from the draft, accepted with ") for reason in said["accepted"])
    assert all(reason.startswith("drawn from the draft, rejected, its probability was ") for reason in said["rejected"])
    assert any("drawn before it was accepted" in reason for reason in said["not reached"])


def test_the_residual_is_what_the_rule_left_of_the_targets_distribution():
    """Recomputed by hand at the root, from the distributions of target and draft, for a chain."""
    stopped = 0
    for seed in range(60):
        step = session_of(DRAWN["drawn chain"], seed=seed, temperature=0.5, top_k=None, top_p=None).step()
        if step.accepted:
            continue
        stopped += 1
        p, q = (np.array([getattr(share, name) for share in step.residual.tokens]) for name in ("target", "draft"))
        left = np.maximum(p - q, 0)
        assert [share.residual for share in step.residual.tokens] == pytest.approx(list(left / left.sum()))
    assert stopped > 3


def test_the_residual_of_the_target_mass_rule_has_no_mass_on_rejected_candidates():
    for seed in range(10):
        step = session_of(VARIANTS["fixed tree"], seed=seed).step()
        node = step.residual.node
        children = {int(step.tree.token[child]) for child in step.tree.children[node]}
        rest = sum(share.target for share in step.residual.tokens if share.token not in children)
        for share in step.residual.tokens:
            due = 0.0 if share.token in children else share.target / rest
            assert share.residual == pytest.approx(due)
            assert share.draft is None
