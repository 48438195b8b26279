"""What an action sends to the browser, counted: bounded, and nothing where nothing changed."""

from __future__ import annotations

import json
from collections import Counter
from threading import Event, Thread

import comm
import pytest
from ipywidgets import Text
from lab_tools import PATIENCE, Messages, decoded, every, settle

import speclab
from speclab.lab.screen import Slot
from speclab.lab.widgets import batch_updates, set_if_changed

STEP_BYTES, OTHER_MESSAGES, OPEN_BYTES, OPEN_MESSAGES = 60_000, 3, 150_000, 28
"""Of a step: all messages together; and those besides the one that redraws (buttons that go on or off); then both where
a tab of many pictures is open."""
BOTH = speclab.DualDraft(
    first=speclab.DynaTree(base_depth=3, max_branches=2, prune_probability=0.01),
    second=speclab.PromptLookup(),
)
OPEN = {
    "runs": ("Compare", speclab.DynaTree(), {"runs_view"}),
    "tables": ("Strategy", speclab.Goose(node_budget=12, bypass="off"), {"strategy", "course", "lookup"}),
    "trees": ("Strategy", BOTH, {"drafts", "routing"}),
    "metrics": ("Metrics", speclab.DynaTree(), {"metrics"}),
}
"""A tab, a strategy that has something to say there, and the slots that do."""


@pytest.fixture
def shown(make, messages: Messages):
    """A lab as it is first shown, some iterations in."""
    lab = make(max_new_tokens=200)
    for _ in range(4):
        lab.step()
    messages.clear()
    return lab


def slots(lab):
    return {**lab.panels.views, **lab.panels.tabs.views, "status": lab.status.line, "done": lab.panels.text.done}


def drawn(messages: Messages, lab) -> list[set[str]]:
    """The slots that each message of the screen fills."""
    return [set(message["data"]["state"]) for message in messages.of(lab.screen)]


def test_each_move_is_one_message_early_and_late_alike(shown, messages, monkeypatch):
    monkeypatch.setattr("speclab.lab.decoding.REDRAW_SECONDS", 1e9)
    shown.run()
    assert len(shown.session.steps) > 20
    assert len(messages.of(slots(shown)["mask"])) == 1, "a run draws at its pace, not at every iteration"
    last = len(shown.session.steps)
    for move in (lambda: shown.goto(last - 1), shown.step, shown.back, lambda: shown.goto(1), shown.step):
        messages.clear()
        move()
        pictures = [filled for filled in drawn(messages, shown) if filled & {"tree", "mask", "cache", "text_tail"}]
        assert len(pictures) == 1, "tree, mask, text and the tab in sight come together"
        assert "status" in pictures[0], "with the sentence that speaks of them"
        assert len(messages) <= len(drawn(messages, shown)) + OTHER_MESSAGES
        assert messages.size <= STEP_BYTES


def test_a_phase_and_a_click_on_a_node_send_what_they_change_and_no_text(shown, messages):
    shown.phase("accept")
    messages.clear()
    shown.phase("accept", 1)
    assert len(messages) == 1
    filled = drawn(messages, shown)[0]
    assert {"tree", "status"} <= filled
    assert not filled & {"mask", "metrics", "text_done", "text_tail"}
    shown.panels.tabs.show_tab("Metrics")
    messages.clear()
    shown.screen.comm.handle_msg({"content": {"data": {"method": "custom", "content": {"node": 1}}}, "buffers": []})
    assert settle(shown)
    assert shown.state.selected == 1
    assert all(messages.of(slots(shown)[name]) for name in ("tree", "mask"))
    assert not any(messages.of(slots(shown)[name]) for name in ("metrics", "done"))


def test_what_was_shown_before_or_has_not_changed_is_not_drawn_again(shown, messages, monkeypatch):
    shown.back()
    pictures = [slots(shown)[name] for name in ("tree", "mask", "cache")]
    before = [slot.drawing for slot in pictures]
    with monkeypatch.context() as barred:
        for view in pictures:
            barred.setattr(view, "_draw", None)
        shown.step()
        assert [slot.drawing for slot in pictures] != before
        shown.back()
    assert [slot.drawing for slot in pictures] == before
    messages.clear()
    shown.state.frame = shown.state.frame
    shown.panels.update()
    shown.goto(shown.state.cursor)
    assert [filled for filled in drawn(messages, shown) if filled != {"status"}] == []


