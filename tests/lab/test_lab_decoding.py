"""Stepping, going back, running and forking, from Python and from the page; the page always holds what was decoded."""

from __future__ import annotations

import os
import random
import signal
import threading

import pytest
from ipywidgets import Dropdown, IntSlider, link
from support.lab_page import PATIENCE, PROMPT, Page
from support.processes import python

import speclab
from speclab import SettingsError
from speclab.errors import SpeclabError


def plain(pair, count):
    return speclab.generate(pair, speclab.Autoregressive(), PROMPT, max_new_tokens=count).token_ids


def test_python_steps_goes_back_runs_and_forks(lab, pair):
    first = lab.state.step
    assert first.index == 0
    assert lab.step().index == 1
    assert lab.back() is first
    assert lab.state.step is first
    assert lab.back() is None
    assert lab.session.cursor == lab.state.cursor == 0
    assert lab.goto(2).index == 1
    before = lab.session
    fork = lab.fork(node_budget=3, max_new_tokens=24)
    assert lab.session is fork is not before
    assert fork.cursor == 2
    assert lab.run().index == len(fork.steps) - 1
    assert fork.done
    assert list(fork.token_ids) == list(plain(pair, 24))
    assert len(before.steps) == 2, "the former run stays as it is"


def test_traits_are_linked_to_other_widgets_in_both_directions(lab):
    lab.step()
    slider = IntSlider(max=9)
    link((slider, "value"), (lab, "cursor"))
    slider.value = 1
    lab.wait(PATIENCE)
    assert (lab.state.cursor, lab.session.cursor) == (1, 1)
    lab.step()
    assert (slider.value, lab.iterations) == (2, 2)
    phases = Dropdown(options=["draft", "verify", "all"])
    link((lab, "phase"), (phases, "value"))
    phases.value = "verify"
    lab.wait(PATIENCE)
    assert lab.state.phase == "verify"
    lab.show_phase("draft")
    assert (phases.value, lab.phase) == ("draft", "draft")
    slider.value = 9
    lab.wait(PATIENCE)
    assert lab.cursor == lab.state.cursor == slider.value == 2, "there is no iteration 9"
    assert lab.state.errors


def test_python_gets_errors_raised_and_the_page_is_not_bothered(lab, pair, sent):
    page = Page(lab, sent)
    for wrong in (
        lambda: lab.goto(99),
        lambda: lab.show_phase("adapt"),
        lambda: lab.select(10_000),
        lambda: lab.fork(node_budgt=3),
        lambda: lab.run("acepted < 2"),
        lambda: speclab.Lab("llama-9"),
        lambda: speclab.Lab("mini", node_budget=3),
        lambda: speclab.Lab("mini", "DynaTree"),
        lambda: speclab.Lab("mini", prompt=" "),
        lambda: speclab.Lab(pair, prompt=[]),
    ):
        with pytest.raises(SpeclabError, match=r"^[^\n]{10,}$"):
            wrong()
    page.hear()
    assert page.error is None
    assert page.holds_the_run()
    lab.close()
    with pytest.raises(SpeclabError, match="closed"):
        lab.step()


@pytest.mark.parametrize("seed", range(2))
def test_after_any_moves_the_page_holds_just_what_was_decoded(make, sent, pair, seed):
    chance = random.Random(seed)
    lab = make(max_new_tokens=60)
    page = Page(lab, sent)
    for _ in range(40):
        count = len(page.steps)
        match chance.randrange(8):
            case 0 | 1 | 2 if not lab.session.done:
                page.do("step")
            case 3:
                page.go(chance.randrange(count + 1), chance.choice(["draft", "accept", "all"]))
            case 4:
                lab.back()
            case 5 if lab.state.cursor:
                lab.fork(node_budget=chance.randrange(2, 12))
            case 6:
                page.do("switch", run=chance.randrange(len(page.panels["runs"]["runs"])))
            case 7:
                page.do("hello")
        page.hear()
        assert page.error is None
        assert page.holds_the_run()
        assert lab.session.cursor == lab.state.cursor
    lab.run()
    page.hear()
    assert page.holds_the_run()
    assert list(lab.session.token_ids) == list(plain(pair, 60))


@pytest.mark.parametrize(
    ("kind", "value", "expression"),
    [
        ("accepts_fewer", 1, "accepted < 1"),
        ("nodes_more", 3, "nodes > 3"),
        ("expression", "iteration == 5", None),
    ],
)
def test_a_run_from_the_page_ends_where_its_condition_holds(page, kind, value, expression):
    page.run_until(value, kind)
    again = speclab.Session(
        page.lab.session.pair, page.lab.session.strategy, PROMPT, max_new_tokens=120
    )
    again.step()
    again.run(until=expression or value)
    assert page.place == (len(again.steps), "all", None)
    assert page.holds_the_run()


def test_a_run_ends_at_a_text_that_comes_and_at_the_end(make, sent):
    lab = make("mini", prompt="Once upon a time", max_new_tokens=60)
    page = Page(lab, sent)
    page.run_until("the", "token")
    assert "the" in lab.session.text
    assert not page.status["finished"]
    page.run_until(kind="end")
    assert page.status["finished"]
    assert page.status["can_step"] is False
    page.go(1)
    lab.goto(1)
    page.hear()
    assert page.status["can_step"] is True


