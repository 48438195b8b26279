"""The tree attention mask: who sees whom, expected against given, and what lies beyond the candidates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from view_samples import five_nodes, one_node, steps, words

from speclab.trace.records import ExtraRow, Step
from speclab.views import attention_mask
from speclab.views.attention_mask import PREFIX

MODES = ("folded", "full", "compare")


def wrong() -> Step:
    step = five_nodes()
    given_mask = step.mask.copy()
    given_mask[3, 2], given_mask[4, 1] = True, False
    return replace(step, mask=given_mask)


def test_categories_of_five_nodes():
    grid = attention_mask.categories(five_nodes())
    assert grid.shape == (5, 17)
    assert (grid[:, :12] == PREFIX).all()
    rows = [[3, 0, 0, 0, 0], [2, 3, 0, 0, 0], [2, 0, 3, 0, 0], [2, 2, 0, 3, 0], [2, 2, 0, 0, 3]]
    assert grid[:, 12:].tolist() == rows


@settings(max_examples=20)
@given(steps())
def test_any_mask_given_as_expected_is_said_to_be(step):
    assert (attention_mask.categories(step)[:, step.prefix_length :] > 0).tolist() == step.mask.tolist()
    assert not np.any(attention_mask.mismatches(step))
    assert all("given = expected" in attention_mask.mask_svg(step, mode=mode) for mode in MODES)


@pytest.mark.parametrize("mode", MODES)
def test_mismatches_are_told_in_picture_words_and_table(mode):
    missing, extra = attention_mask.mismatches(wrong())
    assert (np.argwhere(missing).tolist(), np.argwhere(extra).tolist()) == ([[4, 1]], [[3, 2]])
    for said in (attention_mask.mask_svg(wrong(), mode=mode), attention_mask.summary(wrong())):
        assert "given ≠ expected: 1 hidden that should be seen, 1 seen that should be hidden" in said
    assert attention_mask.mask_svg(wrong(), mode=mode) != attention_mask.mask_svg(five_nodes(), mode=mode)
    assert words(attention_mask.table(wrong())).count("differs") == 2


def test_a_window_narrows_the_band():
    step = replace(five_nodes(), prefix_seen=(8, 7, 7, 6, 6))
    assert "6 to 8 of 12 prefix tokens" in attention_mask.summary(step)
    assert (attention_mask.categories(step)[:, :12] == PREFIX).sum(axis=1).tolist() == [8, 7, 7, 6, 6]


def test_the_sentence_counts_and_rows_that_are_no_candidates_stand_in_the_table():
    assert "1 row sees the prefix of 9 and 1 of 1 tree entries" in attention_mask.summary(one_node())
    step = replace(five_nodes(), extra=(ExtraRow(3, 1, (0, 5), 12, 1), ExtraRow(4, 2, (0, 5, 6), 12, 1)))
    assert "2 further rows are no candidates" in attention_mask.summary(step)
    table = words(attention_mask.table(step))
    assert (table.count("as expected"), table.count("no candidate")) == (5, 2)
    assert "0, 5, 6" in table
