"""The mask that was given against the expected one, and the caches slot by slot with the rows that moved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from view_samples import SLOT_BYTES, five_nodes, large, odd_tokens, sixty_nodes, steps

from speclab.trace.records import CacheRecord, ExtraRow
from speclab.views.cache_picture import cache_lines, checks, draw_cache, slots
from speclab.views.mask_picture import ANCESTOR, EXTRA, HIDDEN, MISSING, SELF, draw_mask, mask_codes, mask_sentence
from speclab.views.phases import Position, positions
from speclab.views.theme import figure


def cells(drawn) -> list[list[int]]:
    return drawn["data"][1]["z"]


def test_cells_of_five_nodes():
    assert cells(draw_mask(five_nodes())) == [
        [SELF, 0, 0, 0, 0],
        [ANCESTOR, SELF, 0, 0, 0],
        [ANCESTOR, 0, SELF, 0, 0],
        [ANCESTOR, ANCESTOR, 0, SELF, 0],
        [ANCESTOR, ANCESTOR, 0, 0, SELF],
    ]
    assert mask_sentence(five_nodes()) == (
        "Mask: 5 rows see the prefix of 12 and 11 of 25 entries of the tree; ✓ given = expected."
    )


@settings(max_examples=15)
@given(steps())
def test_any_mask_is_drawn_as_it_was_given_and_before_the_pass_as_expected(step):
    given_mask = step.mask.copy()
    given_mask[-1, 0] ^= True
    given_mask[0, -1] ^= len(step.tree) > 1
    step = replace(step, mask=given_mask)
    codes = mask_codes(step)
    assert np.array_equal(np.isin(codes, (ANCESTOR, SELF, EXTRA)), step.mask)
    assert np.array_equal(np.isin(codes, (ANCESTOR, SELF, MISSING)), step.tree.ancestor_mask())
    for position in positions(step):
        drawn = draw_mask(step, position=position)
        seen = np.array(cells(drawn)) != HIDDEN
        if not position.reached("verify"):
            rows = len(seen)
            assert np.array_equal(seen, step.tree.ancestor_mask()[:rows, :rows])
        tips = [tip for row in drawn["data"][1]["text"] for tip in row]
        assert not any(sign in tip for tip in tips for sign in "<>$\n\u202e\x00")


def test_mismatches_have_a_colour_a_mark_and_words():
    step = five_nodes()
    wrong = step.mask.copy()
    wrong[4, 1], wrong[2, 1] = False, True
    step = replace(step, mask=wrong)
    drawn = draw_mask(step, compare=True)
    assert (cells(drawn)[4][1], cells(drawn)[2][1]) == (MISSING, EXTRA)
    dots, missing, extra = drawn["data"][2:]
    assert len(dots["x"]) == 11
    assert (missing["x"], missing["y"], extra["x"], extra["y"]) == ([1], [4], [1], [2])
    assert "✗ given ≠ expected: 1 wrongly hidden, 1 wrongly shown" in mask_sentence(step)
    figure(drawn)


def test_a_selected_node_is_framed_and_rows_that_are_no_candidates_follow():
    step = five_nodes()
    assert len(draw_mask(step, 3)["layout"]["shapes"]) == len(draw_mask(step)["layout"]["shapes"]) + 2
    window = replace(step, extra=(ExtraRow(5, 1, (0,), 12, 6),), prefix_seen=(8,) * 5)
    drawn = draw_mask(window)
    assert len(cells(drawn)) == 6
    assert "not candidates" in mask_sentence(window)
    assert "the newest 8 prefix tokens" in mask_sentence(window)
    lengths = drawn["data"][0]["x"]
    assert lengths[0] < lengths[5], "a row that sees less of the prefix has a shorter band"


def test_the_mask_is_as_wide_as_its_rows_need():
    widths = [draw_mask(make())["layout"]["width"] for make in (five_nodes, sixty_nodes, large)]
    assert all(120 < width < 320 for width in widths)
    assert all(draw_mask(make())["layout"]["height"] <= 380 for make in (five_nodes, sixty_nodes, large))
    figure(draw_mask(odd_tokens(), position=Position("draft", 1)), "dark")


def test_states_add_up_over_any_step():
    for step in (five_nodes(), sixty_nodes(), large()):
        for record in step.caches:
            during = slots(record, step.prefix_length, 5, after=False)
            after = slots(record, step.prefix_length, 5, after=True)
            assert len(during) == record.before + record.written
            assert len(after) == record.after
            assert during.count("kept") == after.count("kept") == len(record.kept)
            assert during.count("prompt") == 5
            assert during.count("dropped") == record.written - len(record.kept)


def test_five_nodes_slot_by_slot():
    step = five_nodes()
    drawn = draw_cache(step, 3, prompt_length=4)
    signs = drawn["data"][1]
    target = [sign for sign, y in zip(signs["text"], signs["y"], strict=True) if y == 1]
    assert "".join(target) == "····12×3×"
    arrow = next(trace for trace in drawn["data"] if trace.get("mode") == "lines+markers")
    assert arrow["x"][:2] == [15, 14], "node 3 moves from slot 15 to slot 14"
    assert len(drawn["layout"]["shapes"]) == 2, "its slot is framed during the pass and after the commit"
    tips = " ".join(signs["hovertext"])
    assert "node 3 ' woman'" in tips
    assert "moved to slot 14" in tips
    figure(drawn)


def test_long_prompts_are_folded_and_every_slot_of_the_pass_is_shown():
    drawn = draw_cache(large(), prompt_length=4000)
    assert any("slots 0 to" in note["text"] for note in drawn["layout"]["annotations"])
    signs = drawn["data"][1]["text"]
    assert signs.count("×") == sum(record.written - len(record.kept) for record in large().caches)


def test_rebuilt_rows_and_rows_written_late_are_told_apart():
    record = CacheRecord("draft", 10, 6, (), (), 14, 14, 64, SLOT_BYTES)
    assert (
        slots(record, 12, 4, after=False) == ["prompt"] * 4 + ["committed"] * 6 + ["written now"] * 2 + ["dropped"] * 4
    )
    assert slots(record, 12, 4, after=True)[-2:] == ["rebuilt", "rebuilt"]


def test_a_broken_cache_is_called_broken():
    record = five_nodes().caches[0]
    assert all(checks(record).values())
    assert not checks(replace(record, committed=record.committed + 1))["length"]
    assert not checks(replace(record, kept=record.kept[::-1]))["positions"]
    assert not checks(replace(record, moved=((12, 14),)))["moves"]
    assert not checks(replace(record, capacity=3))["space"]
    step = replace(five_nodes(), caches=(replace(record, capacity=3),))
    assert cache_lines(step) == [
        "Target cache: 17 → 15 slots, 300.0 KiB; 5 rows written, 3 kept, 1 moved; "
        "checks: ✓ length ✓ positions ✓ moves ✗ space."
    ]
