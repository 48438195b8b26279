"""Candidates drawn from the draft: the trees they make, their records, and the text that a seed gives."""

import math

import numpy as np
import pytest
from reference.decoding import transformed
from support.records import assert_consistent, assert_same_drafts
from support.table_runner import mixed_probs, random_probs, table_pair
from support.variants import DRAWN, VARIANTS

import speclab
from speclab import views
from speclab.drafters.base import Context
from speclab.settings import SessionSettings
from speclab.trace.files import load_trace
from speclab.tree import CandidateSampling

VOCAB = 8
PROMPT = [1, 2, 3]
NEW = 20
TARGET = random_probs(VOCAB, 11, low=0.5, high=2.0)
DRAFT = mixed_probs(TARGET, random_probs(VOCAB, 12), 0.3)
PAIR = table_pair(TARGET, DRAFT, VOCAB)
WARM = {"temperature": 1.3, "top_k": 5, "top_p": 0.95}
every_drawn = pytest.mark.parametrize("strategy", DRAWN.values(), ids=DRAWN)


def drafted(strategy, **sampling):
    settings = SessionSettings(**sampling)
    return strategy.drafter(PAIR.fresh()).draft(Context(PROMPT, 1000, lambda: None, settings))


def session_of(strategy, **settings):
    return speclab.Session(
        PAIR, strategy, PROMPT, **({"max_new_tokens": NEW, "seed": 5} | WARM | settings)
    )


def finished(strategy, **settings):
    session = session_of(strategy, **settings)
    session.run()
    return session


@every_drawn
def test_a_tree_comes_with_the_distributions_that_it_was_drawn_from_and_no_draw_is_dropped(
    strategy,
):
    """The draft's distribution at each node, warped as the target's; it gives every child its log-probability."""
    limit = getattr(strategy, "prune_probability", 0)
    improbable = 0
    for seed in range(12):
        draft = drafted(strategy, seed=seed, **WARM)
        tree = draft.tree
        assert tree.candidate_sampling == CandidateSampling[strategy.candidates.upper()]
        for node, probs in draft.draft_probs.items():
            path = tree.token[list(tree.path(node))][1:].tolist()
            due = transformed(np.log(DRAFT((*PROMPT, *path))), *WARM.values())
            assert probs.tolist() == pytest.approx(due, abs=1e-6)
            for child in tree.children[node]:
                assert tree.log_prob[child] == pytest.approx(math.log(probs[tree.token[child]]))
        assert {*tree.parent.tolist()} - {-1} <= draft.draft_probs.keys()
        for event in draft.events:
            assert event.kind != "prune"
            if event.kind == "expand" and len(tree) != getattr(strategy, "node_budget", 0):
                due = event.values["branches"]
                if strategy.candidates == "without_replacement":
                    due = min(due, np.count_nonzero(draft.draft_probs[event.node]))
                assert event.values["added"] == due
        improbable += sum(tree.path_log_prob < math.log(max(limit, 1e-9)))
    assert improbable or not limit, "or a threshold would have nothing to drop"


def test_a_copy_is_verified_but_not_expanded():
    copies = 0
    strategy = speclab.FixedTree(depth=2, branching=4, candidates="independent")
    for seed in range(20):
        tree = drafted(strategy, seed=seed, **WARM).tree
        for children in tree.children:
            seen = set()
            for child in children:
                copy = tree.token[child] in seen
                seen.add(tree.token[child])
                copies += copy
                assert not (copy and tree.children[child])
    assert copies > 10


@every_drawn
def test_at_temperature_0_candidates_are_the_most_probable_and_the_walk_is_greedy(strategy):
    top = strategy.changed(candidates="top")
    assert drafted(strategy).tree == drafted(top).tree
    one = finished(strategy, temperature=0.0)
    assert one.token_ids == finished(top, temperature=0.0).token_ids
    assert {step.rule for step in one.steps} == {"greedy"}


SAVED = DRAWN | {name: VARIANTS[name] for name in ("fixed tree", "dynatree as in the paper")}


@pytest.mark.parametrize("strategy", SAVED.values(), ids=SAVED)
def test_a_seed_gives_its_text_again_with_consistent_records_that_can_be_saved(tmp_path, strategy):
    session = finished(strategy, check=True)
    text = session.token_ids
    steps = session.steps
    for step in steps:
        assert_consistent(step)
    assert load_trace(session.trace.save(tmp_path / "t")) == session.trace
    assert (
        speclab.generate(PAIR, strategy, PROMPT, max_new_tokens=NEW, seed=5, **WARM).token_ids
        == text
    )
    assert finished(strategy, seed=6).token_ids != text
    for at in (0, len(steps) // 2):
        twin = session.fork(at)
        twin.run()
        assert twin.token_ids == text
        assert_same_drafts(session, twin)


def test_the_residual_is_what_the_rule_left_of_the_targets_distribution():
    """Worked out by hand at the root, for a chain: norm(max(p - q, 0))."""
    rejections = 0
    for seed in range(40):
        step = session_of(
            DRAWN["drawn chain"], seed=seed, temperature=0.5, top_k=None, top_p=None
        ).step()
        if not step.accepted:
            rejections += 1
            p, q = (
                np.array([getattr(share, name) for share in step.residual.tokens])
                for name in ("target", "draft")
            )
            left = np.maximum(p - q, 0)
            assert [share.residual for share in step.residual.tokens] == pytest.approx(
                list(left / left.sum())
            )
    assert rejections > 3


def test_a_block_records_both_bounds_and_the_picture_says_them():
    """A token alone passes with p / q, the path down to it as a block with another probability."""
    said = 0
    for seed in range(20):
        for step in finished(DRAWN["drawn block"], seed=seed).steps[:-1]:
            assert [trial.node for trial in step.trials] == [*range(1, len(step.tree))]
            for trial in step.trials:
                verdict = step.nodes[trial.node].verdict
                assert trial.accepted == (trial.node in step.accepted) == (verdict == "accepted")
            lost = [trial for trial in step.trials if step.nodes[trial.node].verdict == "rejected"]
            if lost and step.residual is not None:
                sentence = views.residual(step).layout.meta["sentence"]
                said += f"{lost[0].block:.0%}".removesuffix("%") in sentence
    assert said > 10
