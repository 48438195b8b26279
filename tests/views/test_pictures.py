"""Pictures of an iteration: its tree at every phase, its mask, its caches, its distributions."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.every_strategy import ALONE, DRAFTED, PROMPT, pair_of
from support.view_samples import (
    drafted_root,
    ended_inside,
    five_nodes,
    large,
    odd_tokens,
    one_node,
    sixty_nodes,
    steps,
)

import speclab
from speclab import views
from speclab.trace.records import ExtraRow, Residual, TokenProb, Trial
from speclab.tree import DraftTree
from speclab.views.drawing import call
from speclab.views.run_data import looks

_, ANCESTOR, SELF, MISSING, EXTRA = range(5)


def nodes(figure) -> dict:
    """Of every drawn node: x, y, size, border, symbol."""
    (drawn,) = [trace for trace in figure.data if trace.name == "nodes"]
    marker = drawn.marker
    rest = zip(drawn.x, drawn.y, marker.size, marker.line.width, marker.symbol, strict=True)
    return dict(zip(drawn.customdata, rest, strict=True))


def texts(figure) -> list[str]:
    return [text for trace in figure.data if trace.mode == "text" for text in trace.text]


def cells(figure) -> list[list[int]]:
    return [list(row) for row in figure.data[1].z]


# The tree


@settings(max_examples=20)
@given(steps(max_nodes=60), st.integers(100, 2000))
def test_every_node_has_its_place_or_is_counted_in_a_stub_and_the_path_is_never_folded(
    step, height
):
    figure = views.tree(step, height=height)
    drawn = nodes(figure)
    numbers = {node for node in drawn if isinstance(node, int)}
    stubs = [int(text[1:]) for text in texts(figure) if text.startswith("+")]
    assert len(numbers) + sum(stubs) == len(step.tree)
    assert {0, *step.accepted} <= numbers
    assert ("own" in drawn) == (step.bonus is not None)
    assert not any(count == 1 for count in stubs)


@settings(max_examples=20)
@given(steps(max_nodes=60))
def test_no_two_links_cross(step):
    row = {node: place[1] for node, place in nodes(views.tree(step, height=9000)).items()}
    graph = views.graph(step)
    for node in graph:
        below = [row[child] for child in graph.successors(node)]
        assert below == sorted(below)
        assert not below or row[node] == (below[0] + below[-1]) / 2
    for depth in range(int(step.tree.depth.max()) + 2):
        level = sorted((node for node in graph if graph.nodes[node]["depth"] == depth), key=row.get)
        parents = [row.get(graph.nodes[node]["parent"], 0) for node in level]
        assert parents == sorted(parents)


@settings(max_examples=10)
@given(steps())
@example(odd_tokens())
def test_every_token_can_be_read_and_stays_text(step):
    read = texts(views.tree(step, width=4000, height=4000))
    labels = call("labels", step.tree.token.tolist(), step.texts)
    for node, label in enumerate(labels):
        assert f"{node} {call('plotText', label)}" in read
    assert not any(sign in text for text in read for sign in "<>$\n\u202e\x00\x1b")


def test_symbols_sizes_borders_and_rings_show_verdicts_probabilities_and_the_selected_node():
    step = five_nodes()
    figure = views.tree(step)
    drawn = nodes(figure)
    for record in step.nodes:
        assert drawn[record.index][4] == looks()["nodes"][record.verdict]["symbol"]
    assert drawn["own"][4] == looks()["nodes"]["bonus"]["symbol"]
    for name, place in (("path_prob", 2), ("target_prob", 3)):
        order = sorted((1, 2, 3, 4), key=lambda node, name=name: getattr(step.nodes[node], name))
        assert order == sorted((1, 2, 3, 4), key=lambda node, place=place: drawn[node][place])
    path = max(figure.data, key=lambda trace: trace.line.width or 0 if trace.mode == "lines" else 0)
    assert list(path.x).count(None) == len(step.accepted)
    assert nodes(views.tree(step, 2))[2][3] >= 2.5 > drawn[2][3]


@pytest.mark.parametrize(
    ("phase", "level", "seen"),
    [
        ("draft", 0, "r-----"), ("draft", 1, "rdd---"), ("draft", None, "rdddd-"), ("flatten", None, "rdddd-"),
        ("verify", None, "rdddd-"), ("accept", 1, "raxdd-"), ("accept", 2, "raxax-"), ("accept", 3, "raxaxb"),
        ("commit", None, "raxaxb"), ("all", None, "raxaxb"),
    ],
)  # fmt: skip
def test_phases_show_what_is_known_by_then(phase, level, seen):
    step = five_nodes()
    figure = views.tree(step, phase=phase, level=level)
    kinds = call("kindsAt", step, {"phase": phase, "level": level})
    letters = {None: "-", "rejected": "x"}
    assert "".join([letters.get(kind) or kind[0] for kind in kinds.values()]) == seen
    assert [*nodes(figure)] == [
        int(node) if node != "own" else node for node, kind in kinds.items() if kind
    ]
    assert sum(text.startswith("→") for text in texts(figure)) == 5 * (
        phase in {"verify", "accept"}
    )
    mask = cells(views.mask(step, phase=phase, level=level))
    assert len(mask) == 5 - seen[:5].count("-")


@pytest.mark.parametrize(
    "make", [one_node, sixty_nodes, large, odd_tokens, drafted_root, ended_inside]
)
def test_at_every_position_nothing_jumps(make):
    step = make()
    last = nodes(views.tree(step))
    for at in call("positions", step):
        figure = views.tree(step, **at)
        assert all(len(trace.x) for trace in figure.data)
        now = nodes(figure)
        assert all(now[node][:2] == last[node][:2] for node in now)
        assert figure.layout.meta["sentence"]
    low, high = sorted(figure.layout.yaxis.range)
    assert all(low <= place[1] <= high for place in last.values())


def test_a_run_of_every_strategy_is_drawn():
    for strategy in [*ALONE.values(), *DRAFTED.values()]:
        session = speclab.Session(pair_of(), strategy, PROMPT, max_new_tokens=9, temperature=0.8)
        session.run()
        step = session.steps[-1]
        drawn = nodes(views.tree(step, height=9000))
        assert len(drawn) == len(step.tree) + (step.bonus is not None)
        assert len(cells(views.mask(step))) == len(step.tree) + len(step.extra)
        assert views.cache(step).data
        assert views.node(step).data


# The mask and the caches


@settings(max_examples=15)
@given(steps())
def test_any_mask_is_drawn_as_it_was_given(step):
    given_mask = step.mask.copy()
    given_mask[-1, 0] ^= True
    given_mask[0, -1] ^= len(step.tree) > 1
    codes = np.array(cells(views.mask(replace(step, mask=given_mask))))
    assert np.array_equal(np.isin(codes, (ANCESTOR, SELF, EXTRA)), given_mask)
    assert np.array_equal(np.isin(codes, (ANCESTOR, SELF, MISSING)), step.tree.ancestor_mask())


def test_a_mask_by_hand_and_its_mismatches_in_cells_marks_and_words():
    step = five_nodes()
    figure = views.mask(step)
    assert cells(figure) == [
        [2, 0, 0, 0, 0],
        [1, 2, 0, 0, 0],
        [1, 0, 2, 0, 0],
        [1, 1, 0, 2, 0],
        [1, 1, 0, 0, 2],
    ]
    assert "5 rows on the prefix of 12 and 11 of 25 entries" in figure.layout.meta["sentence"]
    wrong = step.mask.copy()
    wrong[4, 1] = False
    wrong[2, 1] = True
    figure = views.mask(replace(step, mask=wrong), 3)
    missing, extra = figure.data[2:]
    assert (missing.x, missing.y, extra.x, extra.y) == ((1,), (4,), (1,), (2,))
    assert "1 wrongly hidden, 1 wrongly shown" in figure.layout.meta["sentence"]
    assert len(figure.layout.shapes) == len(views.mask(step).layout.shapes) + 2, "a frame"


def test_rows_that_are_no_candidates_follow_and_a_shorter_prefix_is_a_shorter_band():
    window = replace(five_nodes(), extra=(ExtraRow(5, 2, (0, 1), 12, 6),), prefix_seen=(8,) * 5)
    figure = views.mask(window)
    assert [bool(cell) for cell in cells(figure)[5]] == [True, True, False, False, False, True]
    assert not any(line[5] for line in cells(figure)[:5])
    assert figure.data[0].x[0] < figure.data[0].x[5]


def test_five_nodes_slot_by_slot_and_a_long_prompt_folded():
    figure = views.cache(five_nodes(), 3, prompt_length=4)
    signs = figure.data[1]
    target = [sign for sign, y in zip(signs.text, signs.y, strict=True) if y == 1]
    assert "".join(target) == "····12×3×"
    arrow = figure.data[2]
    assert arrow.x[:2] == (15, 14), "node 3 moves from slot 15 to slot 14"
    assert len(figure.layout.shapes) == 2, "framed during the pass and after the commit"
    assert "moved to slot 14" in " ".join(signs.hovertext)
    for phase, drawn in {"flatten": "····", "accept": "····?????"}.items():
        signs = views.cache(five_nodes(), prompt_length=4, phase=phase).data[1]
        assert "".join(signs.text[: signs.y.count(1)]) == drawn
    # a file may name 2**24 slots
    record = replace(large().caches[0], before=2**24 - 9, capacity=2**24, after=2**24 - 5)
    huge = views.cache(replace(large(), prefix_length=2**24 - 9, caches=(record,)), prompt_length=9)
    assert sum(map(len, huge.data[0].z)) < 2000
    assert any("slots 0 to" in note.text for note in huge.layout.annotations)


def test_states_of_slots_and_a_broken_cache_is_called_broken():
    data = {"before": 10, "written": 6, "kept": [], "after": 14}
    states = ["prompt"] * 4 + ["committed"] * 6 + ["written now"] * 2
    assert call("slotStates", data, 12, 4, 0, False) == [*states, *["dropped"] * 4]
    assert call("slotStates", data, 12, 4, 0, True) == [*states, "rebuilt", "rebuilt"]
    record = five_nodes().caches[0]
    for name, broken in {
        "length": replace(record, committed=record.committed + 1),
        "positions": replace(record, kept=record.kept[::-1]),
        "moves": replace(record, moved=((12, 14),)),
        "space": replace(record, capacity=3),
    }.items():
        (line,) = call("cacheLines", replace(five_nodes(), caches=(broken,)))
        assert f"✗ {name}" in line
    assert "✗" not in call("cacheLines", five_nodes())[0]


# Distributions


def test_target_and_draft_share_their_rows_and_children_are_marked():
    figure = views.node(five_nodes(), 1)
    target, draft = figure.data
    assert target.y == draft.y
    ticks = figure.layout.yaxis.ticktext
    chosen = next(place for place, tick in enumerate(ticks) if "★ chosen" in tick)
    assert "node 3 ●" in ticks[chosen]
    assert draft.x[chosen] == pytest.approx(0.7)
    assert target.customdata[chosen] == 3


def stopped(draft: bool = True):
    """' the' and ' old' were rejected; the target then drew ' said' from the residual."""
    tree = DraftTree.of([5, 0, 1], [-1, 0, 0], [0.0, math.log(0.8), math.log(0.1)], "draft")
    rows = [(3, 0.75, 0.5, 0.05), (0, 0.0, 0.31, 0.8), (1, 0.05, 0.1, 0.1), (2, 0.2, 0.09, 0.05)]
    tokens = tuple(TokenProb(token, left, p, q if draft else None) for token, left, p, q in rows)
    trials = (Trial(1, 0.31, 0.8), Trial(2, 0.1, 0.5)) if draft else ()
    step = replace(five_nodes(), tree=tree, nodes=five_nodes().nodes[:3], accepted=(), bonus=3)
    return replace(step, residual=Residual(0, tokens), trials=trials)


def test_where_sampling_stopped_the_draws_and_the_residual_are_shown():
    figure = views.residual(stopped())
    p, q, residual = figure.data
    assert (p.x[0], q.x[0], residual.x[0]) == (0.5, 0.05, 0.75)
    sentence = figure.layout.meta["sentence"]
    for fact in ("31 % / 80 %, accepted with 39 %", "10 % / 50 %, accepted with 20 %", "' said'"):
        assert fact in sentence
    alone = views.residual(stopped(draft=False))
    assert len(alone.data) == 2
    assert "' said' after node 0 (p = 50 %)" in alone.layout.meta["sentence"]
