"""Runs and forks in the lab: one row that switches between them."""

from __future__ import annotations

import base64

import speclab


def test_runs_and_forks_are_one_tree_to_switch(page):
    page.do("step")
    first = page.lab.session
    page.lab.fork(node_budget=3)
    page.do("step")
    page.lab.goto(1)
    page.lab.fork(speclab.LinearSpeculation())
    page.hear()
    runs = page.panels["runs"]["runs"]
    assert [(run["name"], run["at"], run["shown"]) for run in runs] == [
        ("A DynaTree", -1, False),
        ("A2 N_max 3 from 3", 2, False),
        ("A3 LinearSpeculation from 2", 1, True),
    ]
    assert [run["iterations"] for run in runs] == [2, 3, 1]
    page.do("step")
    page.do("switch", run=0)
    assert page.lab.session is first
    assert page.place[0] == 2, "where it was left"
    assert page.holds_the_run()
    page.do("close", run=1)
    page.do("close", run=0)  # is shown, so it stays
    page.do("step", start="start")
    names = [run["name"] for run in page.panels["runs"]["runs"]]
    assert names == ["A DynaTree", "A3 LinearSpeculation from 2", "B DynaTree"]
    page.do("switch", run=1)
    assert page.error["where"] == "compare"


def test_the_names_of_many_runs_differ(page, tmp_path):
    saved = page.lab.session.trace.save(tmp_path / "again.json.gz")
    data = base64.b64encode(saved.read_bytes()).decode()
    for _ in range(28):
        page.ask(do="open", name=saved.name, data=data)
    page.hear()
    names = [run["name"] for run in page.panels["runs"]["runs"]]
    assert len({name.split()[0] for name in names}) == len(names) == 29
    assert names[-1].startswith("AC "), "the 27th is no fork of the first"
