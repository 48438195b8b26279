"""The tab "Aggregates": runs and example prompts counted, a cell opened, a table saved, and what that costs."""

from __future__ import annotations

import json

import pytest
from lab_tools import click, settle, show
from pyarrow import parquet

import speclab
from speclab.lab import Lab

TAB = "Aggregates"
SMALL = speclab.DynaTree(base_depth=3, node_budget=12, prune_probability=0.0, stop_probability=0.0)


@pytest.fixture
def counted(make):
    """Run 0 with four iterations, and fork 1 of it at two with two of its own; the tab is open."""
    lab = make(strategy=SMALL)
    for _ in range(4):
        lab.step()
    lab.goto(2)
    lab.fork(node_budget=5)
    lab.step()
    lab.step()
    show(lab, TAB)
    return lab


def panel(lab):
    return lab.panels.tabs.aggregates


def figures(lab) -> list[dict]:
    return [part for part in json.loads(panel(lab).picture.drawing or "[]") if not isinstance(part, str)]


def members_of(lab, cell: int) -> list:
    cells, *at = panel(lab)._places[cell]
    return cells.members(*at)


def cells_of(figure: dict) -> list[int]:
    return [cell for trace in figure["data"] if trace.get("meta") for cell in trace["customdata"]]


def test_each_iteration_of_the_labs_runs_is_counted_once(counted):
    lab, found = counted, panel(counted)._found
    steps = [*lab._controller.runs.find(0).session.steps, *lab.session.steps[2:]]
    assert len(found) == sum(step.counts.drafted for step in steps)
    assert found.accepted.sum() == sum(step.counts.accepted for step in steps)
    heat, calibration = figures(lab)
    assert len(cells_of(heat) + cells_of(calibration)) == len(panel(lab).cells.options) > 3
    lab.step()
    assert len(panel(lab)._found) == len(found) + lab.state.step.counts.drafted


def test_a_click_opens_a_node_of_the_cell_and_the_next_click_the_next_one(counted):
    lab, (heat, _) = counted, figures(counted)
    assert lab.state.cursor == 4
    sessions = [lab._controller.runs.find(number).session for number in (0, 1)]
    calls = [session.pair.target.calls for session in sessions]
    cell = max(cells_of(heat), key=lambda cell: len(members_of(lab, cell)))
    (cells, row, column), members = panel(lab)._places[cell], members_of(lab, cell)
    assert {place.run for place in members} == {0, 1}
    seen = []
    for _ in range(len(members) + 1):
        lab._hear({"group": cell})
        assert settle(lab)
        node = lab.state.step.nodes[lab.state.selected]
        tree = lab.state.step.tree
        rank = tree.children[int(tree.parent[node.index])].index(node.index) + 1
        assert (cells.names[0][row], cells.names[1][column]) == (str(tree.depth[node.index]), str(rank))
        assert node.verdict in {"accepted", "rejected"}
        shown = next(run.number for run in lab.forks if run.present)
        seen.append((shown, lab.state.step.index, node.index))
    assert seen[:-1] == [tuple(place) for place in members], "in their order, run after run"
    assert seen[-1] == seen[0], "and around"
    assert [session.pair.target.calls for session in sessions] == calls
    assert "Node 1 of" in lab.state.status


def test_from_the_keyboard_the_list_opens_the_same_cells(counted):
    lab = counted
    lab._hear({"group": panel(lab).cells.options[0][1]})
    assert settle(lab)
    first = lab.state.cursor, lab.state.selected
    lab.select(None)
    panel(lab).cells.value = panel(lab).cells.options[-1][1]
    click(lab, panel(lab).show)
    panel(lab).cells.value = panel(lab).cells.options[0][1]
    click(lab, panel(lab).show)
    assert (lab.state.cursor, lab.state.selected) == first
    lab._hear({"group": 10_000})
    assert lab.state.error == ""


def test_dimensions_are_chosen_and_all_nodes_are_saved(counted, tmp_path):
    lab, tab = counted, panel(counted)
    before = tab.picture.drawing
    tab.by2.value = ""
    bars = figures(lab)[0]
    assert tab.picture.drawing != before
    assert bars["data"][0]["orientation"] == "h"
    tab.by.value = tab.by2.value = "kind"
    assert figures(lab)[0]["data"][0]["orientation"] == "h", "a dimension against itself is one"
    tab.path.value = str(tmp_path / "nodes.parquet")
    click(lab, tab.save)
    assert parquet.read_table(tmp_path / "nodes.parquet").num_rows == len(tab._found)
    tab.path.value = str(tmp_path / "none" / "nodes.parquet")
    click(lab, tab.save)
    assert "cannot be written" in lab.state.error


@pytest.fixture(scope="module")
def mini():
    return speclab.load_pair(device="cpu")


def test_example_prompts_are_decoded_and_any_of_their_iterations_opens_without_a_model(mini, make):
    lab = make(mini, strategy=SMALL, prompt="Once upon a time")
    lab.step()
    session = lab.session
    show(lab, TAB)
    runs = lab.sample(3, 6)
    assert [len(run.token_ids()) for run in runs] == [6, 6, 6]
    assert len({run.prompt_ids for run in runs}) == 3
    assert lab.state.sampling == ()
    assert "3 of 3" in lab.state.status
    assert lab.session is session
    assert len(panel(lab)._found) == sum(step.counts.drafted for run in (*runs, session.trace) for step in run.steps)
    assert lab.sample(1, 6)[0].prompt_ids == runs[0].prompt_ids
    assert len(lab.state.sampled) == 3, "decoded again with the same settings: the newer one stays"
    tab, calls = panel(lab), session.pair.target.calls
    place = next(cell for cell in tab._places if members_of(lab, cell)[-1].run > 0)
    for _ in members_of(lab, place):
        tab.open_cell(place)
        assert settle(lab)
        assert lab.state.selected is not None
    assert lab.state.trace in lab.state.sampled
    assert not lab.state.frame.live
    assert session.pair.target.calls == calls
    drawn = tab.picture.drawing
    lab.run_live()
    assert lab.state.frame.live
    assert tab.picture.drawing == drawn


def test_stop_keeps_the_prompts_that_were_decoded(mini, make):
    lab = make(mini, strategy=SMALL, prompt="Once upon a time")
    lab.step()
    lab.state.observe(lambda _: lab.stop() if len(lab.state.sampled) == 2 else None, names="sampled")
    assert len(lab.sample(4, 6)) == 2
    assert len(lab.state.sampled) == 2
    assert "Stopped: 2 of 4" in lab.state.status
    assert lab.step() is not None


def test_without_a_tokenizer_or_a_run_one_sentence_says_what_to_do(make):
    lab: Lab = make(strategy=SMALL)
    show(lab, TAB)
    assert figures(lab) == []
    assert lab.sample(2, 6) is None
    assert "no tokenizer" in lab.state.error
    assert lab.state.sampling == ()
