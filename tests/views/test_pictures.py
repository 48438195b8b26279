"""Pictures of an iteration: its tree at every phase, its mask, its caches, its distributions."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from support.pictures import nodes, said, texts
from support.view_samples import HOSTILE, decoded, five_nodes, large, recorded, runs

import speclab
from speclab import views
from speclab.trace.records import Finding
from speclab.views.drawing import call
from speclab.views.run_data import LOOKS

_, ANCESTOR, SELF, MISSING, EXTRA = range(5)


def cells(figure) -> list[list[int]]:
    return [list(row) for row in figure.data[1].z]


# The tree


def test_every_node_has_its_place_and_no_two_links_cross():
    for step in (*recorded()[::7], large()):
        row = {node: place[1] for node, place in nodes(views.tree(step, height=9000)).items()}
        assert len(row) == len(step.tree) + (step.bonus is not None)
        graph = views.graph(step)
        for node in graph:
            below = [row[child] for child in graph.successors(node)]
            assert below == sorted(below)
            assert not below or row[node] == (below[0] + below[-1]) / 2


@pytest.mark.parametrize("height", [100, 200, 400, 2000])
def test_what_does_not_fit_is_counted_in_a_stub_and_the_path_is_never_folded(height):
    step = large()
    figure = views.tree(step, height=height)
    numbers = {node for node in nodes(figure) if isinstance(node, int)}
    stubs = [int(text[1:]) for text in texts(figure) if text.startswith("+")]
    assert len(numbers) + sum(stubs) == len(step.tree)
    assert {0, *step.accepted} <= numbers
    assert 1 not in stubs


@pytest.mark.parametrize("hostile", HOSTILE)
def test_every_token_can_be_read_and_stays_text(hostile):
    step = replace(runs()["dynatree"].steps[0], texts=hostile)
    read = texts(views.tree(step, width=4000, height=4000))
    for label in call("labels", step.tree.token.tolist(), hostile):
        assert call("plotText", label) in read
    assert not any(sign in text for text in read for sign in "<>$\n\u202e\x00")


def test_symbols_sizes_borders_and_rings_show_verdicts_probabilities_and_the_selected_node():
    step = five_nodes()
    figure = views.tree(step)
    drawn = nodes(figure)
    kinds = [*[record.verdict for record in step.nodes], "bonus"]
    assert [place[4] for place in drawn.values()] == [
        LOOKS["nodes"][kind]["symbol"] for kind in kinds
    ]
    for name, place in (("path_prob", 2), ("target_prob", 3)):
        order = sorted((1, 2, 3, 4), key=lambda node, name=name: getattr(step.nodes[node], name))
        assert order == sorted((1, 2, 3, 4), key=lambda node, place=place: drawn[node][place])
    path = max(figure.data[:-2], key=lambda trace: trace.line.width)
    assert path.x.count(None) == len(step.accepted)
    assert nodes(views.tree(step, 2))[2][3] >= 2.5 > drawn[2][3]


def test_a_node_is_hit_on_its_circle_and_on_its_word_and_no_two_boxes_overlap():
    for step in (five_nodes(), large()):
        figure = call("treeFigure", step, {"phase": "verify", "level": None}, {"width": 900})
        hits = figure["hits"]
        high = LOOKS["tree"]["pitch"][0]
        for hit in hits:
            circle = {"x": hit["x0"] + high / 2, "y": (hit["y0"] + hit["y1"]) / 2}
            word = {"x": hit["x1"] - 1, "y": circle["y"]}
            assert call("hitAt", hits, circle) == call("hitAt", hits, word) == hit["id"]
    marks = next(trace for trace in figure["data"] if trace.get("name") == "nodes")
    for x, y, node in zip(marks["x"], marks["y"], marks["customdata"], strict=True):
        assert call("hitAt", hits, {"x": x, "y": y}) == node
    assert call("pathTo", {"parent": five_nodes().tree.parent.tolist()}, 4) == [4, 1, 0]


@pytest.mark.parametrize("width", [330, 900])
def test_the_lines_below_words_cover_no_mark_and_no_word(width):
    long = {token: f" choice{token}" for token in range(12)}
    for step in (*recorded()[::7], large()):
        figure = views.tree(replace(step, texts=long), phase="verify", width=width)
        marks, words, lines = figure.data[-3:]
        low, high = figure.layout.yaxis.range
        pitch = (figure.layout.height - LOOKS["tree"]["top"]) / (low - high)
        boxes = []
        for x, y, size in zip(marks.x, marks.y, marks.marker.size, strict=True):
            boxes.append((x - size / 2, x + size / 2, y, size / 2))
        for x, y, word in zip(words.x, words.y, words.text, strict=True):
            boxes.append((x, x + 7.2 * len(word), y, 5))
        for x, y, line in zip(lines.x, lines.y, lines.text, strict=True):
            end = x + 6.6 * len(line)
            for left, right, row, half in boxes:
                clear = abs(row - y) * pitch > 4 + half
                assert clear or end <= left or right <= x, (line, x, y)
            assert (low - y) * pitch > 5, "it is cut at the bottom"


def test_positions_only_ever_add_nothing_jumps_and_nothing_is_judged_early():
    for step in recorded()[::12]:
        last = nodes(views.tree(step))
        at = call("positions", step)
        seen = [call("kindsAt", step, position) for position in at]
        for position, kinds in zip(at, seen, strict=True):
            figure = views.tree(step, **position)
            now = nodes(figure)
            assert {str(node) for node in now} == {node for node, kind in kinds.items() if kind}
            assert all(now[node][:2] == last[node][:2] for node in now)
            assert said(figure)
            early = position["phase"] in {"draft", "flatten", "verify"}
            assert not early or {*kinds.values()} <= {None, "drafted", "root"}
            assert len(cells(views.mask(step, **position))) >= len(now) - ("own" in now)
            over = position["phase"] == "accept" and position["level"] == len(step.committed)
            assert not over or "drafted" not in kinds.values()
        for before, after in pairwise(seen):
            known = {node: kind for node, kind in before.items() if kind not in {None, "drafted"}}
            assert known.items() <= after.items()
        assert [*seen[-1].values()][:-1] == [node.verdict for node in step.nodes]


@pytest.mark.parametrize(
    ("phase", "level", "seen"),
    [
        ("flatten", None, "rdddd-"), ("verify", None, "rdddd-"), ("accept", 1, "raxdd-"), ("accept", 2, "raxax-"),
        ("accept", 3, "raxaxb"), ("commit", None, "raxaxb"),
    ],
)  # fmt: skip
def test_phases_show_what_is_known_by_then(phase, level, seen):
    step = five_nodes()
    kinds = call("kindsAt", step, {"phase": phase, "level": level}).values()
    assert "".join([{None: "-", "rejected": "x"}.get(kind) or kind[0] for kind in kinds]) == seen
    chosen = [text for text in texts(views.tree(step, phase=phase, level=level)) if text[0] == "→"]
    assert len(chosen) == 5 * (phase in {"verify", "accept"})


def test_findings_are_marked_where_they_are():
    finding = Finding(2, 2, "mask", "node 2 sees its sibling.")
    step = replace(five_nodes(), findings=(finding,))
    assert "⚠ mask" in texts(views.tree(step))
    assert finding.sentence in call("nodeSentence", step, 2)
    assert any("⚠" in note.text for note in views.mask(step).layout.annotations)


# The mask and the caches


def test_any_mask_is_drawn_as_it_was_given():
    for step in recorded():
        n = len(step.tree)
        given = step.mask.copy()
        given[-1, 0] ^= True
        given[0, -1] ^= n > 1
        whole = {"phase": "all", "level": None}
        figure = call("maskFigure", replace(step, mask=given), whole, {"fill": 9000})
        codes = np.array(figure["cells"])
        assert np.array_equal(np.isin(codes[:n, :n], (ANCESTOR, SELF, EXTRA)), given)
        assert np.array_equal(
            np.isin(codes[:n, :n], (ANCESTOR, SELF, MISSING)), step.tree.ancestor_mask()
        )
        assert not codes[:n, n:].any()
        for row, extra in zip(codes[n:], step.extra, strict=True):
            assert {*extra.sees} <= {*np.flatnonzero(row)}


def test_many_rows_that_are_no_candidates_are_named_by_level():
    step = decoded(speclab.Lookahead(window=12, ngram=4)).steps[0]
    figure = call("maskFigure", step)
    count = len(step.tree)
    assert figure["size"] == count + 3, "a row per level"
    names = figure["layout"]["yaxis"]["ticktext"]
    assert len(names) == len({*names}) == count + 3
    assert figure["layout"]["height"] / figure["size"] >= LOOKS["mask"]["named"]
    for level, row in enumerate(figure["cells"][count:]):
        below = row[count : count + level]
        assert row[0]
        assert row[count + level] == SELF
        assert all(below)
        assert not any(row[count + level + 1 :])
    cell = call("cellAt", figure, {"x": count, "y": count + 1})
    assert cell["row"] == count + 1
    assert "node" not in cell, "it cannot be selected"
    assert figure["cells"][count + 1][count] not in (ANCESTOR, SELF), "only a part"


def test_a_wrong_mask_is_marked_and_counted_and_a_shorter_prefix_is_a_shorter_band():
    step = five_nodes()
    wrong = step.mask.copy()
    wrong[4, 1] = False
    wrong[2, 1] = True
    figure = views.mask(replace(step, mask=wrong, prefix_seen=(13, 9, 13, 13, 13)), 3)
    missing, extra = figure.data[2:]
    assert (missing.x, missing.y, extra.x, extra.y) == ((1,), (4,), (1,), (2,))
    assert "1 wrongly hidden, 1 wrongly shown" in said(figure)
    assert len(figure.layout.shapes) == len(views.mask(step).layout.shapes) + 2, "a frame"
    assert figure.data[0].x[1] < figure.data[0].x[0]


def test_five_nodes_slot_by_slot_and_a_long_prompt_folded():
    step = five_nodes()
    for phase, drawn in {
        "flatten": "····",
        "accept": "····?????",
        "all": "····12×3×····123",
    }.items():
        signs = views.cache(step, prompt_length=4, phase=phase).data[1]
        assert "".join(signs.text) == drawn
    assert "moved to slot 15" in " ".join(signs.hovertext)
    figure = views.cache(step, 3)
    assert figure.data[2].x[:2] == (16, 15), "an arrow"
    assert len(figure.layout.shapes) == 2, "framed during the pass and after the commit"
    # a file may name 2**24 slots
    record = replace(step.caches[0], before=2**24 - 9, capacity=2**24, after=2**24 - 5)
    long = replace(step, prefix_length=2**24 - 9, caches=(record,))
    last = 2**24 - 65
    for prompt, folded in {9: "9–", last: f"0–{last - 1}: ", last + 1: f"0–{last}: "}.items():
        huge = views.cache(long, prompt_length=prompt)
        assert sum(map(len, huge.data[0].z)) < 2000
        (note,) = [note.text for note in huge.layout.annotations if "prompt" in note.text]
        assert folded in note
        assert ("committed" in note) == (prompt <= last)


def test_by_paths_the_copies_are_thrown_away_and_the_path_runs_again():
    step = five_nodes()
    paths = ((0, 1, 2), (0, 1, 4), (0, 3))
    step = replace(step, paths=paths)
    before = step.caches[0].before
    for phase, after in {"flatten": "", "verify": "×" * 8, "all": "×" * 8 + "····rrr"}.items():
        figure = views.cache(step, prompt_length=4, phase=phase)
        assert "".join(figure.data[1].text) == "····" + after
    assert [len(row) for row in figure.data[0].z if row][1:4] == [
        before + 3,
        before + 3,
        before + 2,
    ]
    assert len(figure.data) == 2, "nothing was moved"
    nodes = [node for node in figure.data[1].customdata if node is not None]
    again = [slot - step.prefix_length for slot in step.caches[0].kept]
    assert nodes == [node for path in (*paths, again) for node in path]
    assert "3 paths" in said(figure)


def test_a_broken_cache_is_called_broken():
    step = five_nodes()
    record = step.caches[0]
    assert "✗" not in " ".join([call("cacheLines", step)[0] for step in recorded()])
    faults = {
        "length": {"committed": 9},
        "positions": {"kept": (14, 13)},
        "moves": {"moved": ((12, 14),)},
    }
    for name, fault in (faults | {"space": {"capacity": 3}}).items():
        figure = views.cache(replace(step, caches=(replace(record, **fault),)))
        assert f"✗ {name}" in said(figure)
    states = call("slotStates", {"before": 2, "written": 2, "kept": [], "after": 4}, 3, 1, 0, True)
    assert states == ["prompt", "committed", "written now", "rebuilt"]


# Distributions
