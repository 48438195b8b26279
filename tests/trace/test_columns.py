"""The columns of a node in the page's table and in graphs; tests/features/nodes/test_nodes.py has their values."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.every_strategy import finished

import speclab
from speclab import views
from speclab.trace.columns import COLUMNS, token_kind
from speclab.views.drawing import call
from speclab.views.run_data import step_data

SHOWN = [column for column in COLUMNS if column.head]
RUNS = {
    root: finished(speclab.DynaTree(base_depth=3, root=root)) for root in ("verified", "drafted")
}


@pytest.mark.parametrize("root", RUNS)
def test_the_pages_table_and_graphs_have_the_values_of_the_frame(root):
    run = RUNS[root]
    frame = speclab.nodes(run)
    for step in run.steps:
        rows = frame[frame.iteration == step.index]
        table = call("nodeRows", step)
        assert table["columns"] == [column.head for column in SHOWN]
        graph = views.graph(step)
        for number, column in enumerate(SHOWN):
            values = rows[column.name].tolist()
            drawn = [table["data"][node][number] for node in rows.node]
            if column.format == ".3f":
                assert [float(text) for text in drawn] == pytest.approx(values, abs=6e-4)
            elif column.format == "label":
                assert drawn == call("labels", values, step.texts)
            elif column.name != "verdict":
                assert drawn == values
            if column.name != "depth":  # of a graph: below the root, drafted or not
                assert [graph.nodes[node][column.name] for node in rows.node] == values


def test_a_page_that_decodes_shows_what_follows_from_records_and_tree():
    """Its steps are those of a trace, without computed columns."""
    for step in RUNS["verified"].steps:
        data = step_data(step)
        del data["columns"]
        table = call("nodeRows", step)
        other = call("nodeRows", data)
        assert {"node", "depth", "parent", "source", "draft p", "verdict"} < {*other["columns"]}
        for number, head in enumerate(other["columns"]):
            column = table["columns"].index(head)
            assert [row[number] for row in other["data"]] == [row[column] for row in table["data"]]


def test_probabilities_that_are_not_recorded_are_not_shown():
    step = replace(RUNS["verified"].steps[0], missing=("log_prob",))
    table = call("nodeRows", step)
    for head, shown in (("draft p", False), ("path p", False), ("target p", True)):
        column = table["columns"].index(head)
        assert any(row[column] for row in table["data"]) == shown


def test_a_trace_does_not_contain_what_follows_from_it(tmp_path):
    """The page gets what is not just a field of a record, and that a trace leaves out."""
    step = RUNS["verified"].steps[0]
    assert step_data(step)["columns"].keys().isdisjoint({"token", "draft_prob", "verdict"})
    saved = speclab.load_trace(RUNS["verified"].trace.save(tmp_path / "run.json.gz"))
    assert speclab.nodes(saved).equals(speclab.nodes(RUNS["verified"]))


def test_kinds_of_tokens():
    texts = [" the", "ing", " 12", "...\n", "\n\n", "<|im_end|>", "<0xE2>"]
    kinds = [
        "word start",
        "continuation",
        "digits",
        "punctuation",
        "white space",
        "special",
        "other",
    ]
    assert [token_kind(text) for text in texts] == kinds
