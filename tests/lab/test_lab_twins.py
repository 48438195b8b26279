"""Every method of the lab does what its button does, and returns when it is done and drawn."""

from __future__ import annotations

import signal
import threading
import time

import pytest
from lab_tools import PATIENCE, PROMPT, ask, settle

from speclab.drafters.fixed_tree import FixedTree
from speclab.drafters.prompt_lookup import PromptLookup
from speclab.engine.session import Session
from speclab.lab.screen import packed
from speclab.trace.conditions import parse
from speclab.views.playback import positions
from speclab.views.side_by_side import pinned_drawing

CHANGED = parse("route != previous.route")


def calls(lab) -> list[int]:
    return [runner.calls for runner in lab.session.pair.runners.values()]


def test_it_decodes_what_a_session_decodes_to_the_end(lab, pair):
    assert lab.state.frame.live
    assert (lab.state.cursor, lab.state.step, lab.state.error) == (0, None, "")
    alone = Session(pair, lab.session.strategy, PROMPT, max_new_tokens=40)
    for count in range(1, 4):
        step = lab.step()
        assert step.committed == alone.step().committed
        assert lab.state.step is step
        assert lab.session.cursor == lab.state.cursor == count
    lab.goto(9)
    assert "no iteration 9" in lab.state.error
    assert lab.state.cursor == lab.session.cursor == 3
    lab.run()
    alone.run()
    assert lab.session.token_ids == alone.token_ids
    assert lab.state.done == lab.state.total == len(lab.session.token_ids) == 40
    cursor = lab.state.cursor
    assert lab.step() is None
    assert "has ended" in lab.state.error
    assert lab.state.cursor == cursor


def test_moving_and_looking_calls_no_model_and_leaves_the_session_as_it_was(lab):
    lab.run()
    trace, before = lab.session.trace, calls(lab)
    lengths = [runner.length for runner in lab.session.pair.runners.values()]
    for index in (len(lab.session.steps), 0, 1):
        lab.goto(index)
        for tab in range(len(lab.panels.tabs.children)):
            lab.panels.tabs.selected_index = tab
        lab.panels.masks.value = "mask-check"
    assert [runner.length for runner in lab.session.pair.runners.values()] == lengths
    lab.back()
    lab.goto(1)
    lab.step()
    lab.phase("draft")
    lab.phase("accept", 1)
    lab.select(1)
    lab.pin()
    lab.snapshot()
    assert calls(lab) == before
    assert lab.session.trace == trace
    assert lab.state.cursor == 2


def test_run_until_stops_where_a_function_or_expression_holds_and_back_finds_it_again(lab):
    for command in (lab.run, lab.back):
        lab.state.error = ""
        assert command(until="acepted < 2") is None
        assert "did you mean accepted" in lab.state.error
    lab.run(until=3)
    assert "no condition" in lab.state.error
    assert not lab.session.steps
    assert lab.run(until="iteration == 2 or nodes > 99").index == 1
    assert lab.run(until=lambda step: step.index == 2).index == 2
    lab.run()
    assert lab.back(until=lambda step: step.index == 2).index == 2
    assert lab.back(until="nodes > 99") is None
    assert "No earlier iteration" in lab.state.status
    assert lab.state.cursor == 3


def test_a_condition_on_the_step_before_is_found_forwards_and_backwards(make, pair):
    lab = make(pair, PromptLookup(), prompt=[5, 17, 3, 5, 17, 3, 5])
    lab.run()
    changed = [
        i for i, (old, new) in enumerate(zip(lab.session.steps, lab.session.steps[1:], strict=False), start=1)
        if CHANGED.holds(new, old)
    ]  # fmt: skip
    assert changed, "else this test shows nothing"
    assert lab.back(until=CHANGED).index == [i for i in changed if i < lab.state.cursor][-1]
    lab.goto(0)
    assert [step.index for step in iter(lambda: lab.run(until=CHANGED), lab.session.steps[-1])][:3] == changed[:3]


def test_phases_show_less_and_then_all_of_the_iteration_and_a_selected_node_is_marked_everywhere(lab):
    def seen():
        return lab.panels.views["tree"].drawing, lab.panels.text.tail.drawing

    before = seen()
    lab.step()
    whole = seen()
    lab.phase("draft", 0)
    assert lab.state.phase == "draft"
    assert seen()[0] != whole[0]
    lab.phase("accept")
    assert seen()[1] == before[1], "the text appears with its commit"
    lab.phase("commit")
    assert seen()[1] == whole[1] != before[1]
    lab.phase("learn")
    assert seen() == whole
    lab.phase("sleep")
    assert "no phase 'sleep'" in lab.state.error
    lab.step()
    lab.goto(1)
    ask(lab, "phase_by", 1)
    assert (lab.state.cursor, lab.state.phase, lab.state.position.level) == (2, "draft", 0)
    ask(lab, "phase_by", -1)
    assert (lab.state.cursor, lab.state.phase) == (1, "learn")
    lab.panels.tabs.show_tab("Node")
    lab.run(until=lambda step: len(step.tree) > 2)
    slots = [*(lab.panels.views[name] for name in ("tree", "mask")), lab.panels.tabs.views["node"]]
    before = [slot.drawing for slot in slots]
    lab.select(1)
    assert lab.state.selected == 1
    assert not any(slot.drawing == old for slot, old in zip(slots, before, strict=True))
    lab.select(999)
    assert "no node 999" in lab.state.error
    lab.select(None)
    assert [slot.drawing for slot in slots] == before