class Held:
    """A condition that holds a run in its first iteration until `go_on` is set."""

    def __init__(self):
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, step):
        self.begun.set()
        return not self.go_on.wait(PATIENCE)


@pytest.fixture
def held():
    return Held()


def test_stop_ends_a_run_and_what_was_decoded_stays(make, sent, pair, held):
    lab = make(max_new_tokens=200)
    page = Page(lab, sent)
    running = threading.Thread(target=lambda: lab.run(held))
    running.start()
    assert held.begun.wait(PATIENCE)
    page.ask(do="stop")
    held.go_on.set()
    running.join(PATIENCE)
    page.hear()
    assert page.status["busy"] == ""
    assert 1 < len(lab.session.token_ids) < 200
    assert page.holds_the_run()
    assert list(lab.session.token_ids) == list(plain(pair, 200))[: len(lab.session.token_ids)]
    page.do("step")
    assert page.error is None


def test_ctrl_c_in_a_cell_stops_what_runs_and_keeps_what_was_decoded(make, monkeypatch, held):
    lab = make(max_new_tokens=200)
    stop = lab.stop
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def ctrl_c():
        assert held.begun.wait(PATIENCE)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    def stopped():
        stop()
        held.go_on.set()

    monkeypatch.setattr(lab, "stop", stopped)
    threading.Thread(target=ctrl_c).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            lab.run(held)
    finally:
        signal.signal(signal.SIGINT, before)
    assert lab.wait(PATIENCE)
    assert 1 < len(lab.session.token_ids) < 200
    assert lab.step() is lab.session.steps[-1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_in_a_forked_process_a_lab_says_that_it_has_no_thread():
    """The child has the lab and its requests, but nothing that would ever answer them."""
    code = """if True:
        import os, warnings
        from speclab import Lab, SpeclabError
        lab = Lab("mini", prompt="Once", max_new_tokens=4)
        assert lab.wait(100)
        warnings.simplefilter("ignore")
        child = os.fork()
        if not child:
            try:
                lab.step()
            except SpeclabError:
                os._exit(7)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        lab.close()"""
    assert python("-c", code).strip() == "7"


def test_a_condition_is_refused_beside_it(page):
    count = len(page.steps)
    for value, name in (("acepted < 2", "accepted"), ("accepted <", "")):
        page.run_until(value)
        assert page.error["where"] == "until"
        assert name in page.error["sentence"], "the name that was meant"
    assert len(page.steps) == count
    page.run_until("iteration >= 2")
    assert page.error is None, "gone when it is mended"


def test_phases_and_nodes_from_python_move_the_page_and_from_the_page_the_state(page):
    page.lab.show_phase("verify")
    page.lab.select(0)
    page.hear()
    assert page.place == (1, "verify", 0)
    page.go(1, "accept", 1)
    assert (page.lab.state.phase, page.lab.state.selected) == ("accept", 1)
    assert page.do("shown", cursor=1, phase="commit", node=1) == [], "the page knows where it is"
    with pytest.raises(SettingsError):
        page.lab.show_phase("learn")
    page.do("shown", cursor=99, phase="all", tab="node")
    assert page.holds_the_run(), "there is no such iteration"
    page.do("step")
    assert page.place == (2, "all", None)


def test_an_iteration_that_fails_is_undone_and_said_beside_step(page, monkeypatch):
    def broken(*_args, **_named):
        raise RuntimeError("out of luck")

    before = list(page.lab.session.token_ids)
    with monkeypatch.context() as patched:
        patched.setattr("speclab.engine.session.iterate", broken)
        page.do("step")
        assert page.error["where"] == "page"
        assert "out of luck" in page.error["sentence"]
        with pytest.raises(RuntimeError):
            page.lab.step()
    assert list(page.lab.session.token_ids) == before
    assert page.holds_the_run()
    page.do("step")
    assert page.error is None
    assert len(page.steps) == 2


def test_a_message_goes_with_the_next_move(page):
    page.run_until("iteration >= 2")
    assert page.status["message"]
    page.go(1)
    assert page.status["message"] == ""
    page.do("switch", run=7)
    assert page.error
    page.go(2)
    assert page.error is None


def test_at_the_end_of_the_text_one_starts_over_or_makes_it_longer(make, sent):
    page = Page(make(max_new_tokens=12), sent)
    page.run_until(kind="end")
    assert (page.status["finished"], page.status["can_step"]) == ("max_new_tokens", False)
    first = page.steps[0]
    count = len(page.steps)
    page.want(session={"max_new_tokens": 30})
    assert page.status["can_step"]
    page.do("step", start="here")
    assert len(page.steps) > count
    assert page.steps[0] == first
    page.run_until(kind="end")
    page.want(strategy={"name": "LinearSpeculation"})
    assert page.status["new_run"], "nothing can follow the end"
    page.do("step", start="here")
    assert page.error is None
    assert page.place == (1, "all", None)
    assert page.steps[0]["settings"]["strategy"] == "LinearSpeculation"
    families = [run["name"].split()[0] for run in page.panels["runs"]["runs"]]
    assert families == ["A", "A2", "B"]
    assert page.error is None
