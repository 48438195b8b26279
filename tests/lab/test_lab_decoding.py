"""Stepping, going back, running and forking, from Python and from the page; the page always holds what was decoded."""

from __future__ import annotations

import random
import threading

import pytest
from lab_tools import PATIENCE, PROMPT, Page, settle

import speclab
from speclab import SettingsError
from speclab.errors import SpeclabError


def plain(pair, count):
    return speclab.generate(pair, speclab.Autoregressive(), PROMPT, max_new_tokens=count).token_ids


def test_python_steps_goes_back_runs_and_forks(lab, pair):
    first = lab.step()
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


def test_the_first_call_of_step_gives_the_first_iteration_unless_a_person_asked_for_more(
    make, sent
):
    shown = make()
    clicked = make()
    Page(shown, sent)
    assert shown.state.cursor == 1, "decoded unasked, so that a tree is there"
    assert [shown.step().index, shown.step().index] == [0, 1]
    Page(clicked, sent).say(do="step")
    assert clicked.step().index == 2


def test_python_gets_errors_raised_and_the_page_is_not_bothered(lab, sent):
    page = Page(lab, sent)
    for wrong in (
        lambda: lab.goto(99),
        lambda: lab.phase("adapt"),
        lambda: lab.select(10_000),
        lambda: lab.fork(node_budgt=3),
        lambda: lab.run("acepted < 2"),
        lambda: speclab.Lab("llama-9"),
        lambda: speclab.Lab("mini", node_budget=3),
        lambda: speclab.Lab("mini", "DynaTree"),
    ):
        with pytest.raises(SpeclabError, match=r"^[^\n]{10,}$"):
            wrong()
    page.hear()
    assert page.status["error"] is None
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
        count = len(page.iterations)
        match chance.randrange(8):
            case 0 | 1 | 2 if not lab.session.done:
                page.say(do="step")
            case 3:
                page.go(chance.randrange(count + 1), chance.choice(["draft", "accept", "all"]))
            case 4:
                lab.back()
            case 5 if lab.state.cursor:
                lab.fork(node_budget=chance.randrange(2, 12))
            case 6:
                page.say(do="switch", run=chance.randrange(len(lab._commands.runs)))
            case 7:
                page.say(do="hello")
        page.hear()
        assert page.status["error"] is None
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
    page.say(do="run", until={"kind": kind, "value": value})
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
    page.say(do="run", until={"kind": "token", "value": "the"})
    assert "the" in lab.session.text
    assert not page.status["finished"]
    page.say(do="run", until={"kind": "end"})
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
    page._sent.clear()
    lab._hear({"do": "stop"})
    held.go_on.set()
    running.join(PATIENCE)
    page.hear()
    assert page.status["busy"] is None
    assert 1 < len(lab.session.token_ids) < 200
    assert page.holds_the_run()
    assert list(lab.session.token_ids) == list(plain(pair, 200))[: len(lab.session.token_ids)]
    page.say(do="step")
    assert page.status["error"] is None


def test_ctrl_c_in_a_cell_stops_what_runs_and_keeps_what_was_decoded(make, monkeypatch, held):
    import speclab.lab.lab as module

    def interrupted(futures, timeout):
        assert held.begun.wait(PATIENCE)
        held.go_on.set()
        raise KeyboardInterrupt

    lab = make(max_new_tokens=200)
    with monkeypatch.context() as patched:
        patched.setattr(module, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            lab.run(held)
    settle(lab)
    assert 1 < len(lab.session.token_ids) < 200
    assert lab.step() is lab.session.steps[-1]


def test_a_condition_is_checked_while_it_is_typed_and_refused_beside_it(page):
    page.say(do="condition", until={"kind": "expression", "value": "acepted < 2"})
    assert "accepted" in page.others[-1]["sentence"], "the name that was meant"
    page.say(do="condition", until={"kind": "expression", "value": "accepted < 2"})
    assert page.others[-1] == {"type": "hint", "sentence": ""}
    count = len(page.iterations)
    page.say(do="run", until={"kind": "expression", "value": "accepted <"})
    assert page.status["error"]["where"] == "until"
    assert len(page.iterations) == count
    page.say(do="run", until={"kind": "expression", "value": "iteration >= 2"})
    assert page.status["error"] is None, "gone when it is mended"


def test_phases_and_nodes_from_python_move_the_page_and_from_the_page_the_state(page):
    page.lab.phase("verify")
    page.lab.select(0)
    page.hear()
    assert page.place == (1, "verify", 0)
    page.go(1, "accept", 1)
    assert (page.lab.state.phase, page.lab.state.selected) == ("accept", 1)
    assert page.say(do="shown", cursor=1, phase="commit", node=1) == [], (
        "the page knows where it is"
    )
    with pytest.raises(SettingsError):
        page.lab.phase("learn")
    page.say(do="step")
    assert page.place == (2, "all", None)


def test_an_iteration_that_fails_is_undone_and_said_beside_step(page, monkeypatch):
    def broken(*_args, **_named):
        raise RuntimeError("out of luck")

    before = list(page.lab.session.token_ids)
    with monkeypatch.context() as patched:
        patched.setattr("speclab.engine.session.iterate", broken)
        page.say(do="step")
        assert page.status["error"]["where"] == "step"
        assert "out of luck" in page.status["error"]["sentence"]
        with pytest.raises(RuntimeError):
            page.lab.step()
    assert list(page.lab.session.token_ids) == before
    assert page.holds_the_run()
    page.say(do="step")
    assert page.status["error"] is None
    assert len(page.iterations) == 2


def test_a_lab_that_predicts_says_so_to_the_page_which_ends_it(make, sent):
    page = Page(make(predict=True), sent)
    assert page.status["predict"] is True
    page.say(do="predict_mode", on=False)
    page.say(do="step")
    assert page.status["predict"] is False
