"""Comparing strategies on one prompt: the reference, the first difference, and strategies that cannot run."""

from dataclasses import replace

from support.table_runner import random_probs, table_pair

import speclab
from speclab.features.compare import Comparison, compare


def test_runs_are_compared_with_the_first_complete_one():
    pair = table_pair(random_probs(8, 1), None, 8)
    strategies = {
        "plain": speclab.Autoregressive(),
        "lookup": speclab.PromptLookup(),
        "tree": speclab.DynaTree(),
    }
    compared = compare(pair, strategies, [1, 2, 3, 1, 2], max_new_tokens=12)
    plain, lookup, tree = compared.runs
    assert tree.trace is None
    assert tree.problem
    assert plain.complete
    assert compared.reference is plain
    assert plain.token_ids == lookup.token_ids
    assert compared.differs_at(lookup) is None

    stopped = replace(plain, trace=replace(plain.trace, steps=plain.trace.steps[:3], finished=""))
    other = replace(lookup, trace=replace(lookup.trace, first_token=lookup.trace.first_token + 1))
    again = Comparison((stopped, plain, other))
    assert again.reference is plain
    assert (again.differs_at(stopped), again.differs_at(other)) == (None, 0)
    ended = replace(stopped, trace=replace(stopped.trace, finished="end of text"))
    assert again.differs_at(ended) == len(ended.token_ids)
