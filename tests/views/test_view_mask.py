"""The tree attention mask, expected against given, and the weights of attention that it allows."""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from view_samples import five_nodes, large, odd_tokens, one_node, sixty_nodes, steps, words

from speclab.trace.records import ExtraRow, Step
from speclab.views import attention_mask, playback
from speclab.views.attention_chart import attention_drawing, attention_summary, picked
from speclab.views.attention_mask import (
    ABSENT,
    ANCESTOR,
    EXTRA,
    HIDDEN,
    MISSING,
    PREFIX,
    SEEN,
    SELF,
    WRONG_COLOR,
    categories,
    mask_spec,
)
from speclab.views.figures import figure
from speclab.views.playback import PlaybackPosition

MODES = ("folded", "full", "compare")
DRAFT = PlaybackPosition("draft", level=1)


def wrong() -> Step:
    step = five_nodes()
    given_mask = step.mask.copy()
    given_mask[3, 2], given_mask[4, 1] = True, False
    return replace(step, mask=given_mask)


def windowed() -> Step:
    """Rows see less of the prefix the deeper they lie, and two rows are no candidates."""
    extra = (ExtraRow(3, 1, (0, 5), 12, 1), ExtraRow(4, 2, (0, 5, 6), 11, 1))
    return replace(five_nodes(), extra=extra, prefix_seen=(8, 7, 7, 6, 6))


def one(spec, kind: str) -> dict:
    return next(trace for trace in spec["data"] if trace.get("type") == kind)


def drawn(spec) -> np.ndarray:
    """The codes in the heatmap, and that plotly knows every attribute."""
    figure(spec)
    z = one(spec, "heatmap")["z"]
    return np.frombuffer(b64decode(z["bdata"]), np.uint8).reshape([*map(int, z["shape"].split(","))])


def marks(spec, symbol: str) -> set[tuple[int, int]]:
    """(row, column) of the marks of a symbol."""
    found = [trace for trace in spec["data"] if trace.get("marker", {}).get("symbol") == symbol]
    return {place for trace in found for place in zip(trace["y"], trace["x"], strict=True)}


def test_cells_of_five_nodes():
    rows = [[3, 0, 0, 0, 0], [2, 3, 0, 0, 0], [2, 0, 3, 0, 0], [2, 2, 0, 3, 0], [2, 2, 0, 0, 3]]
    for mode in ("folded", "compare"):
        assert drawn(mask_spec(five_nodes(), mode=mode)).tolist() == rows
    whole = drawn(mask_spec(five_nodes(), mode="full"))
    assert whole.tolist() == [[PREFIX] * 12 + row for row in rows]


@settings(max_examples=20)
@given(steps(), st.data())
def test_any_mask_at_any_position_is_drawn_as_it_is(step, data):
    position = data.draw(st.sampled_from(playback.positions(step)))
    there = playback.present(step, position)
    spec = mask_spec(step, 0, position=position, mode=data.draw(st.sampled_from(["folded", "compare"])))
    cells = drawn(spec)
    assert ((cells == ANCESTOR) | (cells == SELF)).tolist() == (step.mask & there & there[:, None]).tolist()
    assert (cells == ABSENT).tolist() == (~(there & there[:, None])).tolist()
    assert not np.any(attention_mask.mismatches(step))
    assert "given = expected" in attention_mask.summary(step)
    assert spec["layout"]["meta"]["rows"][1] == len(step.tree)


def test_mismatches_are_told_by_colour_mark_sentence_and_table():
    missing, extra = attention_mask.mismatches(wrong())
    assert (np.argwhere(missing).tolist(), np.argwhere(extra).tolist()) == ([[4, 1]], [[3, 2]])
    for mode in MODES:
        spec = mask_spec(wrong(), mode=mode)
        assert (marks(spec, "square-open"), marks(spec, "x-thin-open")) == ({(4, 1)}, {(3, 2)})
        cells = drawn(spec)[:, -5:]
        assert (cells[4, 1], cells[3, 2]) == (MISSING, EXTRA)
    dots = {*map(tuple, np.argwhere(five_nodes().tree.ancestor_mask()).tolist())}
    assert marks(mask_spec(wrong(), mode="compare"), "circle") == dots
    assert "1 wrongly hidden, 1 wrongly shown" in attention_mask.summary(wrong())
    assert words(attention_mask.table(wrong())).count("differs") == 2


