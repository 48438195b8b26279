"""The loop on models from a table: how many passes an iteration takes, and where a text ends."""

from __future__ import annotations

from dataclasses import replace

import pytest
from records import assert_consistent
from table_runner import TableRunner, mixed_probs, random_probs, table_pair
from variants import PATHS, VARIANTS
from words import word_tokenizer

import speclab
from speclab.drafters.base import Strategy
from speclab.models.pair import ModelPair

VOCAB = 8
TABLE = random_probs(VOCAB, 5, low=0.5, high=2.5)
TABLE_DRAFT = mixed_probs(TABLE, random_probs(VOCAB, 6), 0.2)


def _counted(strategy: Strategy) -> list[tuple]:
    """(step, target calls, target rows, draft calls, draft rows) of every iteration."""
    session = speclab.Session(table_pair(TABLE, TABLE_DRAFT, VOCAB), strategy, [1, 2, 3], max_new_tokens=60)
    runners = (session.pair.target, session.pair.draft)
    found = []
    while not session.done:
        before = [count for runner in runners for count in (runner.calls, runner.rows)]
        step = session.step()
        after = [count for runner in runners for count in (runner.calls, runner.rows)]
        spent = [b - a for a, b in zip(before, after, strict=True)]
        assert (step.counts.target_calls, step.counts.draft_calls) == (spent[0], spent[2])
        found.append((step, *spent))
    return found


@pytest.mark.parametrize("k", [1, 4, 7])
def test_a_chain_of_k_is_k_draft_calls_and_one_target_call(k):
    for _, calls, rows, draft_calls, draft_rows in _counted(speclab.LinearSpeculation(draft_tokens=k))[1:]:
        assert (calls, rows, draft_calls) == (1, k + 1, k)
        assert draft_rows <= k + 1, "the root, k - 1 drafted tokens, and at most one token to catch up with"


@pytest.mark.parametrize("strategy", [speclab.FixedTree(depth=4, branching=2), speclab.DynaTree(node_budget=32)])
def test_a_tree_is_one_draft_call_a_level_and_one_target_call(strategy):
    for step, calls, rows, draft_calls, _ in _counted(strategy):
        levels = {step.tree.depth[event.node] for event in step.events if event.kind == "expand"}
        assert (calls, rows, draft_calls) == (1, len(step.tree), len(levels))


def test_the_papers_way_is_two_target_calls_and_a_draft_prefill():
    strategy = speclab.DynaTree(root="drafted", commit="rebuild", node_budget=64)
    for step, calls, rows, draft_calls, draft_rows in _counted(strategy):
        expanded = [event.node for event in step.events if event.kind == "expand"]
        assert (calls, rows) == (2, len(step.tree) + len(step.committed))
        assert draft_calls == len({step.tree.depth[node] for node in expanded}) + 1
        assert draft_rows == step.prefix_length + len(expanded)


def test_a_gathered_drafted_root_runs_the_bonus_token_alone():
    for step, calls, rows, *_ in _counted(speclab.DynaTree(root="drafted")):
        cut = step.bonus is None
        assert (calls, rows) == (2 - cut, len(step.tree) + 1 - cut)


MOST_DRAFT_CALLS = {"DraftHead": 7, "DualDraft": 14, "DynaTree": 8, "FixedTree": 5, "LinearSpeculation": 3}
"""A level of each tree is one; whatever is not named here calls no draft."""


@pytest.mark.parametrize("name", sorted(speclab.strategies()))
def test_by_default_an_iteration_is_one_target_call_and_at_most_one_draft_call_a_level(name):
    heads = tuple(TableRunner(mixed_probs(TABLE, random_probs(VOCAB, seed), 0.2), VOCAB) for seed in (7, 8))
    pair = replace(table_pair(TABLE, TABLE_DRAFT, VOCAB), heads=heads, tokenizer=word_tokenizer(VOCAB))
    session = speclab.Session(pair, speclab.strategies()[name](), [1, 2, 3], max_new_tokens=40)
    session.run()
    assert session.metrics.target_calls == session.metrics.iterations + 1, "and the prefill"
    calls = [step.counts.draft_calls for step in session.steps]
    assert max(calls) <= MOST_DRAFT_CALLS.get(name, 0)
    assert (max(calls) > 0) == (name in MOST_DRAFT_CALLS)


# Where a text ends


@pytest.mark.parametrize("variant", PATHS.values(), ids=PATHS)
def test_eos_inside_an_accepted_path_ends_the_text_there(variant):
    """The draft is the target, so every path is accepted: wherever the text ends, it ends inside one."""
    whole = speclab.generate(table_pair(TABLE, TABLE, VOCAB), variant, [1, 2, 3], max_new_tokens=24).token_ids
    for eos in sorted(set(whole))[:5]:
        end = whole.index(eos) + 1
        session = speclab.Session(table_pair(TABLE, TABLE, VOCAB, eos=eos), variant, [1, 2, 3], max_new_tokens=24)
        session.run()
        assert session.token_ids == whole[:end]
        assert session.done
        assert session.trace.finished == "end of text"
        for step in session.steps:
            assert_consistent(step)
        going_on = speclab.generate(
            table_pair(TABLE, TABLE, VOCAB, eos=eos), variant, [1, 2, 3], max_new_tokens=24, stop_at_eos=False
        )
        assert going_on.token_ids == whole


def test_eos_that_cuts_a_path_leaves_no_bonus():
    whole = speclab.generate(table_pair(TABLE, TABLE, VOCAB), VARIANTS["chain"], [1, 2, 3], max_new_tokens=9).token_ids
    inside = next(i for i in range(1, 4) if whole[i] not in whole[:i])
    session = speclab.Session(
        table_pair(TABLE, TABLE, VOCAB, eos=whole[inside]), VARIANTS["chain"], [1, 2, 3], max_new_tokens=9
    )
    step = session.step()
    assert step.committed == tuple(whole[1 : inside + 1])
    assert (step.bonus, len(step.accepted)) == (None, inside)
    assert step.nodes[inside + 1].verdict == "not reached", "the target chose it, but the text ended before it"
    assert session.done


@pytest.mark.parametrize("variant", PATHS.values(), ids=PATHS)
def test_never_more_tokens_than_asked_for(variant):
    whole = speclab.generate(table_pair(TABLE, TABLE, VOCAB), variant, [1, 2, 3], max_new_tokens=16).token_ids
    for count in range(1, 16):
        session = speclab.Session(table_pair(TABLE, TABLE, VOCAB), variant, [1, 2, 3], max_new_tokens=count)
        session.run()
        assert session.token_ids == whole[:count]
        assert session.metrics.acceptance_rate <= 1.0


# The engine's own check has teeth


class LyingRunner(TableRunner):
    """Right on its own, wrong in a tree pass, as with a mask that shows too much."""

    def forward(self, *args):
        return super().forward(*args).roll(1, dims=-1)


def test_check_finds_a_target_that_is_wrong_in_trees():
    pair = ModelPair(LyingRunner(TABLE, VOCAB), TableRunner(TABLE_DRAFT, VOCAB), name="liar")
    assert speclab.generate(pair, VARIANTS["chain"], [1, 2, 3], max_new_tokens=12).token_ids
    with pytest.raises(speclab.ExactnessError) as caught:
        speclab.generate(pair, VARIANTS["chain"], [1, 2, 3], max_new_tokens=12, check=True)
    assert "token 1 " in str(caught.value)
