"""An iteration as a networkx graph: every column of the record, and a file that other programs read."""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given, settings
from view_samples import ended_inside, five_nodes, large, odd_tokens, steps

from speclab.errors import TraceError
from speclab.views.networks import OWN, graph, save_graph
from speclab.views.playback import PlaybackPosition, positions


def test_the_graph_holds_the_record():
    step = five_nodes()
    made = graph(step)
    assert nx.is_arborescence(made)
    assert list(made.edges) == [(0, 1), (0, 2), (1, 3), (1, 4), (3, OWN)]
    assert (made.graph["index"], made.graph["prefix_length"]) == (step.index, step.prefix_length)
    assert made.graph["node_budget"] == 256
    for node in step.nodes:
        at = made.nodes[node.index]
        for name in ("token", "draft_prob", "path_prob", "target_choice", "verdict", "reason", "kv_slot", "entropy"):
            assert at[name] == pytest.approx(getattr(node, name))
        assert at.get("target_prob") == node.target_prob
        assert (at["text"], at["depth"], at["source"]) == (
            step.texts[node.token], step.tree.depth[node.index], step.tree.source[node.index],
        )  # fmt: skip
        assert at["target_top"].count("' 0.") == len(node.target_top)
    assert [node for node, at in made.nodes.items() if at["accepted"]] == list(step.accepted)
    assert made.nodes[OWN]["verdict"] == "bonus"
    assert OWN not in graph(ended_inside())


@settings(max_examples=20)
@given(steps())
def test_what_is_not_known_yet_is_left_out(step):
    for position in positions(step):
        made = graph(step, position)
        assert all(None not in at.values() for at in made.nodes.values())
        assert any("target_choice" in at for at in made.nodes.values()) == position.reached("verify")
        assert all(at["verdict"] in {"drafted", "root"} for at in made.nodes.values()) or position.reached("accept")
    assert len(graph(step, PlaybackPosition("draft", 0))) == 1


@pytest.mark.parametrize("make", [five_nodes, odd_tokens, large])
def test_graphml_can_be_read_back(make, tmp_path):
    step = make()
    path = save_graph(step, tmp_path / "tree.graphml")
    back, made = nx.read_graphml(path), graph(step)
    assert set(back.edges) == {(str(a), str(b)) for a, b in made.edges}
    assert all(back.nodes[str(node)]["token"] == made.nodes[node]["token"] for node in made)
    with pytest.raises(TraceError):
        save_graph(step, tmp_path / "no" / "tree.graphml")