def test_before_the_pass_nothing_is_given_and_only_what_is_drafted_is_there():
    there = np.arange(5) < 3
    assert ((drawn(mask_spec(wrong(), 4, position=DRAFT)) != ABSENT) == there & there[:, None]).all()
    for position in (DRAFT, PlaybackPosition("flatten")):
        assert not {MISSING, EXTRA} & {*drawn(mask_spec(wrong(), position=position)).flat}
    assert MISSING in drawn(mask_spec(wrong(), position=PlaybackPosition("verify")))
    framed = [len(mask_spec(five_nodes(), node, position=DRAFT)["layout"]["shapes"]) for node in (1, 4, None)]
    assert framed == [framed[2] + 2, framed[2], framed[2]], "a node to come is not framed"


def test_a_window_narrows_the_band_and_rows_that_are_no_candidates_follow():
    spec = mask_spec(windowed(), 1)
    band = one(spec, "bar")
    shares = np.array(band["x"]) / band["x"][5]
    assert shares == pytest.approx(np.array([8, 7, 7, 6, 6, 12, 11]) / 12, abs=0.01)
    assert np.array(band["base"]) + band["x"] == pytest.approx(np.full(7, band["base"][0] + band["x"][0]), abs=0.02)
    assert "newest 7 of 12" in band["customdata"][1]
    cells = drawn(spec)
    assert cells[5:].tolist() == [[SEEN, 0, 0, 0, 0, SELF, 0], [SEEN, 0, 0, 0, 0, SEEN, SELF]]
    assert (cells[:5, 5:] == HIDDEN).all()
    assert spec["layout"]["meta"]["rows"][1] == 5, "they are no nodes to be selected"
    assert (attention_mask.categories(windowed())[:, :12] == PREFIX).sum(axis=1).tolist() == [8, 7, 7, 6, 6, 12, 11]
    for fact in ("6 to 8 of 12 prefix tokens", "2 further rows are no candidates"):
        assert fact in attention_mask.summary(windowed())
    table = words(attention_mask.table(windowed()))
    assert (table.count("as expected"), table.count("no candidate")) == (5, 2)


def test_tooltips_and_labels_name_rows_and_let_no_markup_out():
    spec = mask_spec(odd_tokens(), 2, height=900, width=900)
    axes = spec["layout"]["xaxis"], spec["layout"]["yaxis"]
    assert all(len(axis["labelalias"]) == len(odd_tokens().tree) for axis in axes)
    for said in (*axes[0]["labelalias"].values(), *axes[1]["ticktext"]):
        assert not {"<", ">", "$"} & {*said}
    assert axes[1]["labelalias"]["0"].startswith("node 0 ")
    cells = next(trace for trace in figure(spec).data if trace.type == "heatmap")
    assert (*cells.text[1][:2], cells.text[0][1]) == ("sees its ancestor", "sees itself:", "may not see")


def test_labels_stand_where_there_is_room_and_cells_are_square():
    for step in (one_node(), five_nodes(), sixty_nodes(), large()):
        for scale in (1.0, 1.6):
            layout = mask_spec(step, 0, scale=scale, height=420 * scale, width=420 * scale)["layout"]
            margin, ticks = layout["margin"], layout["yaxis"]["tickvals"]
            (x0, x1), (y0, y1) = layout["xaxis"]["range"], layout["yaxis"]["range"]
            wide = (420 * scale - margin["l"] - margin["r"]) / (x1 - x0)
            high = (420 * scale - margin["t"] - margin["b"]) / (y0 - y1)
            assert wide == pytest.approx(high, rel=0.03)
            assert len(ticks) < 2 or (ticks[1] - ticks[0]) * high >= 12 * scale


def test_large_masks_are_images_of_few_bytes_whose_rows_are_told():
    for mode in MODES:
        spec = mask_spec(large(), 40, mode=mode)
        assert len(json.dumps(spec)) < 30_000
        assert drawn(spec).shape == (256, 1)
        image = one(spec, "image")
        assert image["source"].startswith("data:image/png;base64,")
        rows = one(spec, "heatmap")
        seen = ", ".join(map(str, np.flatnonzero(large().mask[40]).tolist()))
        assert rows["text"][40][0].endswith(f"sees nodes {seen}")
        assert "4096" in rows["hovertemplate"]
    assert len(json.dumps(mask_spec(sixty_nodes(), 7))) < 20_000


