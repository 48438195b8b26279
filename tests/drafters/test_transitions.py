"""Tables of transitions against a dict of dicts; Token Recycling's template."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import transitions as reference
from support.records import paths_of
from support.table_runner import TableRunner, mixed_probs, random_probs, table_pair

import speclab
from speclab.drafters import transitions
from speclab.drafters.token_recycling import LEVELS, template
from speclab.drafters.transitions import Rows, TransitionTable
from speclab.models.answer import Answer

VOCAB = 9
WIDTH = 4
BATCHES = st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 12)), max_size=8)
PROBS = mixed_probs(random_probs(VOCAB, 3), lambda path: random_probs(VOCAB, 4)(path[-1:]), 0.8)
"""What comes next depends mostly on the last token, so that a table of transitions is often right."""


def batch(seed: int, rows: int) -> tuple[list[int], list[int], torch.Tensor]:
    random = np.random.default_rng(seed)
    previous = random.integers(-1, VOCAB, rows).tolist()
    return (
        previous,
        random.integers(0, VOCAB, rows).tolist(),
        torch.tensor(random.normal(0, 3, (rows, VOCAB))),
    )


def learned(table: TransitionTable, batches) -> TransitionTable:
    for seed, rows in batches:
        previous, tokens, logits = batch(seed, rows)
        table.add(Rows(previous, tokens, *Answer(logits).topk(WIDTH)))
    return table


def contents(table: TransitionTable) -> dict:
    return {
        (before, token): table.successors(before, token)
        for before in range(-1, VOCAB)
        for token in range(VOCAB)
    }


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
            assert [*successors.tokens] == [*expected]
            assert [*successors.probs] == pytest.approx([*expected.values()], rel=1e-5)
    assert table.sizes["table_rows"] == len({key for key in plain.after if len(key) == 1})
    assert table.sizes["bigrams"] == len({key for key in plain.after if len(key) == 2})


def test_impossible_and_unknown_tokens_are_not_successors():
    table = TransitionTable(3)
    ids = np.array([[1, 0, 2], [-1, -1, -1]])
    log_probs = np.array([[-0.3, -1.3, -np.inf], [0, 0, 0]], np.float32)
    table.add(Rows([-1, -1], [0, 1], ids, log_probs))
    assert table.successors(-1, 0).tokens == [1, 0]
    assert not table.successors(-1, 1).tokens
    assert table.sizes["table_rows"] == 1


# The table of a drafter


def lone():
    return table_pair(PROBS, None, VOCAB)


def test_a_long_prompt_is_learned_in_chunks(monkeypatch):
    """The last row's logits, every row and pair in the table, and the cache as one pass leaves it."""
    monkeypatch.setattr(transitions, "PREFILL_ROWS", 2)
    prompt = [1, 2, 3, 4, 5, 6, 7]
    runner = TableRunner(PROBS, VOCAB)
    drafter = speclab.Goose().drafter(lone())
    answer = drafter.prefill(runner, prompt)
    assert answer.row(0).tolist() == pytest.approx(reference.logs(PROBS(tuple(prompt))), abs=1e-4)
    assert (runner.tokens, runner.calls) == (prompt, 4)
    assert [*drafter.table.after_pair] == [*zip([-1, *prompt], prompt, strict=False)]


# Token Recycling


def test_templates_have_the_papers_levels_and_smaller_ones_are_part_of_the_larger():
    """As (rank, rank, …) paths."""

    def paths(budget):
        nodes = [()]
        for parent, rank in template(budget, 8):
            nodes.append((*nodes[parent], rank))
        return set(nodes)

    assert Counter(map(len, paths(81))) == {0: 1, **dict(enumerate(LEVELS, start=1))}
    for budget in (1, 2, 13, 25, 41, 60, 81):
        assert len(paths(budget)) == budget
        assert paths(budget) <= paths(81)


@pytest.mark.parametrize("budget", [13, 81])
def test_every_iteration_is_the_papers(budget):
    """The table of prefill and all rows, as a dict of dicts; the tree filled from it."""
    strategy = speclab.TokenRecycling(node_budget=budget, successors=5)
    session = speclab.Session(lone(), strategy, [1, 2, 3, 1, 2], max_new_tokens=30)
    plain = reference.Table(5)
    text = list(session.prompt_ids)
    rows = [PROBS(tuple(text[: end + 1])) for end in range(len(text))]
    plain.harvest([-1, *text[:-1]], text, [reference.logs(row) for row in rows])
    while not session.done:
        text = session.prompt_ids + session.token_ids
        step = session.step()
        paths = list(paths_of(step.tree))
        assert paths[1:] == reference.static_tree(plain, text, template(budget, 5), 1000)
        accepted = {0, *step.accepted}
        for node in sorted(range(len(step.tree)), key=accepted.__contains__):
            path = (*text, *paths[node])
            plain.harvest([path[-2]], [path[-1]], [reference.logs(PROBS(path))])
        assert step.adaptation.after["table_rows"] == len(plain.after)
    assert session.metrics.counts.accepted > 5
