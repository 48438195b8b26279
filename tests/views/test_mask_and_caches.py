"""The mask that was given against the expected one, and the caches slot by slot with the rows that moved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from support.view_samples import SLOT_BYTES, five_nodes, large, sixty_nodes, steps

from speclab.trace.records import CacheRecord, ExtraRow
from speclab.views.cache_picture import cache_lines, checks, draw_cache, slots
from speclab.views.mask_picture import (
    ANCESTOR,
    EXTRA,
    MISSING,
    SELF,
    draw_mask,
    mask_codes,
    mask_sentence,
)
from speclab.views.theme import figure


def cells(drawn) -> list[list[int]]:
    return drawn["data"][1]["z"]


@settings(max_examples=15)
@given(steps())
def test_any_mask_is_drawn_as_it_was_given(step):
    given_mask = step.mask.copy()
    given_mask[-1, 0] ^= True
    given_mask[0, -1] ^= len(step.tree) > 1
    step = replace(step, mask=given_mask)
    codes = mask_codes(step)
    assert np.array_equal(np.isin(codes, (ANCESTOR, SELF, EXTRA)), step.mask)
    assert np.array_equal(np.isin(codes, (ANCESTOR, SELF, MISSING)), step.tree.ancestor_mask())
    assert np.array_equal(np.array(cells(draw_mask(step))), codes)


def test_a_mask_by_hand_and_its_mismatches_in_cells_marks_and_words():
    step = five_nodes()
    assert cells(draw_mask(step)) == [
        [SELF, 0, 0, 0, 0],
        [ANCESTOR, SELF, 0, 0, 0],
        [ANCESTOR, 0, SELF, 0, 0],
        [ANCESTOR, ANCESTOR, 0, SELF, 0],
        [ANCESTOR, ANCESTOR, 0, 0, SELF],
    ]
    assert "5 rows on the prefix of 12 and 11 of 25 entries" in mask_sentence(step)
    wrong = step.mask.copy()
    wrong[4, 1] = False
    wrong[2, 1] = True
    step = replace(step, mask=wrong)
    drawn = draw_mask(step)
    missing, extra = drawn["data"][2:]
    assert (missing["x"], missing["y"], extra["x"], extra["y"]) == ([1], [4], [1], [2])
    assert "1 wrongly hidden, 1 wrongly shown" in mask_sentence(step)
    assert (
        len(draw_mask(step, 3)["layout"]["shapes"]) == len(draw_mask(step)["layout"]["shapes"]) + 2
    ), "a frame"
    figure(drawn)


def test_rows_that_are_no_candidates_follow_and_a_shorter_prefix_is_a_shorter_band():
    window = replace(five_nodes(), extra=(ExtraRow(5, 1, (0,), 12, 6),), prefix_seen=(8,) * 5)
    drawn = draw_mask(window)
    assert len(cells(drawn)) == 6
    assert [bool(cell) for cell in cells(drawn)[5]] == [True, False, False, False, False, True]
    assert not any(line[5] for line in cells(drawn)[:5])
    assert "the newest 8 prefix tokens" in mask_sentence(window)
    lengths = drawn["data"][0]["x"]
    assert lengths[0] < lengths[5]


def test_states_of_slots_add_up_over_any_step():
    for step in (five_nodes(), sixty_nodes(), large()):
        for record in step.caches:
            during = slots(record, step.prefix_length, 5, after=False)
            after = slots(record, step.prefix_length, 5, after=True)
            assert len(during) == record.before + record.written
            assert len(after) == record.after
            assert during.count("kept") == after.count("kept") == len(record.kept)
            assert during.count("prompt") == 5
            assert during.count("dropped") == record.written - len(record.kept)
    rebuilt = CacheRecord("draft", 10, 6, (), (), 14, 14, 64, SLOT_BYTES)
    states = ["prompt"] * 4 + ["committed"] * 6 + ["written now"] * 2 + ["dropped"] * 4
    assert slots(rebuilt, 12, 4, after=False) == states
    assert slots(rebuilt, 12, 4, after=True)[-2:] == ["rebuilt", "rebuilt"]


def test_five_nodes_slot_by_slot_and_a_long_prompt_folded():
    drawn = draw_cache(five_nodes(), 3, prompt_length=4)
    signs = drawn["data"][1]
    target = [sign for sign, y in zip(signs["text"], signs["y"], strict=True) if y == 1]
    assert "".join(target) == "····12×3×"
    arrow = next(trace for trace in drawn["data"] if trace.get("mode") == "lines+markers")
    assert arrow["x"][:2] == [15, 14], "node 3 moves from slot 15 to slot 14"
    assert len(drawn["layout"]["shapes"]) == 2, (
        "its slot is framed during the pass and after the commit"
    )
    assert "moved to slot 14" in " ".join(signs["hovertext"])
    folded = draw_cache(large(), prompt_length=4000)
    assert any("slots 0 to" in note["text"] for note in folded["layout"]["annotations"])
    assert folded["data"][1]["text"].count("×") == sum(
        one.written - len(one.kept) for one in large().caches
    )


def test_a_broken_cache_is_called_broken():
    record = five_nodes().caches[0]
    assert all(checks(record).values())
    for name, broken in {
        "length": replace(record, committed=record.committed + 1),
        "positions": replace(record, kept=record.kept[::-1]),
        "moves": replace(record, moved=((12, 14),)),
        "space": replace(record, capacity=3),
    }.items():
        assert not checks(broken)[name]
        assert f"✗ {name}" in cache_lines(replace(five_nodes(), caches=(broken,)))[0]


def test_a_cache_of_many_slots_is_drawn_at_once():
    """A file may name 2**24 of them; what stays and what is free is folded."""
    record = replace(large().caches[0], before=2**24 - 9, capacity=2**24, after=2**24 - 5)
    huge = replace(large(), prefix_length=2**24 - 9, caches=(record,))
    assert sum(map(len, draw_cache(huge)["data"][0]["z"])) < 2000
