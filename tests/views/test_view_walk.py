from __future__ import annotations

from dataclasses import replace

from drawn import steps
from hypothesis import given, settings
from view_samples import drafted_root, ended_inside, five_nodes, one_node

from speclab.views import playback
from speclab.views.playback import WHOLE, Decision, PlaybackPosition


def test_a_node_below_one_that_is_not_shown_is_not_shown():
    """A record may lack the decision that led to a node: its children have nothing to hang on."""
    step = five_nodes()
    step = replace(step, events=tuple(event for event in step.events if event.node == 1 and event.kind == "expand"))
    assert playback.present(step, PlaybackPosition("draft", event=1)).tolist() == [True, False, False, False, False]


def test_the_walk_of_five_nodes():
    assert playback.decisions(five_nodes()) == (
        Decision(0, 1, (1, 2), 1),
        Decision(1, 2, (3, 4), 3),
        Decision(3, 3, (), None),
    )
    assert playback.own_kind(five_nodes()) == "bonus"
    assert playback.token_kinds(five_nodes()) == ((1, 1, "accepted"), (2, 3, "accepted"), (3, None, "bonus"))


def test_other_roots_and_ends():
    assert playback.decisions(one_node()) == (Decision(0, 1, (), None),)
    first, *_ = playback.decisions(drafted_root())
    assert first.at == -1
    assert first.winner == 0
    (refused,) = playback.decisions(drafted_root(accept=False))
    assert refused == Decision(-1, drafted_root(accept=False).bonus, (0,), None)
    assert playback.own_kind(drafted_root(accept=False)) == "corrected"
    assert [decision.winner for decision in playback.decisions(ended_inside())] == [1, 3]


@settings(max_examples=30)
@given(steps())
def test_moments_only_ever_add(step):
    seen, judged = 0, 0
    for moment in playback.positions(step):
        present, verdicts = playback.present(step, moment), playback.verdicts(step, moment)
        assert present.sum() >= seen
        known = sum(verdict != "drafted" for verdict in verdicts)
        assert known >= judged
        assert all(v in {"drafted", node.verdict} for v, node in zip(verdicts, step.nodes, strict=True))
        assert all(present[node] for node in playback.fresh(step, moment))
        seen, judged = present.sum(), known
    assert seen == judged == len(step.tree)
    assert playback.own_shown(step, WHOLE) == (step.bonus is not None)


@settings(max_examples=30)
@given(steps())
def test_event_by_event_ends_in_the_whole_tree(step):
    counts = [
        int(playback.present(step, PlaybackPosition("draft", event=k)).sum()) for k in range(len(step.events) + 1)
    ]
    assert counts[0] == 1
    assert counts == sorted(counts)
    assert counts[-1] == len(step.tree)
    assert playback.events_until(step, PlaybackPosition("draft")) == step.events


@settings(max_examples=30)
@given(steps())
def test_nothing_is_judged_before_the_walk(step):
    for moment in playback.positions(step):
        if not moment.reached("accept"):
            assert set(playback.verdicts(step, moment)) <= {"root", "drafted"}
            assert not playback.own_shown(step, moment)
