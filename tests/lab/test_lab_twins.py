"""Every method of the lab does what its button does, and returns when it is done and drawn."""

from __future__ import annotations

import signal
import threading
import time

import pytest
from lab_tools import PROMPT, settle

from speclab.drafters.fixed_tree import FixedTree
from speclab.engine.session import Session
from speclab.views.side_by_side import step_html


def test_it_starts_with_a_session_and_shows_the_prompt(lab):
    assert isinstance(lab.session, Session)
    assert lab.state.frame.live
    assert (lab.state.cursor, lab.state.step, lab.state.error) == (0, None, "")
    assert lab.session.prompt_ids == PROMPT


def test_step_decodes_what_a_session_decodes(lab, pair):
    alone = Session(pair, lab.session.strategy, PROMPT, max_new_tokens=40)
    for count in range(1, 4):
        step = lab.step()
        assert step.committed == alone.step().committed
        assert lab.state.step is step
        assert lab.session.cursor == lab.state.cursor == lab.transport.cursor.value == count
    assert f"Iteration {count}" in lab.status.line.value


def test_run_goes_to_the_end_and_a_further_step_says_so(lab):
    lab.run()
    assert lab.session.done
    assert len(lab.session.token_ids) == 40
    assert lab.status.progress.value == lab.status.progress.max == 40
    cursor = lab.state.cursor
    assert lab.step() is None
    assert "has ended" in lab.state.error
    assert lab.state.cursor == cursor


def test_moving_calls_no_model(lab):
    lab.run()
    runners = lab.session.pair.runners.values()
    calls = [runner.calls for runner in runners]
    lab.back()
    lab.goto(1)
    lab.step()
    lab.phase("draft")
    lab.phase("accept", 1)
    lab.select(1)
    lab.pin()
    lab.snapshot()
    assert [runner.calls for runner in runners] == calls
    assert lab.state.cursor == 2


def test_goto_beyond_what_is_decoded_says_so_and_stays(lab):
    lab.step()
    lab.goto(9)
    assert "no iteration 9" in lab.state.error
    assert lab.state.cursor == lab.session.cursor == 1


def test_run_until_stops_where_the_condition_holds_and_back_finds_it_again(lab):
    def wanted(step):
        return step.index == 2

    assert lab.run(until=wanted).index == 2
    lab.run()
    assert lab.back(until=wanted).index == 2
    assert lab.back(until=lambda step: False) is None
    assert lab.state.cursor == 3


def test_phases_show_less_and_then_all_of_the_iteration(lab):
    lab.step()
    whole = lab.panels.views["tree"].widget.value
    lab.phase("draft", 0)
    assert lab.state.phase == "draft"
    assert lab.panels.views["tree"].widget.value != whole
    lab.phase("adapt")
    assert lab.panels.views["tree"].widget.value == whole
    lab.phase("sleep")
    assert "no phase 'sleep'" in lab.state.error


def test_text_of_an_iteration_appears_with_its_commit(lab):
    def text():
        return [chunk.value for chunk in lab.panels.text.body.children]

    before = text()
    lab.step()
    after = text()
    lab.phase("accept")
    assert text() == before
    lab.phase("commit")
    assert text() == after != before


def test_moments_go_on_into_the_neighbouring_iteration(lab):
    lab.step()
    lab.step()
    lab.goto(1)
    lab._actions.ask(lab._controller.phase_by, 1).result()
    assert (lab.state.cursor, lab.state.phase, lab.state.position.level) == (2, "draft", 0)
    lab._actions.ask(lab._controller.phase_by, -1).result()
    assert (lab.state.cursor, lab.state.phase) == (1, "adapt")
    lab._actions.ask(lab._controller.phase_by, -1).result()
    assert lab.state.phase == "commit"


