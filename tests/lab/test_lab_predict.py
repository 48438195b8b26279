"""Predict mode: nothing gives the answer away, Reveal says what came of it and why, and what was revealed stays so."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from ipywidgets import HTML
from lab_tools import click, every, settle

from speclab import Autoregressive, DynaTree, FixedTree, LinearSpeculation, Lookahead, PromptLookup
from speclab.trace.metrics import Counts
from speclab.trace.records import Adaptation, Step

BUSHY = DynaTree(low_confidence=0.9, high_confidence=0.99, prune_probability=0.02, history="off")


def otherwise(step: Step) -> Step:
    """The same draft, of which the target thought quite differently."""
    nodes = [
        replace(record, target_prob=0.123, target_choice=9, reason="otherwise", entropy=7.0, target_top=((9, 0.5),))
        if record.verdict == "root"
        else replace(record, target_prob=0.123, target_choice=9, verdict="rejected", reason="otherwise", entropy=7.0)
        for record in step.nodes
    ]
    return replace(
        step, nodes=tuple(nodes), accepted=(), committed=(9,), bonus=9, caches=(), note="otherwise",
        adaptation=Adaptation("otherwise"), seconds={}, counts=Counts(drafted=step.counts.drafted, seconds=9.0),
    )  # fmt: skip


def on_screen(lab) -> list[str]:
    """All that a reader, a screen reader or a page without a kernel gets of the lab, tabs that are not there apart."""
    hidden = (
        {widget.model_id for widget in every(lab.panels.tabs)} if lab.panels.tabs.layout.display == "none" else set()
    )
    slots = {slot.name: slot for slot in every(lab) if hasattr(slot, "drawing") and slot.model_id not in hidden}
    shown = [slot.drawing for slot in slots.values()]
    shown += [widget.value for widget in every(lab) if isinstance(widget, HTML) and widget.model_id not in hidden]
    shown = [re.sub(r"memory: [^<]*", "", one) for one in shown]
    return [*shown, lab.state.status, lab.snapshot(), lab._repr_mimebundle_()["text/plain"]]


@pytest.fixture
def asked(make):
    """A lab that asks about its second iteration."""
    lab = make(strategy=BUSHY)
    lab.step()
    lab.predicting()
    lab.step()
    assert lab.state.frame.asked
    return lab


@pytest.mark.parametrize(
    "strategy",
    [
        BUSHY,
        BUSHY.changed(root="drafted", commit="rebuild"),
        *(kind() for kind in (LinearSpeculation, FixedTree, PromptLookup, Lookahead)),
    ],
    ids=lambda one: f"{type(one).__name__}-{getattr(one, 'root', '')}",
)
@pytest.mark.parametrize("end", [3, 6], ids=["the last", "in between"])
def test_nothing_on_the_screen_depends_on_what_is_to_be_predicted(make, strategy, end):
    lab = make(strategy=strategy)
    lab.run()
    trace = lab.state.trace
    at = next(i for i, step in enumerate(trace.steps) if i > 1 and len(step.tree) > 1)
    steps = trace.steps[: at + end - 2]
    screens = []
    for hidden in (steps[at], otherwise(steps[at])):
        lab.predicting(False)
        made = replace(trace, steps=(*steps[:at], hidden, *steps[at + 1 :]))
        lab.open_trace(lambda made=made: made, "a run")
        lab.predicting()
        while not lab.state.frame.asked or lab.state.step.index < at:
            lab.step()
        screens.append(on_screen(lab))
        drafted = lab.state.step
        assert (drafted.accepted, drafted.committed, drafted.bonus) == ((), (), None)
        assert {(node.verdict, node.reason, node.target_prob, node.target_top) for node in drafted.nodes} <= {
            ("root", "", None, ()), ("not reached", "", None, ()),
        }  # fmt: skip
        lab.predict(1)
        assert not lab.state.error
        lab.phase("draft", 1)
        lab.phase("flatten")
        screens[-1] += on_screen(lab)
    assert [pair for pair in zip(*screens, strict=True) if pair[0] != pair[1]] == []


def test_marked_nodes_are_counted_and_explained(asked):
    lab = asked
    step = lab.session.steps[1]
    assert lab.state.cursor == 1
    assert lab.state.trace.steps == lab.session.steps[:1]
    right = step.accepted[-1] if step.accepted else 0
    lab._hear({"node": right})
    assert settle(lab)
    assert lab.state.frame.marked == {*step.accepted}
    assert lab.transport.step.description == "Reveal"
    click(lab, lab.transport.step)
    assert not lab.state.error
    assert lab.state.cursor == 2
    assert "✓ Right: you marked" in lab.panels.predict.said.value
    assert "the target chose" in lab.panels.predict.said.value
    assert lab.state.status.startswith("Iteration 2: ")
    assert "1 of 1 prediction was right." in lab.panels.predict.score.value
    lab.step()
    wrong = [
        node.index
        for node in lab.session.steps[2].nodes
        if node.verdict != "root" and node.index not in lab.session.steps[2].accepted
    ]
    lab.predict(wrong[-1])
    lab.step()  # Step reveals
    assert "✗ You marked" in lab.panels.predict.said.value
    assert "1 of 2 predictions was right." in lab.panels.predict.score.value
    assert "✗ wrong" in lab.panels.views["tree"].drawing


def test_what_was_revealed_stays_revealed_and_the_next_is_asked_about(asked):
    lab = asked
    lab.reveal()
    said = lab.state.trace.steps[1]
    lab.back()
    assert lab.state.cursor == 1
    lab.step()
    assert not lab.state.frame.asked
    assert lab.state.step is said
    lab.step()
    assert lab.state.frame.asked
    lab.back()
    assert (lab.state.frame.asked, lab.state.cursor, len(lab.state.trace.steps)) == (False, 2, 2)
    lab.step()
    assert lab.state.frame.asked, "it was not revealed"
    assert "prediction" not in lab.panels.predict.score.value, "nothing was predicted"


def test_tokens_and_hands_are_predictions_too(asked):
    lab, panel = asked, asked.panels.predict
    tokens = len(lab.session.steps[1].committed)
    lab.predict(1)
    panel.tokens.value = tokens
    assert settle(lab)
    assert lab.state.frame.marked is None
    assert f"✓ Right: you said {tokens}" in lab.reveal()
    lab.step()
    tokens = len(lab.session.steps[2].committed)
    hands = [2] * (panel.tokens.options[-1])
    hands[tokens - 1] = 5
    panel.hands.value = ", ".join(map(str, hands))
    assert settle(lab)
    said = lab.reveal()
    assert f"✓ Right: most hands said {tokens}" in said
    assert f"5 of {sum(hands)} hands were right" in said


def test_phases_reveal_step_by_step(asked):
    lab = asked
    assert lab.state.phase == "flatten"
    lab.predict(0)
    click(lab, lab.transport.phases.back)
    assert (lab.state.phase, lab.state.frame.asked) == ("draft", True)
    click(lab, lab.transport.phases.next)
    click(lab, lab.transport.phases.next)
    assert (lab.state.phase, lab.state.frame.asked, lab.state.cursor) == ("verify", False, 2)
    assert "marked" not in lab.panels.predict.said.value, "it would give the end away"
    assert lab.panels.predict.score.layout.display == "none", "so would the score"
    lab.phase("learn")
    assert "ou marked none" in lab.panels.predict.said.value


def test_a_run_asks_nothing_and_says_so(asked):
    lab = asked
    lab.run(until=lambda step: step.index == 5)
    assert (lab.state.cursor, lab.state.frame.asked) == (6, False)
    assert "5 iterations shown without being asked about" in lab.state.status
    lab.step()
    assert lab.state.frame.asked


def test_play_waits_for_a_prediction(asked):
    asked.reveal()
    asked.play(1000)
    assert asked.state.frame.asked
    assert asked.state.phase == "flatten"
    assert asked.state.cursor == 2


def test_a_lab_that_opens_with_a_recorded_run_asks_about_it(make):
    lab = make("mini", prompt=None, max_new_tokens=128, predict=True)
    assert lab.state.frame.asked
    assert lab.state.cursor == 0
    assert not lab.state.trace.steps
    lab.predict(tokens=2)
    lab.step()
    assert (lab.state.cursor, len(lab.state.trace.steps)) == (1, 1)
    lab.step()
    assert lab.state.frame.asked
    lab.predicting(False)
    assert (lab.state.cursor, lab.state.frame.asked) == (2, False)
    assert len(lab.state.trace.steps) > 5
    assert lab.session is None
    assert "1 prediction" in lab.panels.predict.score.value


def test_where_nothing_is_drafted_nothing_is_asked(make):
    lab = make(strategy=Autoregressive(), predict=True)
    lab.step()
    lab.step()
    assert (lab.state.cursor, lab.state.frame.asked) == (2, False)


@pytest.mark.parametrize("wrong", [{"nodes": 99}, {"tokens": 99}, {"nodes": [1, 2]}, {"nodes": []}])
def test_what_cannot_be_predicted_is_said(asked, wrong):
    asked.predict(**wrong)
    assert asked.state.error
    assert asked.state.frame.marked is None
    asked.status.dismiss()
    asked.reveal()
    asked.predict(1)
    assert asked.state.error.startswith("Nothing is asked")
