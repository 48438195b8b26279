"""The draft tree, also as a graph, and one that was not drafted over it: nobody is lost, no verdict by colour alone."""

from __future__ import annotations

import json
from collections import Counter

import networkx as nx
import pytest
from draft_samples import routed, stopped, united
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sessions import PROMPT
from spine_samples import left_spine
from table_runner import mixed_probs, random_probs, table_pair
from view_samples import (
    build_step,
    draft_tree,
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

import speclab
from speclab.analysis.whatif import in_force, what_if
from speclab.trace.records import Step
from speclab.views import legends, markup, playback
from speclab.views.draft_tree import small_tree_specs, table, tree_spec
from speclab.views.figures import escape, figure
from speclab.views.networks import OWN, columns, fold, graph, leaf_rows, places
from speclab.views.palette import LOOKS
from speclab.views.playback import PlaybackPosition, positions
from speclab.views.whatif_tree import whatif_sentence, whatif_spec


def chain(nodes: int = 41):
    return build_step(draft_tree([-1, *range(nodes - 1)]), tuple(range(1, nodes)))


SAMPLES = (
    one_node, five_nodes, sixty_nodes, large, odd_tokens, drafted_root, lambda: drafted_root(accept=False),
    ended_inside, left_spine, routed, united, stopped, chain,
)  # fmt: skip


def marks(spec):
    """Each node that can be pointed at, by what it tells: its place, its size, its border, its tooltip."""
    found = {}
    for trace in spec["data"]:
        if trace.get("meta") == {"click": "node"}:
            rows = zip(trace["customdata"], trace["x"], trace["y"], trace["marker"]["size"],
                       trace["marker"]["line"]["width"], trace["hovertext"], strict=True)  # fmt: skip
            found |= {node: (trace["name"], *row) for node, *row in rows}
    return found


def written(spec):
    """Every label and note."""
    return [text for trace in spec["data"] for text in trace.get("text", ())]


@settings(max_examples=20)
@given(steps(max_nodes=60), st.integers(1, 64), st.integers(0, 59))
def test_every_node_has_its_place_or_is_counted_in_a_fold_and_the_path_is_never_folded(step, rows, extra):
    whole, kept = graph(step), min(extra, len(step.tree) - 1)
    small = fold(whole, rows, [kept])
    held = [node for at in small.nodes.values() for node in at.get("folded", ())]
    assert Counter(held) + Counter(node for node in small if node in whole) == Counter(whole)
    assert {0, kept, *step.accepted} <= set(small)
    assert (OWN in small) == (step.bonus is not None)
    assert all(len(at["folded"]) > 1 and at["label"] == f"+{len(at['folded'])}"
               for at in small.nodes.values() if "folded" in at)  # fmt: skip
    leaves = sum(not small.out_degree(node) for node in small)
    must = len(fold(whole, 0, [kept]))
    assert leaves <= max(rows, must)


@settings(max_examples=20)
@given(steps(max_nodes=60), st.integers(300, 1200), st.integers(1, 20))
def test_no_two_links_cross_and_no_label_reaches_the_next_column(step, room, rows):
    small = fold(graph(step), rows)
    found = places(small, columns([small], room), 400.0, (24.0, 40.0))
    height = leaf_rows(small)
    assert len(set(found.at.values())) == len(small)
    for node in small:
        below = [height[child] for child in small.successors(node)]
        assert below == sorted(below)
        assert not below or height[node] == (below[0] + below[-1]) / 2
    for depth, left in enumerate(found.columns.x[1:]):
        assert all(found.label_end(node) < left - 9 for node in small if small.nodes[node]["depth"] == depth)
    for depth in range(len(found.columns.x)):  # leaf order: subtrees do not interleave
        order = sorted((node for node in small if small.nodes[node]["depth"] == depth), key=height.get)
        above = [height.get(small.nodes[node]["parent"], 0) for node in order]
        assert above == sorted(above)


@pytest.mark.parametrize("make", SAMPLES)
def test_every_moment_is_a_figure_of_the_size_asked_for(make):
    step = make()
    for position in playback.positions(step):
        spec = tree_spec(step, min(3, len(step.tree) - 1), position=position, width=600, height=360)
        assert (spec["layout"]["width"], spec["layout"]["height"]) == (600, 360)
        assert len(spec["data"]) == len(tree_spec(one_node())["data"]), "a fixed number of traces"
        assert len(json.dumps(spec)) < 40_000
        sizes = [t["textfont"]["size"] for t in spec["data"] if "textfont" in t]
        assert min(sizes) >= 11
        if position.phase in {"verify", "learn"}:
            figure(spec, "dark")


def test_a_large_tree_is_folded_to_the_height_and_a_selected_node_is_never_folded():
    step = large()
    shown = marks(tree_spec(step))
    assert all(0 <= y <= 420 for _, _, y, *_ in shown.values())
    least = min(range(256), key=lambda node: step.nodes[node].path_prob)
    assert least not in shown
    assert least in marks(tree_spec(step, least))
    some = next(node for node in shown if node)
    assert marks(tree_spec(step, some)).keys() == shown.keys(), "what is shown anyway changes nothing"


@settings(max_examples=10)
@given(steps())
@example(odd_tokens())
def test_every_token_and_number_can_be_read_and_odd_tokens_stay_text(step):
    spec = tree_spec(step, width=3000, height=2000)
    texts, listed = written(spec), words(table(step))
    for node in step.nodes:
        shown = markup.label(node.token, step.texts)
        assert f"{node.index} {escape(markup.clip(shown, 16))}" in texts
        assert shown in listed
    tips = [mark[-1].replace("<br>", "") for mark in marks(spec).values()]
    assert not any(sign in text for text in (*texts, *tips) for sign in "<>$\n\u202e\x00")


def test_a_growing_tree_does_not_jump():
    last = marks(tree_spec(sixty_nodes()))
    for position in playback.positions(sixty_nodes()):
        now = marks(tree_spec(sixty_nodes(), position=position))
        assert all(now[node][1:3] == last[node][1:3] for node in now)


def test_the_path_drawn_is_the_committed_one_and_probabilities_are_seen():
    step, spec = five_nodes(), tree_spec(five_nodes())
    path = next(trace for trace in spec["data"] if trace["name"] == "committed")
    assert path["x"].count(None) == len(step.accepted) + 1
    found = marks(spec)
    for name, place in (("path_prob", 3), ("target_prob", 4)):
        ranks = sorted((1, 2, 3, 4), key=lambda node, name=name: getattr(step.nodes[node], name))
        assert ranks == sorted((1, 2, 3, 4), key=lambda node, place=place: found[node][place])
    for node in step.nodes:
        for fact in (f"id {node.token}", f"node {node.index}", f"draft {node.draft_prob:.3f}", "depth", node.verdict,
                     f"path {node.path_prob:.3f}", node.reason, "KV slot", "mask row", "from "):  # fmt: skip
            assert fact in found[node.index][-1]


def test_phases_say_what_is_known_by_then():
    step = five_nodes()
    drafted = tree_spec(step, position=PlaybackPosition("draft", 1))
    assert [mark[0] for mark in marks(drafted).values()] == ["root", *[LOOKS["drafted"].label] * 2]
    assert any("×2" in text for text in written(drafted))
    assert "expanded into 2, middling confidence" in marks(drafted)[0][-1]
    assert not any("choice" in mark[-1] for mark in marks(drafted).values())
    verified = tree_spec(step, position=PlaybackPosition("verify"))
    assert sum(text.startswith("→") for text in written(verified)) == 5
    walked = [tree_spec(step, position=PlaybackPosition("accept", level)) for level in (1, 2, 3)]
    assert [sum(mark[0] == "accepted" for mark in marks(spec).values()) for spec in walked] == [1, 2, 2]
    committed = tree_spec(step, position=PlaybackPosition("commit"))
    assert any(trace["opacity"] < 1 for trace in committed["data"] if "opacity" in trace)


def test_what_was_predicted_is_told_from_what_came_of_it_by_words():
    """Node 1 and what was marked after it, before the target's pass, at its first decision, and in the end."""
    step = five_nodes()
    right, wrong = step.accepted[0], next(node for node in (4, 3, 2, 1) if node not in step.accepted)
    marked = frozenset({right, wrong})

    def noted(phase: PlaybackPosition) -> set[str]:
        (notes,) = [
            trace for trace in tree_spec(step, position=phase, marked=marked)["data"] if trace["name"] == "notes"
        ]
        return {said for said in notes["text"] if said[0] in "☑✓✗○"}

    assert noted(PlaybackPosition("flatten")) == {"☑ yours"}
    assert {said[0] for said in noted(PlaybackPosition("verify"))} == {"☑"}
    assert {said[0] for said in noted(PlaybackPosition())} >= {"✓", "✗"}
    assert ("○ missed" in noted(PlaybackPosition())) == (len(step.accepted) > 1)


def test_arrow_keys_reach_what_is_drawn_and_rings_stand_around_it():
    step = sixty_nodes()
    layout = tree_spec(step, 5)["layout"]["meta"]
    assert layout["selected"] == 5
    nodes = {row[0]: row for row in layout["nodes"]}
    assert all(row[1] in nodes or row[0] == 0 for row in layout["nodes"])
    ring = next(trace for trace in tree_spec(step, 5)["data"] if trace["name"] == "changed, selected")
    assert (ring["x"], ring["y"]) == ([nodes[5][2]], [nodes[5][3]])
    new = next(trace for trace in tree_spec(step, position=PlaybackPosition("draft", 2))["data"]
               if trace["name"] == "changed, selected")  # fmt: skip
    assert len(new["x"]) == (step.tree.depth == 2).sum()


def test_what_is_seen_first_is_the_root_and_the_path_or_as_much_of_it_as_can_be_read():
    for step in (sixty_nodes(), large(), odd_tokens(), chain(9)):
        spec = tree_spec(step)
        first, last = spec["layout"]["xaxis"]["range"]
        path = [place for node, (_, *place) in marks(spec).items() if node in {0, *step.accepted}]
        assert all(first < x < last and 0 <= y <= 420 for x, y, *_ in path)
    seen, fit = tree_spec(chain())["layout"]["xaxis"]["range"], tree_spec(chain())["layout"]["meta"]["fit"]["x"]
    assert seen[0] == 0
    assert seen[1] < 700 < fit[1]


def test_small_trees_stand_on_the_same_columns_and_in_present_mode_all_is_larger():
    one, other = small_tree_specs([graph(five_nodes()), graph(sixty_nodes())], ["one", "other"], width=500)
    assert one["layout"]["xaxis"]["tickvals"] == other["layout"]["xaxis"]["tickvals"]
    assert one["layout"]["height"] < other["layout"]["height"] < 400
    assert not marks(one)
    assert figure(one)
    assert figure(other)
    plain, large_type = (tree_spec(five_nodes(), width=1200, height=600, scale=scale) for scale in (1, 1.6))
    assert all(marks(large_type)[node][3] > 1.5 * marks(plain)[node][3] for node in range(5))


@settings(max_examples=10)
@given(steps())
def test_the_legend_names_every_sign_of_the_moment(step):
    for position in playback.positions(step):
        said = words(legends.legend_html(step, position))
        assert all(LOOKS[kind].label in said for kind in playback.verdicts(step, position))
        assert ("border" in said) == position.reached("verify")
    assert "ancestor" in said
    assert "ancestor" not in legends.legend_html(step, mask=False)


def test_symbols_and_colours_say_the_same():
    assert len({look.color for look in LOOKS.values()}) == len(LOOKS)
    closed = [(look.symbol, look.filled) for name, look in LOOKS.items() if name != "drafted"]
    assert len(set(closed)) == len(closed), "only drafted and not reached are both open circles, never at once"
    assert {look.symbol for look in LOOKS.values()} <= set(legends.GLYPHS)


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


TARGET = random_probs(24, 3, low=0.5, high=2.5)
DRAFT = mixed_probs(TARGET, random_probs(24, 4), 0.15)


@pytest.fixture(scope="module")
def iterations() -> list[Step]:
    strategy = speclab.FixedTree(depth=3, branching=2)
    run = speclab.Session(table_pair(TARGET, DRAFT, 24), strategy, PROMPT, max_new_tokens=24)
    run.run()
    return run.steps


def placed(spec) -> dict[str, tuple[str, float, float]]:
    """Where each node and the target's own token is drawn, and as what, by the first line of its tooltip."""
    return {
        hover: (trace["name"], x, y)
        for trace in spec["data"] if trace.get("meta") == {"click": "node"}
        for hover, x, y in zip(trace["hovertext"], trace["x"], trace["y"], strict=True)
    }  # fmt: skip


def seen(step: Step, **changes):
    """The picture and the sentence of what these changes would have made."""
    found = what_if(step, in_force(step).changed(**changes))
    return found, whatif_spec(step, found), whatif_sentence(step, found)


def test_what_would_be_gone_or_new_is_told_apart(iterations):
    now = placed(tree_spec(iterations[0]))
    _, spec, _ = seen(iterations[0], depth=2)
    assert [kind for kind, *_ in placed(spec).values()].count("would not be drafted") == 8, "the lowest level"
    assert sum("would not be drafted" in hover for hover in placed(spec)) == 8
    struck = next(trace for trace in spec["data"] if trace["name"] == "struck labels")
    assert struck["textfont"]["lineposition"] == "through"
    _, spec, said = seen(iterations[0])
    assert placed(spec) == now
    assert "would have been the same: 15" in said
    _, spec, said = seen(iterations[0], branching=3)
    new = sum("would be drafted as well" in hover for hover in placed(spec))
    assert new == len(placed(spec)) - 16 > 0
    assert len(next(trace for trace in spec["data"] if trace["name"] == "changed, selected")["x"]) == new
    assert any("→ ?" in trace.get("text", ()) for trace in spec["data"])
    assert "as far as the record knows" in said
    said = seen(iterations[0], depth=4)[-1]
    for fact in ("the record does not hold what the draft says", "Node 7", "and 5 more"):
        assert fact in said


def test_nodes_keep_their_places_while_a_threshold_moves(iterations):
    def nodes(spec):
        found = [trace for trace in spec["data"] if trace.get("meta") == {"click": "node"}]
        return {row[0]: row[1:] for t in found for row in zip(t["customdata"], t["x"], t["y"], strict=True)}

    for step in iterations[:4]:
        whole = nodes(seen(step)[1])
        for changes in ({"depth": 1}, {"node_budget": 6}, {"prune_probability": 0.3}):
            now = nodes(seen(step, **changes)[1])
            assert all(now[node][0] == whole[node][0] for node in whole if node is not None)
            assert now.keys() == whole.keys()


def test_the_path_is_the_one_the_target_would_take(iterations):
    found, spec, said = seen(next(step for step in iterations if len(step.accepted) == 3), depth=1)
    assert "3 nodes instead of 15, 1 accepted instead of 3" in said
    assert any(f"id {found.bonus}" in hover and "own token" in hover for hover in placed(spec))


def test_every_step_and_every_change_can_be_drawn(iterations):
    changes = {"depth": 1}, {"branching": 1}, {"branching": 8}, {"node_budget": 4}, {"prune_probability": 0.2}
    for change in changes:
        for step in iterations[::3]:
            found, spec, _ = seen(step, **change)
            figure(spec)
            folded = any("folded here" in hover for hover in placed(spec))
            own = found.bonus is not None
            assert folded or len(placed(spec)) == len(step.tree) + found.recorded.count(None) + own