PREFIX_TEXTS = [" the", "<b>", "$x$", "\n"]


def weights_of(step: Step, node: int, layers: int = 3, heads: int = 2) -> np.ndarray:
    """Random weights on what the mask allows; each head's add up to one."""
    allowed = categories(step)[node, : step.prefix_length + len(step.tree)] != HIDDEN
    found = np.random.default_rng(node).gamma(0.5, 1, (layers, heads, len(allowed))) * allowed
    return (found / found.sum(axis=-1, keepdims=True)).astype(np.float32)


def bars(spec):
    return spec["data"][0]


@settings(max_examples=20)
@given(steps(max_nodes=40), st.data())
def test_the_bars_add_up_and_every_node_that_is_seen_has_one(step, data):
    node = data.draw(st.integers(0, len(step.tree) - 1))
    layer, head = data.draw(st.sampled_from([(None, None), (1, None), (None, 1), (2, 0)]))
    spec = attention_drawing(step, node, weights_of(step, node), layer, head)[0]
    figure(spec)
    bar = bars(spec)
    assert sum(bar["y"]) == pytest.approx(1, abs=0.01)
    shown = [one for one in bar["customdata"] if one is not None]
    assert {*np.flatnonzero(step.mask[node]).tolist()} <= {*shown}
    assert len(bar["y"]) <= 14 + max(16, 1 + len(step.tree.path(node)))
    assert WRONG_COLOR not in bar["marker"]["color"]
    assert "nothing to what the mask hides" in attention_summary(step, node, weights_of(step, node), layer, head)


def test_one_head_or_a_mean_above_the_row_of_the_mask():
    step, weights = five_nodes(), weights_of(five_nodes(), 3)
    wanted = {(2, 1): weights[2, 1], (2, None): weights[2].mean(0), (None, 0): weights[:, 0].mean(0)}
    wanted[None, None] = weights.mean((0, 1))
    assert all(picked(weights, *which) == pytest.approx(mean) for which, mean in wanted.items())
    assert bars(attention_drawing(step, 3, weights, 2, 1)[0])["y"] == pytest.approx(weights[2, 1], abs=1e-5)
    row = attention_drawing(step, 3, weights)[0]["data"][1]
    assert [*b64decode(row["z"]["bdata"])] == [PREFIX] * 12 + [ANCESTOR, ANCESTOR, HIDDEN, SELF, HIDDEN]
    assert "layer 2, head 1" in attention_summary(step, 3, weights, 2, 1)


def test_a_weight_on_a_hidden_entry_is_seen_in_bar_sentence_and_row():
    for step, hidden in ((five_nodes(), 4), (sixty_nodes(), 59)):
        weights = weights_of(step, 3)
        weights[..., step.prefix_length + hidden] = 0.1
        bar = bars(attention_drawing(step, 3, weights)[0])
        place = bar["marker"]["color"].index(WRONG_COLOR)
        assert bar["y"][place] == pytest.approx(0.1, abs=1e-4)
        assert bar["text"][place].startswith("×")
        assert "✗ 0.1 to what the mask hides" in attention_summary(step, 3, weights)
    window = replace(five_nodes(), prefix_length=40, prefix_seen=(20,) * 5)
    leaking = weights_of(window, 3)
    assert WRONG_COLOR not in bars(attention_drawing(window, 3, leaking)[0])["marker"]["color"]
    leaking[..., 5] = 0.2
    assert WRONG_COLOR in bars(attention_drawing(window, 3, leaking)[0])["marker"]["color"]


def test_texts_are_shown_as_they_are_and_large_trees_in_few_bytes():
    for step in (one_node(), odd_tokens(), large()):
        node = len(step.tree) - 1
        weights = weights_of(step, node)
        spec, table = attention_drawing(step, node, weights, prefix=PREFIX_TEXTS)
        figure(spec)
        assert len(json.dumps(spec)) < 10_000
        for said in (*bars(spec)["hovertext"], *spec["layout"]["xaxis"]["ticktext"]):
            assert not {"<", ">", "$"} & {*said}
        assert words(table).count("visible") > 1
