"""The transition table, what a drafter learns into it, and Token Recycling's tree, by hand."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from support.records import paths_of
from support.table_runner import TableRunner, random_probs, table_pair

import speclab
from speclab.drafters import transitions
from speclab.drafters.base import Context, Outcome
from speclab.drafters.token_recycling import LEVELS, template
from speclab.drafters.transitions import Rows, TransitionTable
from speclab.models.answer import Answer
from speclab.tree import DraftTree

VOCAB = 9
PROBS = random_probs(VOCAB, 3)
PAIR = table_pair(PROBS, None, VOCAB)


def rows(*entries) -> Rows:
    """Of each row the token before, the token, and its two most probable next ones."""
    before, tokens, after = zip(*entries, strict=True)
    return Rows(before, tokens, np.array(after), np.log(np.full((len(tokens), 2), 0.5)))


def test_the_newest_row_of_a_token_and_of_a_pair_counts_and_the_oldest_pair_goes(monkeypatch):
    monkeypatch.setattr(transitions, "MOST_PAIRS", 3)
    table = TransitionTable(2, pairs=True)
    table.add(rows((-1, 5, [6, 7]), (5, 6, [7, 8])))
    table.add(rows((4, 5, [8, -1])))
    table.add(rows((3, 6, [2, 1])))
    pairs = [(-1, 5), (4, 5), (5, 6), (0, 6), (1, 2)]
    assert [[*table.successors(*pair).tokens] for pair in pairs] == [[8], [8], [7, 8], [2, 1], []]
    assert table.sizes == {"table_rows": 2, "bigrams": 3}


def test_impossible_and_unknown_tokens_are_not_successors():
    table = TransitionTable(3)
    ids = np.array([[1, 0, 2], [-1, -1, -1]])
    log_probs = np.array([[-0.3, -1.3, -np.inf], [0, 0, 0]], np.float32)
    table.add(Rows([-1, -1], [0, 1], ids, log_probs))
    assert table.successors(-1, 0).tokens == [1, 0]
    assert not table.successors(-1, 1).tokens
    assert table.sizes["table_rows"] == 1


def test_a_long_prompt_is_learned_in_chunks(monkeypatch):
    """The last row's logits, every row and pair in the table, and the cache as one pass leaves it."""
    monkeypatch.setattr(transitions, "PREFILL_ROWS", 2)
    prompt = [1, 2, 3, 4, 5, 6, 7]
    runner = TableRunner(PROBS, VOCAB)
    drafter = speclab.Goose().drafter(PAIR)
    answer = drafter.prefill(runner, prompt)
    assert answer.row(0).tolist() == pytest.approx(np.log(PROBS(tuple(prompt))), abs=1e-4)
    assert (runner.tokens, runner.calls) == (prompt, 4)
    assert [*drafter.table.after_pair] == [*zip([-1, *prompt], prompt, strict=False)]


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


def test_every_row_is_learned_the_accepted_path_last_and_a_tree_is_filled_by_rank():
    drafter = speclab.TokenRecycling(node_budget=5, successors=2).drafter(PAIR)
    context = Context([1, 2], 9, lambda: None)
    assert len(drafter.draft(context).tree) == 1, "an empty table"
    # token 3 was accepted below the root, and rejected below 4 with other successors
    tree = DraftTree.of([2, 3, 4, 3], [-1, 0, 0, 2], [0.0] * 4, "transition")
    logits = torch.zeros(4, VOCAB)
    for row, (first, second) in enumerate([(3, 4), (5, 6), (1, 0), (7, 8)]):
        logits[row, first] = 2
        logits[row, second] = 1
    answer = Answer(logits)
    adaptation = drafter.learn(Outcome(tree, (1,), (3, 5), answer, answer[4:]))
    assert adaptation.after["table_rows"] == 3
    assert [*paths_of(drafter.draft(context).tree)] == [(), (3,), (4,), (3, 5), (3, 6)]
