"""What the KV caches hold, slot by slot, before and after the commit; a broken cache is called broken."""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from view_samples import five_nodes, large, odd_tokens, sixty_nodes, steps, words

from speclab.files import byte_count
from speclab.views import cache_slots, playback
from speclab.views.cache_slots import STATES, Strip, cache_spec
from speclab.views.figures import figure
from speclab.views.playback import WHOLE, PlaybackPosition


def rows_of(spec) -> list[list[str]]:
    """The states of the slots of every row, as they are drawn."""
    names = [*STATES, None]
    codes = b64decode(figure(spec).data[0].z["bdata"])
    return [[names[code] for code in codes[at : at + 64] if names[code]] for at in range(0, len(codes), 64)]


def states_of(spec) -> list[str]:
    return [state for row in rows_of(spec) for state in row]


def arrows_of(spec) -> dict:
    return next(trace for trace in spec["data"] if trace.get("mode") == "lines+markers")


def texts_of(spec) -> list[dict]:
    return [trace for trace in spec["data"] if trace.get("mode") == "text"]


@settings(max_examples=20)
@given(steps(), st.data())
def test_states_add_up(step, data):
    assert "✗" not in cache_slots.table(step)
    for record in step.caches:
        strip = Strip(record, step.prefix_length, 5, WHOLE)
        before, after = strip.during, strip.after
        assert len(before) == record.before + record.written
        assert len(after) == record.after
        assert before.count("kept") == after.count("kept") == len(record.kept)
        assert before.count("prompt") == min(5, step.prefix_length)
        assert sorted(strip.landed().values()) == list(range(record.after - len(record.kept), record.after))
    for compact in (False, True):
        spec = cache_spec(step, data.draw(st.integers(0, len(step.tree) - 1)), prompt_length=5, compact=compact)
        drawn = states_of(spec)
        caches = step.caches[:1] if compact else step.caches
        assert drawn.count("kept") == 2 * sum(len(record.kept) for record in caches)
        assert arrows_of(spec)["x"].count(None) == sum(len(record.moved) for record in caches)


def test_five_nodes_slot_by_slot():
    record, past = five_nodes().caches[0], ["prompt"] * 8 + ["committed"] * 4
    target = Strip(record, 12, 8, WHOLE)
    assert target.during == [*past, "kept", "kept", "dropped", "kept", "dropped"]
    assert target.after == past + ["kept"] * 3
    assert target.landed() == {12: 12, 13: 13, 15: 14}
    assert "15→14" in words(cache_slots.table(five_nodes()))
    assert Strip(record, 12, 8, PlaybackPosition("verify")).during[12:] == ["speculative"] * 5
    assert Strip(record, 12, 8, PlaybackPosition("draft")).during == past
    rows = rows_of(cache_spec(five_nodes(), prompt_length=8))
    assert (rows[1][:17], rows[3][:15]) == (target.during, target.after)


def test_a_slot_names_its_node_is_framed_where_it_was_and_is_and_its_row_moves():
    spec = cache_spec(five_nodes(), 3, prompt_length=8)
    signs = {place: one for trace in texts_of(spec) for place, one in zip(
        zip(trace["x"], trace["y"], strict=True),
        zip(trace["text"], trace["customdata"], trace["hovertext"], strict=True), strict=True,
    )}  # fmt: skip
    assert [signs[15, 1][:2], signs[14, 3][:2]] == [("3", 3), ("3", 3)]
    assert "slot 15: node 3 '␣woman', kept, moved to slot 14" in signs[15, 1][2]
    assert signs[14, 1][:2] == ("×", 2)
    assert [(shape["x0"], shape["y0"]) for shape in spec["layout"]["shapes"]] == [(14.5, 0.5), (13.5, 2.5)]
    arrows = arrows_of(spec)
    assert (arrows["x"], arrows["y"]) == ([15, 14, None], [1.5, 2.5, None])
    for text in texts_of(cache_spec(odd_tokens(), 1)):
        assert all(not {"<", ">", "$"} & {*said} for said in text["hovertext"])


def test_nothing_jumps_from_phase_to_phase_and_rows_move_at_commit():
    for step in (five_nodes(), sixty_nodes(), large()):
        ticks = playback.positions(step)
        drawn = [cache_spec(step, 0, position=position) for position in ticks]
        assert len({spec["layout"]["height"] for spec in drawn}) == 1
        assert len({len(rows_of(spec)) for spec in drawn}) == 1
        assert [bool(arrows_of(spec)["x"]) for spec in drawn] == [
            position.reached("commit") for position in playback.positions(step)
        ]


def test_long_prompts_are_folded_and_pictures_stay_small():
    spec = cache_spec(large(), 4, prompt_length=4000)
    assert spec["layout"]["height"] < 420
    assert len(json.dumps(spec)) < 30_000
    assert any("0 to 4031" in note["text"] for note in spec["layout"]["annotations"])
    small = cache_spec(large(), 4, compact=True)
    assert 80 <= small["layout"]["height"] <= 160
    assert states_of(small).count("kept") == 2 * len(large().caches[0].kept)


def test_rebuilt_and_caught_up_rows_are_told_apart():
    step = five_nodes()
    rebuilt, behind = replace(step.caches[0], kept=(), moved=()), replace(step.caches[1], before=3, written=11)
    assert Strip(rebuilt, 12, 0, WHOLE).after[12:] == ["rebuilt"] * 3
    assert Strip(behind, 12, 0, WHOLE).during == ["committed"] * 3 + ["caught up"] * 9 + ["kept"] * 2
    assert "caught up now" in words(cache_slots.key_html(replace(step, caches=(rebuilt, behind))))
    assert "rebuilt" in states_of(cache_spec(replace(step, caches=(rebuilt, behind))))


@pytest.mark.parametrize(
    ("change", "broken"),
    [({"after": 16}, 0), ({"kept": (12, 15, 13)}, 1), ({"moved": ((15, 14), (13, 14))}, 2), ({"capacity": 16}, 3),
     ({"moved": ((14, 13),)}, 2)],
)  # fmt: skip
def test_a_broken_cache_is_called_broken(change, broken):
    record = replace(five_nodes().caches[0], **change)
    step = replace(five_nodes(), caches=(record,))
    assert not cache_slots.checks(record)[broken][1]
    assert cache_slots.table(step).count("✗") == 1
    figure(cache_spec(step, 3))
    assert "FAIL" in cache_slots.summary(step)


def test_the_sentence_has_the_figures_and_sizes_have_units():
    bare = replace(five_nodes(), caches=())
    assert (cache_slots.summary(bare), cache_spec(bare)) == ("Caches: none.", {})
    for said in ("12 slots", "5 written", "3 kept", "1 moved", "15 after the commit (300.0 KiB)"):
        assert said in cache_slots.summary(five_nodes())
    assert [byte_count(n) for n in (0, 1023, 1024, 5 << 20)] == ["0 B", "1023 B", "1.0 KiB", "5.0 MiB"]
