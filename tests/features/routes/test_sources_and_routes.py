"""What records tell afterwards: where accepted tokens came from, and what routing between two trees achieved."""

from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from support.records import ran
from support.table_runner import mixed_probs, random_probs, table_pair

import speclab
from speclab.drafters.goose import Goose
from speclab.engine.acceptance import sample_and_match
from speclab.features.routes import routing
from speclab.features.routes.attribution import Attribution, SourceRate, attribution, source_rates
from speclab.pair import ModelPair
from speclab.views.drawing import call
from speclab.views.run_data import LOOKS

RIGHT = 1
WRONG = 0
C = "context"
T = "transition"


def judged(parents, sources, tokens):
    """A verified tree: a node is right where its token is `RIGHT`, and the walk takes the first right child."""
    tree = speclab.DraftTree.of(tokens, parents, [0.0] * len(parents), sources)
    path = sample_and_match(tree, lambda node: RIGHT).accepted
    on_path = {0, *path}
    verdicts = [
        "accepted" if node in on_path else "rejected" if parent in on_path else "not reached"
        for node, parent in enumerate(parents)
    ]
    nodes = tuple(SimpleNamespace(verdict=verdict) for verdict in verdicts)
    return SimpleNamespace(
        tree=tree, nodes=nodes, accepted=path, committed=(RIGHT,) * (len(path) + 1), bonus=RIGHT
    )


SAVED = judged([-1, 0, 0, 1, 1, 1, 3, 5], ["target", C, T, C, T, T, C, T], [1, 1, 0, 0, 0, 1, 1, 0])
"""A right copy beside a wrong guess; a wrong copy beside two guesses, the second right; two nodes behind these."""


def test_sources_of_trees_by_hand():
    rates = source_rates([SAVED])
    assert rates[C] == SourceRate(drafted=3, tried=2, places=2, accepted=1, first=1)
    assert rates[T] == SourceRate(drafted=4, tried=3, places=2, accepted=1, first=0)
    assert (rates[T].share, rates[T].rate, rates[T].first_rate) == (1 / 4, 1 / 3, 0)
    assert source_rates([SAVED, SAVED])[T] == rates[T] + rates[T]
    assert SourceRate().share == SourceRate().rate == SourceRate().first_rate == 0
    assert source_rates([]) == {}
    paths = [[C] * 3, [C, T, T, T], [T], [], [C]]
    chains = [
        judged([*range(-1, len(path))], ["target", *path], [RIGHT] * (len(path) + 1))
        for path in paths
    ]
    assert attribution(chains) == Attribution(4, 4, 1, 3)


def test_rates_and_kinds_of_path_of_a_run_add_up_to_its_metrics():
    probs = mixed_probs(random_probs(6, 3), lambda path: random_probs(6, 4)(path[-2:]), 0.8)
    strategy = Goose(bypass="off", node_budget=20)
    session = ran(table_pair(probs, None, 6), strategy, [1, 2, 3, 1, 2, 3], max_new_tokens=120)
    rates = source_rates(session.steps)
    kinds = attribution(session.steps)
    counts = session.metrics.counts
    assert sum(rate.accepted for rate in rates.values()) == kinds.accepted == counts.accepted
    assert sum(rate.drafted for rate in rates.values()) == counts.drafted
    assert min(kinds.spine_only, kinds.spine_continuation, kinds.branch_only, kinds.continued) > 0


# Routing

VOCAB = 8
SMALL = {"node_budget": 10, "depth": 3, "children": 3}


@cache
def pair_of():
    """A target, and two drafts in the place of heads, each right where the other often is not."""
    probs = random_probs(VOCAB, 1, low=0.5, high=2.0)
    drafts = [
        mixed_probs(probs, random_probs(VOCAB, seed), share) for seed, share in ((2, 0.5), (3, 0.6))
    ]
    heads = tuple(table_pair(draft, None, VOCAB, context=70).target for draft in drafts)
    return ModelPair(table_pair(probs, None, VOCAB, context=70).target, heads=heads, name="tables")


def finished(strategy, **settings):
    return ran(pair_of(), strategy, [1, 2, 3], **{"max_new_tokens": 60, **settings})


def test_the_statistics_are_sums_over_the_steps():
    session = finished(speclab.DualDraft(**SMALL))
    found = routing.statistics(session.trace)
    assert found.iterations == len(session.steps) == sum(part.chosen for part in found.parts)
    for place, part in enumerate(found.parts):
        proposals = [step.proposals[place] for step in session.steps]
        own = [s for s, proposal in zip(session.steps, proposals, strict=True) if proposal.chosen]
        assert part.accepted == sum(len(step.accepted) for step in own)
        assert part.committed == sum(len(step.committed) for step in own)
        assert part.confidence == pytest.approx(np.mean([each.confidence for each in proposals]))
        reached = [routing.followed(session.trace, step.index)[place] for step in session.steps]
        assert part.followed == pytest.approx(np.mean(reached))
        assert part.share == pytest.approx(np.mean(reached) / 9)


def test_the_tree_that_was_not_taken_is_named_and_nothing_of_it_is_accepted():
    step = finished(speclab.DualDraft(**SMALL)).steps[0]
    figure = call("draftsFigure", step)
    (other,) = [each.name for each in step.proposals if not each.chosen]
    assert other in figure["layout"]["meta"]["caption"]
    assert LOOKS["nodes"]["accepted"]["color"] not in str(figure["data"])


def test_where_nothing_was_chosen_there_is_nothing_to_count():
    session = finished(speclab.DraftHead(**SMALL), max_new_tokens=8)
    assert routing.statistics(session.trace) is None
