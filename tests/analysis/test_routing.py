"""What routing came to over a run: worked out again from the records, and regret by verifying both trees."""

from __future__ import annotations

from functools import cache

import pytest
from refusals import refused
from table_runner import mixed_probs, random_probs, table_pair

import speclab
from speclab.analysis import routing
from speclab.models.pair import ModelPair

VOCAB = 8
SMALL = {"node_budget": 10, "depth": 3, "children": 3}


@cache
def pair_of() -> ModelPair:
    """A target, and two drafts in the place of heads, each right where the other often is not."""
    probs = random_probs(VOCAB, 1, low=0.5, high=2.0)
    drafts = [mixed_probs(probs, random_probs(VOCAB, seed), share) for seed, share in ((2, 0.5), (3, 0.6))]
    heads = tuple(table_pair(draft, None, VOCAB).target for draft in drafts)
    return ModelPair(table_pair(probs, None, VOCAB).target, heads=heads, name="tables")


def finished(strategy: speclab.Strategy, **settings: object) -> speclab.Session:
    session = speclab.Session(pair_of(), strategy, [1, 2, 3], **{"max_new_tokens": 60, **settings})
    session.run()
    return session


@pytest.mark.parametrize("mode", ["route", "merge"])
@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.8, "seed": 5}], ids=["greedy", "sampled"])
def test_regret_verifies_both_and_leaves_the_session_alone(mode, sampling):
    session = finished(speclab.DualDraft(mode=mode, **SMALL), **sampling)
    tokens, calls = session.token_ids, session.pair.target.calls
    lost = set()
    for step in session.steps[:-3]:  # the text goes on behind these
        found = routing.regret(session, step.index)
        assert found.accepted == routing.followed(session.trace, step.index)
        assert found.names == tuple(one.name for one in step.proposals)
        chosen = [length for length, one in zip(found.accepted, step.proposals, strict=True) if one.chosen]
        assert len(step.accepted) == max(chosen)
        assert found.tokens == max(found.accepted) - max(chosen) >= 0
        assert [one.committed[: len(step.committed)] for one in found.steps if one.committed == step.committed]
        lost.add(found.tokens)
    assert (session.token_ids, session.pair.target.calls) == (tokens, calls)
    assert (lost == {0}) == (mode == "merge"), "routing is wrong now and then, the union never"


def test_the_statistics_are_sums_over_the_steps():
    session = finished(speclab.DualDraft(**SMALL))
    found = routing.statistics(session.trace)
    assert found.iterations == len(session.steps) == sum(part.chosen for part in found.parts)
    for place, part in enumerate(found.parts):
        own = [step for step in session.steps if step.proposals[place].chosen]
        assert part.chosen == len(own) > 0
        assert part.accepted == sum(len(step.accepted) for step in own)
        assert part.committed == sum(len(step.committed) for step in own)
        means = [step.proposals[place].confidence for step in session.steps]
        assert part.confidence == pytest.approx(sum(means) / len(means))
        reached = [routing.followed(session.trace, step.index)[place] for step in session.steps]
        assert part.followed == pytest.approx(sum(reached) / len(reached))
        assert part.share == pytest.approx(sum(length / 9 for length in reached) / len(reached))
    margins = [abs(step.proposals[0].score - step.proposals[1].score) for step in session.steps]
    assert found.margin == pytest.approx(sum(margins) / len(margins))
    assert routing.statistics(session.trace, 3).iterations == 3


def test_where_nothing_was_chosen_there_is_nothing_to_count_or_regret():
    session = finished(speclab.DualDraft(mode="first", **SMALL), max_new_tokens=8)
    assert routing.statistics(session.trace) is None
    with refused(speclab.SettingsError, "iteration 0", "mode='route'"):
        routing.regret(session, 0)
    with refused(speclab.SettingsError, "iteration 99"):
        routing.regret(session, 99)


def test_regret_at_the_end_of_the_context():
    """A recorded tree fits where it was drafted."""
    probs = random_probs(VOCAB, 1, low=0.5, high=2.0)
    heads = tuple(table_pair(probs, None, VOCAB, context=16).target for _ in range(2))
    pair = ModelPair(table_pair(probs, None, VOCAB, context=16).target, heads=heads, name="tables")
    session = speclab.Session(pair, speclab.DualDraft(**SMALL), [1, 2, 3], max_new_tokens=13)
    session.run()
    assert routing.regret(session, len(session.steps) - 1).tokens == 0