def test_a_selected_node_is_marked_and_explained_everywhere(lab):
    lab.run(until=lambda step: len(step.tree) > 2)
    tree, mask = lab.panels.views["tree"].widget.value, lab.panels.views["mask"].widget.value
    lab.select(1)
    assert lab.state.selected == lab.panels.node.value == 1
    assert lab.panels.views["tree"].widget.value != tree
    assert lab.panels.views["mask"].widget.value != mask
    assert "Node 1" in lab.panels.views["why"].widget.value
    lab.select(999)
    assert "no node 999" in lab.state.error
    lab.select(None)
    assert lab.panels.views["tree"].widget.value == tree
    assert lab.panels.views["why"].widget.value == ""


def test_a_fork_changes_what_follows_and_leaves_the_former_session_alone(lab):
    lab.step()
    lab.step()
    lab.back()
    former, text = lab.session, lab.session.token_ids
    fork = lab.fork(max_branches=5)
    assert fork is lab.session is not former
    assert fork.strategy.max_branches == 5
    assert fork.token_ids == text
    assert len(former.steps) == 2
    assert lab.config.strategy.read().max_branches == 5
    assert not lab.config.note.value
    lab.fork(FixedTree(depth=2), temperature=0.5)
    assert lab.session.strategy == FixedTree(depth=2)
    assert lab.config.read().strategy == FixedTree(depth=2)
    assert lab.config.session.read().temperature == 0.5


@pytest.mark.parametrize("change", [{"low_confidence": 2.0}, {"low_confidence": 0.95}, {"colour": "red"}])
def test_a_fork_that_cannot_be_says_why_and_changes_nothing(lab, change):
    lab.step()
    session = lab.session
    assert lab.fork(**change) is None
    assert lab.state.error
    assert lab.session is session


def test_a_pinned_step_stays_beside_the_next(lab):
    first = lab.step()
    lab.pin()
    assert lab.panels.pin.description == "Unpin"
    assert lab.panels.views["beside"].widget.value.count("<svg") == 1
    second = lab.step()
    assert lab.state.pinned is first
    assert lab.panels.views["beside"].widget.value == step_html(second, first)
    lab.pin()
    lab.pin()
    assert lab.state.pinned is None
    assert lab.panels.views["beside"].widget.layout.display == "none"


def test_stop_ends_a_run_and_keeps_what_was_decoded(make):
    lab = make(max_new_tokens=200)
    reached, go_on = threading.Event(), threading.Event()

    def pause(step):
        reached.set()
        go_on.wait(30)
        return False

    result = lab._actions.ask(lab._controller.run, pause)
    assert reached.wait(30)
    lab.stop()
    go_on.set()
    assert settle(lab)
    assert result.result() is lab.state.step
    assert not lab.session.done
    assert lab.state.cursor == len(lab.session.steps) >= 1
    assert lab.state.status.startswith("Stopped")
    assert lab.state.busy == ""
    lab.run(until="nodes > 0")
    assert lab.state.cursor == len(lab.session.steps)


def test_anything_else_asked_for_ends_a_run(make):
    lab = make(max_new_tokens=200)
    started = threading.Event()

    def look(step):
        started.set()
        time.sleep(0.01)
        return False

    lab._actions.ask(lab._controller.run, look)
    assert started.wait(30)
    lab.goto(0)
    assert lab.state.cursor == 0
    assert not lab.session.done


@pytest.fixture
def heeds_ctrl_c():
    """Where the tests were started in the background the signal is ignored."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_ctrl_c_while_a_method_waits_stops_the_work(make):
    lab = make(max_new_tokens=200)

    def interrupted(step):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        time.sleep(0.2)
        return False

    with pytest.raises(KeyboardInterrupt):
        lab.run(until=interrupted)
    assert settle(lab)
    assert lab.session.steps
    assert not lab.session.done
    assert lab.step() is not None


def test_views_leave_the_session_as_it_was(lab):
    lab.run()
    trace, runners = lab.session.trace, lab.session.pair.runners.values()
    lengths = [runner.length for runner in runners]
    for index in range(len(lab.session.steps) + 1):
        lab.goto(index)
        for tab in range(len(lab.panels.tabs.children)):
            lab.panels.tabs.selected_index = tab
        lab.panels.masks.value = "mask-check"
    assert lab.session.trace == trace
    assert [runner.length for runner in runners] == lengths
