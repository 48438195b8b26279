from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from drawn import steps
from hypothesis import given, settings
from hypothesis import strategies as st
from picture import HTML, check_svg, parse
from view_samples import five_nodes, large, odd_tokens, one_node

from speclab.trace.records import ExtraRow
from speclab.views import attention_mask


def test_rows_that_are_no_candidates_are_told_and_stand_in_the_table():
    step = replace(five_nodes(), extra=(ExtraRow(3, 1, (0, 5), 12, 1), ExtraRow(4, 2, (0, 5, 6), 12, 1)))
    assert attention_mask.summary(step) == attention_mask.summary(five_nodes()) + " 2 further rows are no candidates."
    table = attention_mask.table(step)
    parse(table, HTML)
    assert (table.count("as expected"), table.count("no candidate")) == (5, 2)
    assert "0, 5, 6" in table


def test_categories_of_five_nodes():
    grid = attention_mask.categories(five_nodes())
    assert grid.shape == (5, 17)
    assert (grid[:, :12] == attention_mask.PREFIX).all()
    assert grid[:, 12:].tolist() == [
        [3, 0, 0, 0, 0],
        [2, 3, 0, 0, 0],
        [2, 0, 3, 0, 0],
        [2, 2, 0, 3, 0],
        [2, 2, 0, 0, 3],
    ]


def _cells(svg: str, size: int) -> np.ndarray:
    """The mask that the strokes of the picture draw."""
    paths = re.findall(r'd="((?:M\d+ \d+h\d+)+)" transform="translate\(0 .5\)" style="stroke:(?!var\(--jp-layout)', svg)
    runs = [tuple(map(int, run)) for path in paths for run in re.findall(r"M(\d+) (\d+)h(\d+)", path)]
    cells = np.zeros((size, max(x + length for x, _, length in runs)), dtype=np.int64)
    for x, y, length in runs:
        cells[y, x : x + length] += 1
    return cells


@settings(max_examples=20)
@given(steps(), st.sampled_from(["folded", "compare", "full"]), st.data())
def test_pictures_are_well_formed_and_draw_each_entry_once(step, mode, data):
    selected = data.draw(st.none() | st.integers(0, len(step.tree) - 1))
    svg = attention_mask.mask_svg(step, selected, mode)
    check_svg(svg)
    drawn = _cells(svg, len(step.tree))
    assert (drawn == (attention_mask.categories(step) > 0 if mode == "full" else step.mask)).all()
    assert "given = expected" in svg


def _wrong():
    step = five_nodes()
    given_mask = step.mask.copy()
    given_mask[3, 2], given_mask[4, 1] = True, False
    return replace(step, mask=given_mask)


def test_mismatches_are_marked_and_told():
    missing, extra = attention_mask.mismatches(_wrong())
    assert np.argwhere(missing).tolist() == [[4, 1]]
    assert np.argwhere(extra).tolist() == [[3, 2]]
    svg = attention_mask.mask_svg(_wrong(), mode="compare")
    check_svg(svg)
    assert "M2.15 3.15l.7 .7m0 -.7l-.7 .7" in svg
    assert "M1.1 4.1h.8v.8h-.8z" in svg
    for said in (svg, attention_mask.mask_svg(_wrong()), attention_mask.summary(_wrong())):
        assert "given ≠ expected: 1 hidden that should be seen, 1 seen that should be hidden" in said
    assert attention_mask.table(_wrong()).count("differs from the ancestor closure") == 2


def test_a_window_narrows_the_band():
    step = replace(five_nodes(), prefix_seen=(8, 7, 7, 6, 6))
    assert "the newest 6 to 8 of 12 prefix tokens" in attention_mask.summary(step)
    check_svg(attention_mask.mask_svg(step))
    assert (attention_mask.categories(step)[:, :12] == attention_mask.PREFIX).sum(axis=1).tolist() == [8, 7, 7, 6, 6]


@pytest.mark.parametrize("mode", ["folded", "full", "compare"])
def test_pictures_stay_small(mode):
    assert len(attention_mask.mask_svg(large(), 100, mode)) < 60_000


def test_tables_and_summaries():
    for step in (one_node(), five_nodes(), odd_tokens()):
        parse(attention_mask.table(step), HTML)
    assert attention_mask.summary(one_node()) == (
        "Mask: 1 row sees the prefix of 9 and 1 of 1 tree entries; given = expected (the ancestor closure)."
    )
