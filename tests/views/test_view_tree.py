"""The draft tree: every node with its token, folding that loses nobody, verdicts told by more than colour."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from view_samples import ODD, five_nodes, large, odd_tokens, sixty_nodes, steps, words

from speclab.views import draft_tree, markup, playback, tree_layout
from speclab.views.palette import LOOKS
from speclab.views.tree_layout import OWN


@settings(max_examples=20)
@given(steps(max_nodes=60), st.integers(1, 64), st.integers(0, 59))
def test_every_node_has_its_place_or_is_counted_in_a_fold_and_the_path_is_never_folded(step, limit, extra):
    tree, kept = step.tree, min(extra, len(step.tree) - 1)
    shown = tree_layout.choose_nodes(tree, step.accepted, [kept], limit)
    places = tree_layout.place_nodes(tree, shown, None if step.bonus is None else playback.last_on_path(step))
    assert len({(place.depth, place.row) for place in places}) == len(places), "no two in one place"
    assert {*step.accepted, kept} <= shown
    assert all(int(tree.parent[node]) in shown for node in shown if node)
    assert all(place.depth == tree.depth[place.node] for place in places if place.node not in {None, OWN})
    assert sum(p.node is not None and p.node != OWN for p in places) + sum(p.folded for p in places) == len(tree)
    assert (OWN in [place.node for place in places]) == (step.bonus is not None)


def test_a_large_tree_is_folded_and_a_small_one_is_not():
    step = large()
    places = tree_layout.place_nodes(step.tree, tree_layout.choose_nodes(step.tree, step.accepted))
    assert 50 <= len(places) <= tree_layout.FOLD_ABOVE + 8
    assert tree_layout.choose_nodes(sixty_nodes().tree, ()) == frozenset(range(60))


@settings(max_examples=10)
@given(steps())
def test_every_token_can_be_read_in_the_tree(step):
    shown = words(draft_tree.tree_svg(step))
    assert all(markup.clip(markup.label(node.token, step.texts), tree_layout.COLUMNS) in shown for node in step.nodes)
    listed = words(draft_tree.table(step))
    assert all(markup.label(node.token, step.texts) in listed for node in step.nodes)


def test_odd_tokens_stay_text():
    shown = words(draft_tree.tree_svg(odd_tokens()))
    assert all(markup.clip(markup.display(text), tree_layout.COLUMNS) in shown for text in ODD)


def test_a_growing_tree_does_not_jump():
    last = {mark.node: (mark.x, mark.y) for mark in tree_layout.scene(sixty_nodes()).marks}
    for position in playback.positions(sixty_nodes()):
        assert all((m.x, m.y) == last[m.node] for m in tree_layout.scene(sixty_nodes(), position).marks)


def test_the_path_drawn_is_the_committed_one_and_probabilities_are_seen():
    drawn = tree_layout.scene(five_nodes())
    assert sum(link.kind == "path" for link in drawn.links) == len(five_nodes().accepted) + 1
    marks = {mark.node: mark for mark in drawn.marks}
    for name, seen in (("path_prob", "radius"), ("target_prob", "border")):
        ranks = [sorted((1, 2, 3, 4), key=rank) for rank in (
            lambda node, name=name: getattr(five_nodes().nodes[node], name),
            lambda node, seen=seen: getattr(marks[node], seen),
        )]  # fmt: skip
        assert ranks[0] == ranks[1]


def test_symbols_letters_and_colours_say_the_same():
    assert len({look.color for look in LOOKS.values()}) == len({look.letter for look in LOOKS.values()}) == len(LOOKS)
    closed = [(look.symbol, look.filled) for name, look in LOOKS.items() if name != "drafted"]
    assert len(set(closed)) == len(closed), "only drafted and not reached are both open circles, never at once"
