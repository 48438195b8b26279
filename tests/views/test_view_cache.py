"""What the KV caches hold, slot by slot, before and after the commit; a broken cache is called broken."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from view_samples import five_nodes, steps, words

from speclab.files import byte_count
from speclab.views import cache_slots
from speclab.views.cache_slots import Strip
from speclab.views.playback import WHOLE, PlaybackPosition


@settings(max_examples=20)
@given(steps())
def test_states_add_up(step):
    assert "✗" not in cache_slots.cache_svg(step)
    for record in step.caches:
        strip = Strip(record, step.prefix_length, 5, WHOLE)
        before, after = strip.during, strip.after
        assert len(before) == record.before + record.written
        assert len(after) == record.after
        assert before.count("kept") == after.count("kept") == len(record.kept)
        assert before.count("prompt") == min(5, step.prefix_length)
        assert sorted(strip.landed().values()) == list(range(record.after - len(record.kept), record.after))


def test_five_nodes_slot_by_slot():
    record, past = five_nodes().caches[0], ["prompt"] * 8 + ["committed"] * 4
    target = Strip(record, 12, 8, WHOLE)
    assert target.during == [*past, "kept", "kept", "dropped", "kept", "dropped"]
    assert target.after == past + ["kept"] * 3
    assert target.landed() == {12: 12, 13: 13, 15: 14}
    assert "15→14" in words(cache_slots.cache_svg(five_nodes(), selected=3, prompt_length=8))
    assert Strip(record, 12, 8, PlaybackPosition("verify")).during[12:] == ["speculative"] * 5
    assert Strip(record, 12, 8, PlaybackPosition("draft")).during == past


def test_rebuilt_and_caught_up_rows_are_told_apart():
    step = five_nodes()
    rebuilt, behind = replace(step.caches[0], kept=(), moved=()), replace(step.caches[1], before=3, written=11)
    assert Strip(rebuilt, 12, 0, WHOLE).after[12:] == ["rebuilt"] * 3
    assert Strip(behind, 12, 0, WHOLE).during == ["committed"] * 3 + ["caught up"] * 9 + ["kept"] * 2
    assert "caught up now" in words(cache_slots.cache_svg(replace(step, caches=(rebuilt, behind))))


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ({"after": 16}, 0), ({"kept": (12, 15, 13)}, 1), ({"moved": ((15, 14), (13, 14))}, 2),
        ({"moved": ((14, 13),)}, 2), ({"capacity": 16}, 3),
    ],
)  # fmt: skip
def test_a_broken_cache_is_called_broken(change, broken):
    record = replace(five_nodes().caches[0], **change)
    assert not cache_slots.checks(record)[broken][1]
    step = replace(five_nodes(), caches=(record,))
    assert "✗" in cache_slots.cache_svg(step)
    assert "FAIL" in cache_slots.summary(step)
    assert "NO" in cache_slots.table(step)


def test_the_sentence_has_the_figures_and_sizes_have_units():
    assert cache_slots.summary(replace(five_nodes(), caches=())) == "Caches: none."
    for figure in ("12 slots", "5 written", "3 kept", "1 moved", "15 after the commit (300.0 KiB)"):
        assert figure in cache_slots.summary(five_nodes())
    assert [byte_count(n) for n in (0, 1023, 1024, 5 << 20, 2 << 40)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "5.0 MiB",
        "2048.0 GiB",
    ]
