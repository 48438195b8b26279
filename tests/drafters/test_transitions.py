"""The table of transitions against a dict of dicts, going back in it, and tables that are carried over."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import transitions as reference
from table_runner import TableRunner, mixed_probs, random_probs, table_pair

import speclab
from speclab.drafters import transitions
from speclab.drafters.transitions import Rows, TransitionTable
from speclab.models.answer import Answer

VOCAB, WIDTH = 9, 4
BATCHES = st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 12)), max_size=8)


def batch(seed: int, rows: int) -> tuple[list[int], list[int], torch.Tensor]:
    random = np.random.default_rng(seed)
    previous = random.integers(-1, VOCAB, rows).tolist()
    return previous, random.integers(0, VOCAB, rows).tolist(), torch.tensor(random.normal(0, 3, (rows, VOCAB)))


def learned(table: TransitionTable, batches) -> TransitionTable:
    for seed, rows in batches:
        previous, tokens, logits = batch(seed, rows)
        table.add(Rows(previous, tokens, *Answer(logits).topk(WIDTH)))
    return table


def contents(table: TransitionTable) -> dict:
    return {(before, token): table.successors(before, token) for before in range(-1, VOCAB) for token in range(VOCAB)}


@pytest.mark.parametrize("most", [3, 1000])
@given(batches=BATCHES, pairs=st.booleans())
def test_a_table_is_a_dict_of_dicts(most, batches, pairs):
    """The last row of a token counts; of too many pairs the first in is the first out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transitions, "MOST_PAIRS", most)
        table = learned(TransitionTable(WIDTH, pairs=pairs), batches)
    plain = reference.Table(WIDTH, most if pairs else 0)
    for seed, rows in batches:
        previous, tokens, logits = batch(seed, rows)
        plain.harvest(previous, tokens, logits.tolist())
    if most == 1000:
        for (before, token), successors in contents(table).items():
            expected = plain.successors(before, token)
            assert successors.tokens == [*expected] or (not expected and not successors.tokens)
            assert [*successors.probs] == pytest.approx([*expected.values()], rel=1e-5)
    assert table.sizes["table_rows"] == len({key for key in plain.after if len(key) == 1})
    assert table.sizes["bigrams"] == len({key for key in plain.after if len(key) == 2})


@given(BATCHES, BATCHES)
def test_going_back_leaves_a_table_that_never_learned_more(before, after):
    table = learned(TransitionTable(WIDTH, pairs=True), before)
    state = table.snapshot()
    then = contents(learned(table, after))
    other = TransitionTable(WIDTH, pairs=True)
    other.restore(state)
    assert contents(other) == contents(learned(TransitionTable(WIDTH, pairs=True), before))
    assert contents(table) == then, "another table that goes back leaves this one as it is"
    table.restore(state)
    assert contents(table) == contents(other)
    assert contents(learned(table, after)) == contents(learned(other, after)) == then


def test_impossible_and_unknown_tokens_are_not_successors():
    table = TransitionTable(3)
    ids, log_probs = np.array([[1, 0, 2], [-1, -1, -1]]), np.array([[-0.3, -1.3, -np.inf], [0, 0, 0]], np.float32)
    table.add(Rows([-1, -1], [0, 1], ids, log_probs))
    assert table.successors(-1, 0).tokens == [1, 0]
    assert not table.successors(-1, 1).tokens
    assert table.sizes["table_rows"] == 1


# The table of a drafter

PROBS = mixed_probs(random_probs(VOCAB, 3), lambda path: random_probs(VOCAB, 4)(path[-1:]), 0.8)
CARRIED = speclab.TokenRecycling(carry="carried", node_budget=13)


def lone():
    return table_pair(PROBS, None, VOCAB)


def rows_known(step) -> int:
    return step.adaptation.before["table_rows"]


@pytest.mark.parametrize("rows", [2, 100])
def test_a_long_prompt_is_learned_in_chunks(rows, monkeypatch):
    """The last row's logits, every row in the table, and the cache as one pass leaves it."""
    monkeypatch.setattr(transitions, "PREFILL_ROWS", rows)
    prompt, runner = [1, 2, 3, 4, 5, 6, 7], TableRunner(PROBS, VOCAB)
    drafter = speclab.TokenRecycling().drafter(lone())
    answer = drafter.prefill(runner, prompt)
    assert answer.row(0).tolist() == pytest.approx(reference.logs(PROBS(tuple(prompt))), abs=1e-4)
    assert runner.tokens == prompt
    assert runner.calls == -(-len(prompt) // rows)
    assert len(drafter.table.after_token) == 7


def test_a_cold_table_knows_nothing_of_the_prompt_before_and_a_carried_one_does():
    for strategy, pair in ((speclab.TokenRecycling(), lone()), (CARRIED, lone())):
        first = speclab.Session(pair, strategy, [1, 2, 3, 4, 5, 6], max_new_tokens=20)
        first.run()
        known = first.steps[-1].adaptation.after["table_rows"]
        step = speclab.Session(pair, strategy, [7], max_new_tokens=8).step()
        assert rows_known(step) == (1 if strategy.carry == "cold" else known)
    assert rows_known(speclab.Session(lone(), CARRIED, [7], max_new_tokens=8).step()) == 1, "another pair"


def test_what_a_stopped_iteration_learned_is_not_carried(monkeypatch):
    pair = lone()
    session = speclab.Session(pair, CARRIED, [1, 2, 3, 4, 5, 6], max_new_tokens=20)
    known = session.step().adaptation.after["table_rows"]

    def stopped(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("speclab.engine.session.record", stopped)
        with pytest.raises(KeyboardInterrupt):
            session.step()
    assert rows_known(speclab.Session(pair, CARRIED, [1], max_new_tokens=4).step()) == known


def test_sessions_with_a_carried_table_do_not_disturb_each_other():
    pair = lone()
    first = speclab.Session(pair, CARRIED, [1, 2, 3], max_new_tokens=20)
    first.step()
    alone = speclab.Session(lone(), CARRIED, [1, 2, 3], max_new_tokens=20)
    speclab.Session(pair, CARRIED, [8, 7, 6, 5], max_new_tokens=20).run()
    alone.step()
    trees = [step.tree.token.tolist() for step in (first.step(), first.step())]
    assert trees == [step.tree.token.tolist() for step in (alone.step(), alone.step())]
    fork = first.fork(at=1)
    assert trees == [step.tree.token.tolist() for step in (fork.step(), fork.step())]
