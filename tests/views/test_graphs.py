"""The record as a networkx graph, and any tree of networkx as a picture."""

from __future__ import annotations

import math
from dataclasses import replace

import networkx as nx
import pytest
from support.pictures import nodes, texts
from support.refusals import refused
from support.view_samples import HOSTILE, five_nodes, recorded

import speclab
from speclab import views


def test_the_graph_holds_the_record():
    step = five_nodes()
    graph = views.graph(step)
    assert list(graph.edges) == [(0, 1), (0, 2), (1, 3), (1, 4), (3, "own")]
    assert graph.graph["prefix_length"] == step.prefix_length
    for record in step.nodes:
        data = graph.nodes[record.index]
        for name in ("token", "target_choice", "verdict", "kv_slot", "entropy", "draft_prob"):
            assert data[name] == getattr(record, name)
        assert data["text"] == step.texts[record.token]
        assert step.to_networkx().nodes[record.index].items() <= data.items()
    assert [node for node, data in graph.nodes.items() if data["accepted"]] == list(step.accepted)
    assert graph.nodes["own"]["verdict"] == "bonus"
    assert "own" not in views.graph(next(step for step in recorded() if step.bonus is None))
    assert "".join(nx.generate_graphml(views.graph(replace(step, texts=HOSTILE[0]))))


def test_a_graph_of_a_step_is_drawn_as_the_step():
    step = five_nodes()
    own = nodes(views.tree(step))
    again = nodes(views.tree(views.graph(step), theme="dark"))
    assert {node: (row[1], row[4]) for node, row in own.items()} == {
        node: (row[1], row[4]) for node, row in again.items()
    }


def test_the_tree_of_another_tool_is_drawn_in_one_line():
    graph = nx.DiGraph([("a", "b"), ("a", 7), ("b", "d")])
    for node, text in {"a": "The", "b": " <b>cat", "d": ""}.items():
        graph.nodes[node]["text"] = text
    graph.nodes[7].update(token=31, log_prob=math.log(0.25), verdict="rejected")
    graph.nodes["b"]["accepted"] = True
    figure = views.tree(graph, selected="b", width=700)
    drawn = nodes(figure)
    assert {node: place[4] for node, place in drawn.items()} == {
        "a": "square", "b": "circle", 7: "x", "d": "circle"
    }  # fmt: skip
    assert {"The", "#31", "␣&lt;b&gt;cat", "∅"} <= set(texts(figure))
    assert drawn[7][2] < drawn["b"][2], "less probable"
    assert drawn["b"][3] >= 2.5, "a ring"
    assert "1 accepted" in figure.layout.meta["sentence"]
    chain = nx.path_graph(1000, nx.DiGraph)
    nx.set_node_attributes(chain, " a", "text")
    assert len(nodes(views.tree(chain))) == 1000


@pytest.mark.parametrize("edges", ["0>1 2>3", "0>1 0>2 1>3 2>3", "0>1 1>0", "0>1 2>3 3>2", ""])
@pytest.mark.parametrize("facts", [{"token": 1}, {}, {"text": "a", "verdict": "eaten"}])
def test_a_graph_that_is_no_tree_of_tokens_is_one_sentence(edges, facts):
    graph = nx.DiGraph([edge.split(">") for edge in (edges if "token" in facts else "0>1").split()])
    graph.add_nodes_from(list(graph), **facts)
    for wrong in (graph, graph.to_undirected()):
        with refused(speclab.SpeclabError):
            views.tree(wrong)
