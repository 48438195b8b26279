"""Sentences and tables: what the pictures say, in words."""

from __future__ import annotations

from dataclasses import replace

from drawn import steps
from hypothesis import given, settings
from picture import HTML, parse
from view_samples import drafted_root, ended_inside, five_nodes, odd_tokens, one_node

from speclab.trace.records import Adaptation, Event
from speclab.views import draft_tree, explain, markup, playback
from speclab.views.playback import PlaybackPosition


def test_one_sentence_an_iteration():
    assert explain.summary(five_nodes()) == "Iteration 3: 4 drafted in 2 levels, 2 accepted, bonus '␣said'."
    assert explain.summary(one_node()) == "Iteration 1: nothing drafted, bonus '␣old'."
    assert explain.summary(drafted_root(accept=False)) == (
        "Iteration 1: 7 drafted in 4 levels, 0 accepted, corrected '␣and'."
    )
    assert "the text ended inside the path" in explain.summary(ended_inside())
    assert explain.summary(replace(five_nodes(), note="A tie.")).endswith("'␣said'. A tie.")


def test_one_sentence_a_moment():
    told = [explain.position_summary(five_nodes(), moment) for moment in playback.positions(five_nodes())]
    assert told == [
        "Draft: the root alone.",
        "Draft, level 1 of 2: 2 nodes added.",
        "Draft, level 2 of 2: 2 nodes added.",
        "Flatten: 5 nodes in breadth-first order, each sees the prefix of 12 and its ancestors.",
        "Verify: one target pass over 5 rows gives the target's choice after every node.",
        "Accept, decision 1 of 3: after node 0 the target chose '␣old'; node 1 carries it, go down.",
        "Accept, decision 2 of 3: after node 1 the target chose '␣woman'; node 3 carries it, go down.",
        "Accept, decision 3 of 3: after node 3 the target chose '␣said'; there is no child, so it is the bonus token.",
        "Commit: 3 tokens added; the caches keep the path and drop the rest.",
        "Adapt: the window is not full yet.",
    ]
    assert explain.position_summary(five_nodes(), PlaybackPosition("draft", event=1)) == (
        "Draft, decision 1 of 5: node 0 expanded into 2, middling confidence."
    )


def test_adaptation_names_what_changed():
    step = replace(five_nodes(), adaptation=Adaptation("acceptance is high", {"a": 1, "b": 2}, {"a": 1, "b": 3}))
    assert explain.position_summary(step, PlaybackPosition("adapt")) == "Adapt: acceptance is high: b 2 → 3."


def test_why_of_five_nodes():
    step = five_nodes()
    assert explain.why(step, 0) == (
        "Node 0 '␣the' is the root, the newest committed token; expanded into 2, middling confidence; "
        "after it the target chose '␣old'."
    )
    assert explain.why(step, 3).startswith(
        "Node 3 '␣woman' was proposed by draft at depth 2 after '␣old' with 70% (its path 42%); accepted, "
    )
    assert "rejected, the target chose another token" in explain.why(step, 4)


@settings(max_examples=20)
@given(steps())
def test_every_node_has_one_sentence_and_a_table(step):
    for node in range(len(step.tree)):
        told = explain.why(step, node)
        assert told.endswith(".")
        assert step.nodes[node].verdict in told
        assert markup.quoted(step.nodes[node].token, step.texts) in told
        parse(explain.node_table(step, node), HTML)
    parse(explain.events_table(step) + draft_tree.table(step), HTML)
    for moment in playback.positions(step):
        assert explain.position_summary(step, moment).endswith(".")


def test_pruned_children_are_told_together():
    prune = Event("prune", 1, "path probability 0.01 < 0.05", {"token": 4, "path_prob": 0.01})
    step = replace(five_nodes(), events=(*five_nodes().events, prune, prune))
    assert "2 children were pruned, the first with path probability 0.01 < 0.05" in explain.why(step, 1)
    assert "token &#x27;␣to&#x27;" in explain.events_table(step)
    note = explain.position_summary(step, PlaybackPosition("draft", event=7))
    assert note == "Draft, decision 7 of 7: node 1 a child was pruned, path probability 0.01 < 0.05."


def test_one_event_may_stand_for_several_pruned_children():
    """A tree cut to the best of all candidates records what a node lost in one event."""
    prune = Event("prune", 1, "path probability 0.01, and the 5 best have 0.03 and more", {"token": 4, "dropped": 7})
    step = replace(five_nodes(), events=(*five_nodes().events, prune))
    sentence = "7 children were pruned, the first with path probability 0.01, and the 5 best have 0.03 and more"
    assert f"; {sentence}; after it" in explain.why(step, 1)
    assert (
        explain.position_summary(step, PlaybackPosition("draft", event=6))
        == f"Draft, decision 6 of 6: node 1 {sentence}."
    )


def test_small_probabilities_keep_a_digit():
    assert [explain.percent(p) for p in (0, 0.00001, 0.004, 0.07, 0.934, 1)] == [
        "0%",
        "<0.1%",
        "0.4%",
        "7.0%",
        "93%",
        "100%",
    ]


def test_markup_in_tables_stays_text():
    step = odd_tokens()
    for node in range(len(step.tree)):
        assert "<script" not in explain.node_table(step, node)
