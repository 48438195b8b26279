from __future__ import annotations

from dataclasses import replace

import pytest
from drawn import steps
from hypothesis import given, settings
from hypothesis import strategies as st
from picture import HTML, check_svg, parse, texts
from view_samples import five_nodes, large, sixty_nodes

from speclab.files import byte_count
from speclab.trace.records import CacheRecord
from speclab.views import cache_slots, playback
from speclab.views.cache_slots import Strip
from speclab.views.playback import WHOLE, PlaybackPosition


@settings(max_examples=20)
@given(steps(), st.integers(0, 20), st.data())
def test_pictures_are_well_formed_at_every_position(step, prompt, data):
    position = data.draw(st.sampled_from(playback.positions(step)))
    selected = data.draw(st.none() | st.integers(0, len(step.tree) - 1))
    svg = cache_slots.cache_svg(step, selected, prompt_length=prompt, position=position)
    check_svg(svg)
    assert ("after the commit" in svg) == position.reached("commit")
    assert "✗" not in svg
    parse(cache_slots.table(step) + cache_slots.slots_table(step), HTML)


@settings(max_examples=20)
@given(steps())
def test_states_add_up(step):
    for record in step.caches:
        strip = Strip(record, step.prefix_length, 5, WHOLE)
        before, after = strip.states(after=False), strip.states(after=True)
        assert len(before) == record.before + record.written
        assert len(after) == record.after
        assert before.count("kept") == after.count("kept") == len(record.kept)
        assert before.count("prompt") == min(5, step.prefix_length)
        assert sorted(strip.landed().values()) == list(range(record.after - len(record.kept), record.after))


def test_five_nodes_slot_by_slot():
    target = Strip(five_nodes().caches[0], 12, 8, WHOLE)
    assert target.states(after=False) == ["prompt"] * 8 + ["committed"] * 4 + [
        "kept",
        "kept",
        "dropped",
        "kept",
        "dropped",
    ]
    assert target.states(after=True) == ["prompt"] * 8 + ["committed"] * 4 + ["kept"] * 3
    assert target.landed() == {12: 12, 13: 13, 15: 14}
    svg = cache_slots.cache_svg(five_nodes(), selected=3, prompt_length=8)
    assert "moved: 15→14" in svg
    assert svg.count("stroke-width:2") == 2, "the node before and after"


def test_before_the_walk_rows_are_only_speculative():
    strip = Strip(five_nodes().caches[0], 12, 0, PlaybackPosition("verify"))
    assert strip.states(after=False)[12:] == ["speculative"] * 5
    assert len(Strip(five_nodes().caches[0], 12, 0, PlaybackPosition("draft")).states(after=False)) == 12


def test_rebuilt_and_caught_up_rows_are_told_apart():
    step = five_nodes()
    rebuilt = replace(step.caches[0], kept=(), moved=())
    behind = replace(step.caches[1], before=3, written=11)
    step = replace(step, caches=(rebuilt, behind))
    assert Strip(rebuilt, 12, 0, WHOLE).states(after=True)[12:] == ["rebuilt"] * 3
    assert Strip(behind, 12, 0, WHOLE).states(after=False) == ["committed"] * 3 + ["caught up"] * 9 + ["kept"] * 2
    labels = texts(check_svg(cache_slots.cache_svg(step)))
    assert labels.count("r") == 4
    assert "committed, caught up now" in labels


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
    svg = cache_slots.cache_svg(step)
    check_svg(svg)
    assert "✗" in svg
    assert "checks FAIL" in cache_slots.summary(step)
    assert "NO" in cache_slots.table(step)


def test_long_prefixes_fold_and_stay_small():
    svg = cache_slots.cache_svg(large(), prompt_length=4000)
    assert "slots 0 to 4031: committed, 4000 of them the prompt" in svg
    assert len(svg) < 60_000
    assert len(cache_slots.cache_svg(sixty_nodes())) < 30_000


def test_no_cache_and_sizes():
    step = replace(five_nodes(), caches=())
    check_svg(cache_slots.cache_svg(step))
    assert cache_slots.summary(step) == "Caches: none."
    sizes = [byte_count(n) for n in (0, 1023, 1024, 5 * 1024**2, 3 * 1024**3, 2 * 1024**4)]
    assert sizes == ["0 B", "1023 B", "1.0 KiB", "5.0 MiB", "3.0 GiB", "2048.0 GiB"]
    assert "Target cache: 12 slots, 5 written, 3 kept, 1 moved, 15 after the commit (300.0 KiB); checks hold." in (
        cache_slots.summary(five_nodes())
    )
    assert isinstance(five_nodes().caches[0], CacheRecord)
