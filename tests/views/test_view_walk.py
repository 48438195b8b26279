"""Playing an iteration back: what is there and what is judged at each position."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from view_samples import drafted_root, ended_inside, five_nodes, one_node, steps

from speclab.views import playback
from speclab.views.playback import WHOLE, Decision, PlaybackPosition


def test_the_accept_path_of_five_nodes_and_of_other_roots_and_ends():
    found = (Decision(0, 1, (1, 2), 1), Decision(1, 2, (3, 4), 3), Decision(3, 3, (), None))
    assert playback.decisions(five_nodes()) == found
    assert playback.token_kinds(five_nodes()) == ((1, 1, "accepted"), (2, 3, "accepted"), (3, None, "bonus"))
    assert playback.decisions(one_node()) == (Decision(0, 1, (), None),)
    first, *_ = playback.decisions(drafted_root())
    assert (first.at, first.winner) == (-1, 0)
    refused = drafted_root(accept=False)
    assert playback.decisions(refused) == (Decision(-1, refused.bonus, (0,), None),)
    assert playback.own_kind(refused) == "corrected"
    assert [decision.winner for decision in playback.decisions(ended_inside())] == [1, 3]


@settings(max_examples=30)
@given(steps())
def test_positions_only_ever_add_and_nothing_is_judged_before_the_acceptance(step):
    seen, judged = 0, 0
    for position in playback.positions(step):
        present, verdicts = playback.present(step, position), playback.verdicts(step, position)
        known = sum(verdict != "drafted" for verdict in verdicts)
        assert present.sum() >= seen
        assert known >= judged
        assert all(v in {"drafted", node.verdict} for v, node in zip(verdicts, step.nodes, strict=True))
        assert all(present[node] for node in playback.fresh(step, position))
        if not position.reached("accept"):
            assert set(verdicts) <= {"root", "drafted"}
            assert not playback.own_shown(step, position)
        seen, judged = present.sum(), known
    assert seen == judged == len(step.tree)
    assert playback.own_shown(step, WHOLE) == (step.bonus is not None)


@settings(max_examples=30)
@given(steps())
def test_event_by_event_ends_in_the_whole_tree(step):
    shown = [playback.present(step, PlaybackPosition("draft", event=k)) for k in range(len(step.events) + 1)]
    counts = [int(present.sum()) for present in shown]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (1, len(step.tree))
    assert playback.events_until(step, PlaybackPosition("draft")) == step.events


def test_a_node_below_one_that_is_not_shown_is_not_shown():
    """A record may lack the decision that led to a node: its children have nothing to hang on."""
    step = five_nodes()
    step = replace(step, events=tuple(event for event in step.events if event.node == 1 and event.kind == "expand"))
    assert playback.present(step, PlaybackPosition("draft", event=1)).tolist() == [True, False, False, False, False]
