from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from drawn import steps
from hypothesis import given, settings
from hypothesis import strategies as st
from picture import HTML, check_svg, parse, texts
from view_samples import ODD, five_nodes, large, odd_tokens, sixty_nodes

from speclab.trace.records import Event
from speclab.views import draft_tree, markup, playback, tree_layout
from speclab.views.palette import LOOKS
from speclab.views.playback import PlaybackPosition


@settings(max_examples=20)
@given(steps(), st.sampled_from(["light", "dark"]), st.data())
def test_every_picture_is_well_formed_at_every_position(step, theme, data):
    position = data.draw(st.sampled_from(playback.positions(step)))
    selected = data.draw(st.none() | st.integers(0, len(step.tree) - 1))
    root = check_svg(draft_tree.tree_svg(step, selected, theme, position=position, limit=data.draw(st.integers(4, 64))))
    drawn = [e.get("data-node") for e in root.iter() if e.get("data-node")]
    assert len(drawn) == len(set(drawn))


@settings(max_examples=20)
@given(steps())
def test_every_node_is_drawn_with_its_whole_token_in_the_tooltip(step):
    root = check_svg(draft_tree.tree_svg(step))
    groups = {e.get("data-node"): e for e in root.iter() if e.get("data-node")}
    for node in step.nodes:
        inner = groups[str(node.index)]
        shown = markup.label(node.token, step.texts)
        assert markup.clip(shown, tree_layout.COLUMNS) in texts(inner)
        assert markup.clip(shown, 24) in inner[0].text
    assert ("-1" in groups) == (step.bonus is not None)


def test_markup_in_tokens_stays_text():
    svg = draft_tree.tree_svg(odd_tokens())
    assert "<script" not in svg
    assert svg.count("</svg>") == 1
    assert "&lt;/svg&gt;" in svg
    parse(draft_tree.table(odd_tokens()), HTML)


def test_a_growing_tree_does_not_jump():
    step = sixty_nodes()
    last = {mark.node: (mark.x, mark.y) for mark in tree_layout.scene(step).marks}
    for position in playback.positions(step):
        for mark in tree_layout.scene(step, position).marks:
            assert (mark.x, mark.y) == last[mark.node]


def test_a_folded_tree_grows_with_its_stubs():
    step = large()
    stubs = [
        sum(m.kind == "stub" for m in tree_layout.scene(step, position).marks) for position in playback.positions(step)
    ]
    assert stubs[0] == 0
    assert stubs == sorted(stubs)
    assert stubs[-1] > 3


def test_links_end_at_their_child_and_the_path_is_the_committed_one():
    step = five_nodes()
    drawn = tree_layout.scene(step)
    places = {mark.node: mark for mark in drawn.marks}
    path = [link for link in drawn.links if link.kind == "path"]
    assert len(path) == len(step.accepted) + 1
    for link, child in zip(path, [*step.accepted, -1], strict=True):
        assert link.end[1] == places[child].y
        assert link.end[0] < places[child].x
        assert link.start[0] <= link.bend < link.end[0]


def test_size_is_path_probability_and_border_is_the_targets():
    marks = {mark.node: mark for mark in tree_layout.scene(five_nodes()).marks}
    probs = {node.index: node for node in five_nodes().nodes}
    for one, other in combinations([1, 2, 3, 4], 2):
        assert (probs[one].path_prob > probs[other].path_prob) == (marks[one].radius > marks[other].radius)
        assert (probs[one].target_prob > probs[other].target_prob) == (marks[one].border > marks[other].border)
    before = tree_layout.scene(five_nodes(), PlaybackPosition("flatten")).marks
    assert {mark.border for mark in before} == {0.75}, "the target's probability is not known yet"
    assert not any(line.startswith("target") for mark in before for line in mark.hover)


@pytest.mark.parametrize(
    ("phase", "note"), [("draft", ".60 ×2"), ("verify", "→␣old"), ("accept", "→␣old"), ("adapt", "")]
)
def test_the_note_under_the_root(phase, note):
    assert tree_layout.scene(five_nodes(), PlaybackPosition(phase)).marks[0].note == note


def noted(*events):
    """The note under the root while these drafting decisions are told."""
    return tree_layout.scene(replace(five_nodes(), events=events), PlaybackPosition("draft")).marks[0].note


def test_the_note_counts_every_pruned_child():
    grown = Event("expand", 0, "", {"confidence": 0.6, "branches": 10})
    best = Event("prune", 0, "", {"dropped": 8})
    assert noted(grown, best) == ".60 ×10−8"
    assert noted(grown, replace(best, values={"dropped": 10})) == ".60 ×10−10", "all of it is shown"
    assert noted(grown, Event("prune", 0, ""), Event("prune", 0, "")) == ".60 ×10−2"


def test_the_note_of_a_node_of_two_drafts_is_of_both():
    grown = Event("expand", 0, "", {"confidence": 0.6, "branches": 3})
    surer = Event("expand", 0, "", {"confidence": 0.7, "branches": 2})
    assert noted(grown, surer, Event("prune", 0, "", {"dropped": 2})) == ".70 ×5−2"
    assert noted(grown, Event("stop", 0, "")) == ".60 ×3"
    assert noted(Event("stop", 0, ""), Event("stop", 0, "")) == "■ stop"


def test_pictures_stay_small():
    assert len(draft_tree.tree_svg(large(), 200)) < 60_000
    assert len(draft_tree.tree_svg(sixty_nodes())) < 60_000


def test_symbols_and_colours_say_the_same():
    assert len({look.color for look in LOOKS.values()}) == len(LOOKS)
    assert len({look.letter for look in LOOKS.values()}) == len(LOOKS)
    closed = [(look.symbol, look.filled) for name, look in LOOKS.items() if name != "drafted"]
    assert len(set(closed)) == len(closed), "only drafted and not reached are both open circles, never at once"


def test_the_odd_tokens_are_all_there():
    labels = texts(check_svg(draft_tree.tree_svg(odd_tokens())))
    for text in ODD:
        assert markup.clip(markup.display(text), tree_layout.COLUMNS) in labels
