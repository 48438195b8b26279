"""An iteration played back, and what the pictures say in words: sentences and tables."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from view_samples import drafted_root, ended_inside, five_nodes, odd_tokens, one_node, parse, steps

from speclab.trace.records import Adaptation, Event
from speclab.views import explain, markup, playback
from speclab.views.playback import WHOLE, Decision, PlaybackPosition


def test_one_sentence_per_iteration():
    for step, facts in (
        (five_nodes(), ("Iteration 3", "4 drafted in 2 levels", "2 accepted", "bonus '␣said'")),
        (one_node(), ("nothing drafted", "bonus '␣old'")),
        (drafted_root(accept=False), ("7 drafted", "0 accepted", "corrected '␣and'")),
        (ended_inside(), ("the text ended inside the path",)),
        (replace(five_nodes(), note="A tie."), ("'␣said'. A tie.",)),
    ):
        assert [fact for fact in facts if fact not in explain.summary(step)] == []


def test_one_sentence_per_position():
    facts = (
        "root alone", "level 1 of 2: 2 nodes", "level 2 of 2: 2 nodes", "5 nodes in breadth-first order", "over 5 rows",
        "target chose '␣old'; node 1", "target chose '␣woman'; node 3", "chose '␣said'; there is no child", "3 tokens",
        "the window is not full yet",
    )  # fmt: skip
    told = [explain.position_summary(five_nodes(), position) for position in playback.positions(five_nodes())]
    assert [fact for fact, said in zip(facts, told, strict=True) if fact not in said] == []
    step = replace(five_nodes(), adaptation=Adaptation("acceptance is high", {"a": 1, "b": 2}, {"a": 1, "b": 3}))
    said = explain.position_summary(step, PlaybackPosition("learn"))
    assert "acceptance is high: b 2 → 3." in said, "what changed, and nothing else"


@settings(max_examples=20)
@given(steps())
def test_every_node_has_its_reason_and_a_table(step):
    for node in step.nodes:
        told = explain.why(step, node.index)
        assert told.endswith(".")
        assert node.verdict in told
        assert markup.quoted(node.token, step.texts) in told
        parse(explain.node_table(step, node.index))
    parse(explain.events_table(step))
    assert all(explain.position_summary(step, position).endswith(".") for position in playback.positions(step))


def test_why_names_source_probabilities_and_reason():
    step = five_nodes()
    for node, facts in (
        (0, ("is the root", "expanded into 2", "the target chose '␣old'")),
        (3, ("proposed by draft at depth 2 after '␣old' with 70% (its path 42%)", "accepted")),
        (4, ("rejected, the target chose another token",)),
    ):
        assert all(fact in explain.why(step, node) for fact in facts)
    assert "<script" not in "".join(explain.node_table(odd_tokens(), node) for node in range(23))


def test_pruned_children_are_told_together():
    """By one event each, or by one event for all that a node lost."""
    for events, lost in ((2, {}), (1, {"dropped": 2})):
        pruned = [Event("prune", 1, "path probability 0.01 < 0.05", {"token": 4, **lost})] * events
        step = replace(five_nodes(), events=(*five_nodes().events, *pruned))
        assert "2 children were pruned, the first with path probability 0.01 < 0.05" in explain.why(step, 1)


def test_small_probabilities_keep_a_digit():
    said = {0: "0%", 0.00001: "<0.1%", 0.004: "0.4%", 0.07: "7.0%", 0.934: "93%", 1: "100%"}
    assert {prob: explain.percent(prob) for prob in said} == said


def test_what_a_sentence_names_is_a_link_and_the_words_stay():
    for said, links in (
        ("Iteration 3: node 6 <b>was</b> rejected.", ["node 6"]),
        ("Nodes 3, 5 and 12 came after iteration 4.", ["Nodes 3", "5", "12", "iteration 4"]),
        ("Flatten: 5 nodes in order; 2 of 12 nodes '&amp; node'.", []),
    ):
        root = parse(explain.linked(said))
        assert "".join(root.itertext()) == said
        found = [*root.iter("a")]
        assert [link.text for link in found] == links
        assert all(link.text.endswith(link.get("data-node") or link.get("data-iteration")) for link in found)


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
