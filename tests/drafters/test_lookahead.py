"""Lookahead decoding by hand: a window of two columns and two levels, the pool, and the tree."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.records import paths_of

import speclab
from speclab.drafters.base import Context, Outcome
from speclab.models.answer import Answer

VOCAB = 50


def answer(*tokens) -> Answer:
    """Rows with these most probable next tokens."""
    return Answer(torch.nn.functional.one_hot(torch.tensor(tokens), VOCAB).float())


def test_the_window_moves_down_to_the_targets_answers_and_its_columns_become_guesses():
    drafter = speclab.Lookahead(window=2, ngram=3, guesses=2).drafter(None)
    drafter.window = (0, 20), (30, 31)
    draft = drafter.draft(Context([1, 2, 3], 9, lambda: None))
    assert len(draft.tree) == 1, "no n-gram starts with 3"
    assert drafter.window == ((3, 20), (30, 31))
    # the first row of the window is the root; 30 follows 3, and 31 follows 3 and 20
    assert (draft.extra.token, draft.extra.depth) == ([20, 30, 31], (1, 1, 2))
    assert draft.extra.visible.astype(int).tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 1]]
    drafter.learn(Outcome(draft.tree, (), (30,), answer(30), answer(9, 40, 41)))
    assert drafter.window == ((30, 31), (40, 41))
    assert drafter.pool.after(20) == ((31, 41),)

    # the newest n-gram comes from the text, the other one from the window
    text = [1, 2, 3, 30, 3]
    draft = drafter.draft(Context(text, 9, lambda: None))
    nodes = paths_of(draft.tree)
    assert [*nodes] == [(), (30,), (30, 3), (30, 40)]
    assert np.exp(draft.tree.log_prob).tolist() == pytest.approx([1, 1, 0.5, 0.5])
    assert [event.values.get("guesses") for event in draft.events] == [2, None, None]
    # one position is left: no deeper node, and a window of one column
    draft = drafter.draft(Context(text, 1, lambda: None))
    assert [*paths_of(draft.tree)] == [(), (30,)]
    assert (draft.extra.token, draft.extra.depth) == ([40], (1,))
