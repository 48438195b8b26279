"""The draft tree: every node at its place or counted in a stub, its verdict by symbol, what is known at each phase."""

from __future__ import annotations

from collections import Counter

import networkx as nx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.view_samples import (
    drafted_root,
    ended_inside,
    five_nodes,
    large,
    odd_tokens,
    one_node,
    sixty_nodes,
    steps,
    words,
)

from speclab import views
from speclab.views.networks import OWN, fold, leaf_rows, step_graph
from speclab.views.phases import Position, positions
from speclab.views.theme import LOOKS, figure
from speclab.views.tokens import label, plot_text
from speclab.views.tree_picture import draw_tree, entry_kinds, step_kinds, tree_rows, tree_table


def nodes(drawn) -> dict:
    """Of every drawn node: x, y, size, border, symbol."""
    trace = next(trace for trace in drawn["data"] if trace.get("name") == "nodes")
    marker = trace["marker"]
    rows = zip(
        trace["customdata"], trace["x"], trace["y"], marker["size"], marker["line"]["width"], marker["symbol"],
        strict=True,
    )  # fmt: skip
    return {node: rest for node, *rest in rows}


def texts(drawn) -> list[str]:
    return [text for trace in drawn["data"] if trace["mode"] == "text" for text in trace["text"]]


# Places


@settings(max_examples=20)
@given(steps(max_nodes=60), st.integers(1, 64), st.integers(0, 59))
def test_every_node_has_its_place_or_is_counted_in_a_stub_and_the_path_is_never_folded(
    step, rows, extra
):
    whole = step_graph(step)
    kept = min(extra, len(step.tree) - 1)
    small = fold(whole, rows, [kept])
    hidden = [node for data in small.nodes.values() for node in data.get("folded", ())]
    assert Counter(hidden) + Counter(node for node in small if node in whole) == Counter(whole)
    assert {0, kept, *step.accepted} <= set(small)
    assert (OWN in small) == (step.bonus is not None)
    stubs = [data for data in small.nodes.values() if "folded" in data]
    assert all(
        data["label"] == f"+{len(data['folded'])}" and len(data["folded"]) > 1 for data in stubs
    )
    leaves = sum(not small.out_degree(node) for node in small)
    assert leaves <= max(rows, len(fold(whole, 0, [kept])))


@settings(max_examples=20)
@given(steps(max_nodes=60))
def test_no_two_links_cross(step):
    made = step_graph(step)
    rows = leaf_rows(made)
    for node in made:
        below = [rows[child] for child in made.successors(node)]
        assert below == sorted(below)
        assert not below or rows[node] == (below[0] + below[-1]) / 2
    for depth in {data["depth"] for data in made.nodes.values()}:
        order = sorted((node for node in made if made.nodes[node]["depth"] == depth), key=rows.get)
        parents = [rows.get(made.nodes[node]["parent"], 0) for node in order]
        assert parents == sorted(parents)


@pytest.mark.parametrize(
    "make", [one_node, sixty_nodes, large, odd_tokens, drafted_root, ended_inside]
)
def test_every_position_is_a_figure_without_empty_traces_in_which_nothing_jumps(make):
    step = make()
    last = nodes(draw_tree(step))
    for position in positions(step):
        drawn = draw_tree(step, position=position)
        assert all(len(trace["x"]) for trace in drawn["data"])
        assert len(drawn["data"]) <= 6
        assert not any(trace["type"].endswith("gl") for trace in drawn["data"]), "it needs no WebGL"
        now = nodes(drawn)
        assert all(now[node][:2] == last[node][:2] for node in now)
    top, bottom = sorted(drawn["layout"]["yaxis"]["range"])
    assert all(top <= y <= bottom for _, y, *_ in last.values())
    figure(drawn, "dark")


# What a node says


@settings(max_examples=10)
@given(steps())
@example(odd_tokens())
def test_every_token_can_be_read_and_stays_text(step):
    drawn = draw_tree(step, width=4000, height=4000)
    read = texts(drawn)
    listed = words(tree_rows(step))
    for node in step.nodes:
        assert f"{node.index} {plot_text(label(node.token, step.texts))}" in read
        assert label(node.token, step.texts) in listed
    assert not any(sign in text for text in read for sign in "<>$\n\u202e\x00\x1b")


def test_symbols_sizes_borders_and_rings_show_verdicts_probabilities_and_the_selected_node():
    step = five_nodes()
    drawn = nodes(draw_tree(step))
    for record in step.nodes:
        assert drawn[record.index][4] == LOOKS[record.verdict].symbol
    assert drawn[OWN][4] == LOOKS["bonus"].symbol
    for name, place in (("path_prob", 2), ("target_prob", 3)):
        order = sorted((1, 2, 3, 4), key=lambda node, name=name: getattr(step.nodes[node], name))
        assert order == sorted((1, 2, 3, 4), key=lambda node, place=place: drawn[node][place])
    assert len({(look.symbol, look.filled, look.color) for look in LOOKS.values()}) == len(LOOKS)
    path = max(draw_tree(step)["data"], key=lambda trace: trace.get("line", {}).get("width", 0))
    assert path["x"].count(None) == len(step.accepted)
    assert nodes(draw_tree(step, 2))[2][3] >= 2.5 > drawn[2][3]


def test_phases_show_what_is_known_by_then():
    step = five_nodes()
    drafted = draw_tree(step, position=Position("draft", 1))
    assert nodes(drafted).keys() == {0, 1, 2}
    verified = draw_tree(step, position=Position("verify"))
    assert sum(text.startswith("→") for text in texts(verified)) == 5
    entries = tree_table(step_graph(step), 14)
    letters = {
        "root": "r",
        "drafted": "d",
        "accepted": "a",
        "rejected": "x",
        "bonus": "b",
        None: "-",
    }
    seen = [entry_kinds(entries, step_kinds(step, position)) for position in positions(step)]
    assert ["".join([letters[kind] for kind in kinds]) for kinds in seen] == [
        "r-----", "rdd---", "rddddd"[:5] + "-", "rdddd-", "rdddd-", "raxdd-", "raxax-", "raxaxb", "raxaxb", "raxaxb",
    ]  # fmt: skip


# The graph


def test_the_graph_holds_the_record():
    step = five_nodes()
    made = views.graph(step)
    assert nx.is_arborescence(made)
    assert list(made.edges) == [(0, 1), (0, 2), (1, 3), (1, 4), (3, OWN)]
    assert (made.graph["index"], made.graph["prefix_length"]) == (step.index, step.prefix_length)
    for node in step.nodes:
        data = made.nodes[node.index]
        for name in (
            "token",
            "draft_prob",
            "path_prob",
            "target_choice",
            "verdict",
            "choice_prob",
            "kv_slot",
            "entropy",
        ):
            assert data[name] == pytest.approx(getattr(node, name))
        assert (data["text"], data["depth"]) == (
            step.texts[node.token],
            step.tree.depth[node.index],
        )
    assert [node for node, data in made.nodes.items() if data["accepted"]] == list(step.accepted)
    assert made.nodes[OWN]["verdict"] == "bonus"
    assert OWN not in views.graph(ended_inside())
