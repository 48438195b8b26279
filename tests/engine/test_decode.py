"""The loop on models from a table: how many passes an iteration takes, and where a text ends."""

from dataclasses import replace

import pytest
from support.records import assert_consistent
from support.refusals import refused
from support.table_runner import TableRunner, mixed_probs, random_probs, table_pair
from support.variants import PATHS, VARIANTS
from support.words import word_tokenizer

import speclab
from speclab.pair import ModelPair

VOCAB = 8
PROMPT = [1, 2, 3]
TABLE = random_probs(VOCAB, 5, low=0.5, high=2.5)
TABLE_DRAFT = mixed_probs(TABLE, random_probs(VOCAB, 6), 0.2)
every_path = pytest.mark.parametrize("strategy", PATHS.values(), ids=PATHS)


def agreeing(eos=None):
    """The draft is the target, so every path is accepted: wherever the text ends, it ends inside one."""
    return table_pair(TABLE, TABLE, VOCAB, eos=eos)


def counted(strategy):
    """(step, target calls, target rows, draft calls, draft rows) of every iteration."""
    session = speclab.Session(
        table_pair(TABLE, TABLE_DRAFT, VOCAB), strategy, PROMPT, max_new_tokens=60
    )

    def spent():
        return [
            count for each in session.pair.runners.values() for count in (each.calls, each.rows)
        ]

    counts = []
    while not session.done:
        before = spent()
        step = session.step()
        counts.append((step, *(b - a for a, b in zip(before, spent(), strict=True))))
        assert counts[-1][1::2] == (step.counts.target_calls, step.counts.draft_calls)
    return counts


def levels(step):
    return len({step.tree.depth[event.node] for event in step.events if event.kind == "expand"})


@pytest.mark.parametrize("k", [1, 4])
def test_a_chain_of_k_is_k_draft_calls_and_one_target_call(k):
    for _, calls, rows, draft_calls, draft_rows in counted(
        speclab.LinearSpeculation(draft_tokens=k)
    )[1:]:
        assert (calls, rows, draft_calls) == (1, k + 1, k)
        assert draft_rows <= k + 1, (
            "the root, k - 1 drafted tokens, and at most one token to catch up with"
        )


@pytest.mark.parametrize(
    "strategy", [speclab.FixedTree(depth=4, branching=2), speclab.DynaTree(node_budget=32)]
)
def test_a_tree_is_one_draft_call_a_level_and_one_target_call(strategy):
    for step, calls, rows, draft_calls, _ in counted(strategy):
        assert (calls, rows, draft_calls) == (1, len(step.tree), levels(step))


def test_the_papers_way_is_two_target_calls_and_a_draft_prefill():
    strategy = speclab.DynaTree(root="drafted", commit="rebuild", node_budget=64)
    for step, calls, rows, draft_calls, draft_rows in counted(strategy):
        expanded = sum(event.kind == "expand" for event in step.events)
        assert (calls, rows) == (2, len(step.tree) + len(step.committed))
        assert (draft_calls, draft_rows) == (levels(step) + 1, step.prefix_length + expanded)


def test_a_gathered_drafted_root_runs_the_bonus_token_alone():
    for step, calls, rows, *_ in counted(speclab.DynaTree(root="drafted")):
        cut = step.bonus is None
        assert (calls, rows) == (2 - cut, len(step.tree) + 1 - cut)


MOST_DRAFT_CALLS = {
    "DraftHead": 7,
    "DualDraft": 14,
    "DynaTree": 8,
    "FixedTree": 5,
    "Graft": 8,
    "LinearSpeculation": 3,
}
"""A level of each tree is one; every other strategy calls no draft."""


@pytest.mark.parametrize("name", sorted(speclab.strategies().keys() - {"DDTree"}))
def test_by_default_an_iteration_is_one_target_call_and_at_most_one_draft_call_a_level(name):
    heads = tuple(
        TableRunner(mixed_probs(TABLE, random_probs(VOCAB, seed), 0.2), VOCAB) for seed in (7, 8)
    )
    pair = replace(
        table_pair(TABLE, TABLE_DRAFT, VOCAB), heads=heads, tokenizer=word_tokenizer(VOCAB)
    )
    session = speclab.Session(pair, speclab.strategies()[name](), PROMPT, max_new_tokens=40)
    session.run()
    assert session.metrics.target_calls == session.metrics.iterations + 1, "and the prefill"
    most = max(step.counts.draft_calls for step in session.steps)
    assert most <= MOST_DRAFT_CALLS.get(name, 0)
    assert (most > 0) == (name in MOST_DRAFT_CALLS)


@every_path
def test_a_text_ends_at_eos_or_at_its_length_inside_an_accepted_path(strategy):
    whole = speclab.generate(agreeing(), strategy, PROMPT, max_new_tokens=16).token_ids
    for eos in sorted(set(whole))[:3]:
        session = speclab.Session(agreeing(eos), strategy, PROMPT, max_new_tokens=16)
        session.run()
        assert session.token_ids == whole[: whole.index(eos) + 1]
        assert (session.done, session.trace.finished) == (True, "end of text")
        for step in session.steps:
            assert_consistent(step)
        on = speclab.generate(agreeing(eos), strategy, PROMPT, max_new_tokens=16, stop_at_eos=False)
        assert on.token_ids == whole
    for count in range(1, 16):
        result = speclab.generate(agreeing(), strategy, PROMPT, max_new_tokens=count)
        assert result.token_ids == whole[:count]
        assert result.metrics.acceptance_rate <= 1.0


def test_eos_that_cuts_a_path_leaves_no_bonus():
    chain = VARIANTS["chain"]
    whole = speclab.generate(agreeing(), chain, PROMPT, max_new_tokens=9).token_ids
    inside = next(i for i in range(1, 4) if whole[i] not in whole[:i])
    step = speclab.Session(agreeing(whole[inside]), chain, PROMPT, max_new_tokens=9).step()
    assert step.committed == tuple(whole[1 : inside + 1])
    assert (step.bonus, len(step.accepted)) == (None, inside)
    assert step.nodes[inside + 1].verdict == "not reached", "chosen, but the text ended before it"


def test_check_finds_a_target_that_is_wrong_in_trees():
    class Wrong(TableRunner):
        """Right alone, wrong in a tree pass, as with a mask that shows too much."""

        def forward(self, *args):
            return super().forward(*args).roll(1, dims=-1)

    pair = ModelPair(Wrong(TABLE, VOCAB), TableRunner(TABLE_DRAFT, VOCAB), name="wrong")
    assert speclab.generate(pair, VARIANTS["chain"], PROMPT, max_new_tokens=12).token_ids
    with refused(speclab.ExactnessError, "token 1 "):
        speclab.generate(pair, VARIANTS["chain"], PROMPT, max_new_tokens=12, check=True)