def test_a_fork_changes_what_follows_leaves_the_former_session_alone_or_says_why_it_cannot_be(lab):
    lab.step()
    lab.step()
    lab.back()
    former, text = lab.session, lab.session.token_ids
    for change in ({"low_confidence": 2.0}, {"low_confidence": 0.95}, {"colour": "red"}):
        assert lab.fork(**change) is None
        assert next(iter(change)) in lab.state.error
        lab.status.dismiss()
    assert lab.session is former
    fork = lab.fork(max_branches=5)
    assert fork is lab.session is not former
    assert (fork.strategy.max_branches, fork.token_ids, len(former.steps)) == (5, text, 2)
    assert lab.config.strategy.read().max_branches == 5
    assert not lab.config.note.value
    lab.fork(FixedTree(depth=2), temperature=0.5)
    assert lab.session.strategy == lab.config.read().strategy == FixedTree(depth=2)
    assert lab.config.session.read().temperature == 0.5


def test_what_is_kept_beside_or_measured_goes_with_the_prompt_it_was_of(lab):
    beside = lab.panels.views["beside"]
    first = lab.step()
    lab.pin()
    assert lab.panels.tabs.pin.description == "Unpin"
    second = lab.step()
    assert lab.state.pinned is first
    assert beside.drawing == packed([*pinned_drawing(second, first)])
    lab.pin(0)
    lab.compare(["Autoregressive"], max_new_tokens=4)
    lab.fork(max_branches=5)
    assert lab.state.pinned is first, "a fork shares its text"
    assert lab.state.frame.beside is not None
    lab.config.prompt.text.value = "7 8 9"
    lab.step()
    assert (lab.state.pinned, lab.state.frame.beside, lab.state.compared) == (None, None, None)
    assert beside.drawing == ""


def test_a_run_stops_at_any_breakpoint_says_which_and_how_often_and_goes_back_to_them(lab):
    ask(lab, "run_until")
    assert "No breakpoint is set" in lab.state.error
    lab.status.dismiss()
    for condition in ("iteration >= 3", "index == 1", "iteration >= 3"):
        ask(lab, "add_breakpoint", condition)
    ask(lab, "add_breakpoint", parse("nodes > 999"), "a large tree")
    assert [point.label for point in lab.state.breakpoints] == ["index == 1", "iteration >= 3", "a large tree"]
    for cursor, said in ((2, "index == 1 (1st hit)"), (3, "iteration >= 3 (1st hit)"), (4, "iteration >= 3 (2nd hit)")):
        ask(lab, "run_until")
        assert lab.state.cursor == cursor
        assert said in lab.state.status
    assert [point.hits for point in lab.state.breakpoints] == [(2,), (3, 4), ()]
    assert lab.state.frame.hits == (2, 3, 4)
    lab.goto(3)
    assert ask(lab, "back_until").index == 1
    assert "index == 1 (1st hit)" in lab.state.status
    assert ask(lab, "back_until") is None
    ask(lab, "remove_breakpoint", "iteration >= 3")
    assert lab.state.frame.hits == (2,)
    lab.goto(3)
    lab.fork(max_branches=5)
    assert lab.state.frame.hits == (2,), "counted anew over the run shown"
    ask(lab, "run_until")
    assert lab.session.done
    assert lab.state.status.startswith("Ended (max_new_tokens). ")
    ask(lab, "remove_breakpoint")
    assert (lab.state.breakpoints, lab.state.frame.hits) == ((), ())


def test_playing_shows_every_moment_decodes_where_the_record_ends_and_yields(make):
    lab, seen = make(max_new_tokens=12), []
    lab.state.observe(lambda change: seen.append((change["new"].cursor, change["new"].position)), names="frame")
    lab.step()
    ask(lab, "play", 0)
    assert "choose one above 0" in lab.state.error
    lab.goto(0)
    seen.clear()
    ask(lab, "play", 1e6)
    assert lab.session.done
    assert lab.state.status.startswith("Ended")
    moments = [(i + 1, place) for i, step in enumerate(lab.session.steps) for place in positions(step)]
    assert list(dict.fromkeys(seen)) == moments
    lab.goto(0)
    for end in (lambda: lab.select(None), lab.transport.play.click):
        playing = lab._actions.ask(lab._controller.play, 0.01)
        while lab.transport.play.description != "❚❚ Pause":
            time.sleep(0.001)
        end()
        assert playing.result(PATIENCE) is None
        assert lab.transport.play.description == "▶ Play"
    assert lab.state.cursor == 1


def test_stop_or_anything_else_asked_for_ends_a_run_and_keeps_what_was_decoded(make):
    lab = make(max_new_tokens=200)
    reached, go_on = threading.Event(), threading.Event()
    result = lab._actions.ask(lab._controller.run, lambda step: reached.set() or not go_on.wait(PATIENCE))
    assert reached.wait(PATIENCE)
    lab.stop()
    go_on.set()
    assert settle(lab)
    assert result.result() is lab.state.step
    assert not lab.session.done
    assert lab.state.cursor == len(lab.session.steps) >= 1
    assert lab.state.status.startswith("Stopped")
    assert lab.state.busy == ""
    reached.clear()
    wanted = lab._worker.cancelled
    lab._actions.ask(lab._controller.run, lambda step: reached.set() or not wanted.wait(PATIENCE))
    assert reached.wait(PATIENCE)
    lab.goto(0)
    assert lab.state.cursor == 0
    assert not lab.session.done


def test_ctrl_c_while_a_method_waits_stops_the_work(make):
    lab = make(max_new_tokens=200)

    def interrupted(step):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        return not lab._worker.cancelled.wait(PATIENCE)  # until it was heard: a second one would find the test outside

    former = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a process of the background
    try:
        with pytest.raises(KeyboardInterrupt):
            lab.run(until=interrupted)
    finally:
        signal.signal(signal.SIGINT, former)
    assert settle(lab)
    assert lab.session.steps
    assert not lab.session.done
    assert lab.step() is not None