def test_finished_text_is_sent_once_and_a_tab_when_it_is_opened(shown, messages):
    shown.run(until=lambda step: step.index == 16)
    assert "speclab-chunk" in slots(shown)["done"].drawing
    messages.clear()
    shown.step()
    assert not messages.of(slots(shown)["done"])
    assert messages.of(shown.panels.text.tail)
    assert not messages.of(slots(shown)["metrics"])
    shown.panels.tabs.show_tab("Metrics")
    assert messages.of(slots(shown)["metrics"])


@pytest.mark.parametrize(("tab", "strategy", "says"), OPEN.values(), ids=OPEN)
def test_a_step_sends_each_picture_of_the_open_tab_once_and_none_of_the_others(make, messages, tab, strategy, says):
    lab = decoded(make, tab, strategy, max_new_tokens=200)
    lab.fork()
    lab.pin(0)
    own, others = in_tab(lab, tab), set.union(*(in_tab(lab, other) for other in lab.panels.tabs.titles if other != tab))
    messages.clear()
    lab.step()
    assert settle(lab)
    sent = Counter(name for filled in drawn(messages, lab) for name in filled if name != "status")
    assert says <= own & sent.keys()
    assert "beside" in sent, "the run kept beside follows"
    assert set(sent.values()) == {1}
    assert not others & sent.keys()
    assert len(messages) <= OPEN_MESSAGES
    assert messages.size <= OPEN_BYTES
    messages.clear()
    lab.panels.update()
    lab.goto(lab.state.cursor)
    assert settle(lab)
    assert not own & set().union(*drawn(messages, lab)), "where nothing changed nothing is sent"


def in_tab(lab, title: str) -> set[str]:
    """The slots in a tab."""
    page = lab.panels.tabs.children[lab.panels.tabs.titles.index(title)]
    return {slot.name for slot in every(page) if isinstance(slot, Slot)}


def test_a_lab_opens_its_screen_with_one_message_and_plotly_goes_on_request_alone(messages, make):
    messages.clear()
    lab = make()
    opened = messages.of(lab.screen)
    assert opened[0]["type"] == "comm_open"
    assert set(opened[0]["data"]["state"]["slots"]) >= {"tree", "mask", "status", "text_tail"}
    assert Messages(messages).size < 400_000, "plotly.js is not among it"
    messages.clear()
    lab.screen.comm.handle_msg(
        {"content": {"data": {"method": "custom", "content": {"want": "plotly"}}}, "buffers": []}
    )
    assert [message["buffers"] for message in messages] == [1]
    assert json.loads(json.dumps(messages[0]["data"]["content"]))["plotly"] is True


def test_what_one_thread_sets_while_another_sends_is_sent_too(monkeypatch):
    """A page that turns wide while a run draws: the new width's picture must not be lost on its way."""
    widget, sent, sending, other = Text(), {}, Event(), Event()

    def publish(self, msg_type, data=None, **_):
        sent.update((data or {}).get("state", {}))
        if "value" in (data or {}).get("state", {}):
            sending.set()
            other.wait(0.5)  # it is there at once where nothing keeps it away

    monkeypatch.setattr(comm.DummyComm, "publish_msg", publish)

    def set_meanwhile():
        assert sending.wait(PATIENCE)
        with batch_updates():
            set_if_changed(widget, placeholder="wide")
            other.set()
            drawing.join(PATIENCE)

    drawing = Thread(target=lambda: set_if_changed(widget, value="drawn"))
    resizing = Thread(target=set_meanwhile)
    for thread in (resizing, drawing):
        thread.start()
    for thread in (resizing, drawing):
        thread.join(PATIENCE)
    assert sent == {"value": "drawn", "placeholder": "wide"}
