"""What a page shows goes into an address and comes back."""

import itertools

import pytest
from support import view_samples

from speclab.views.drawing import call
from speclab.views.run_data import run_header, step_data


def _state(run):
    event = {
        "type": "run",
        "id": 0,
        "header": run_header(run),
        "keep": 0,
        "steps": [step_data(step) for step in run.steps],
        "cursor": 0,
    }
    return call("reduce", call("firstState"), event)[0]


def _shown(state):
    return {name: state[name] for name in ("cursor", "tick", "node", "tab")}


@pytest.mark.parametrize("name", ["dynatree", "drafted root", "chain, drawn"])
def test_every_state_of_a_run_comes_back_from_an_address(name):
    run = view_samples.runs()[name]
    first = _state(run)
    tabs = itertools.cycle(["", "node", "caches"])
    count = 0
    for cursor in range(len(first["steps"]) + 1):
        state = call("movedTo", first, cursor, 0)
        while True:
            nodes = [None, 0, "own"] if cursor else [None]
            for node in nodes:
                shown = {**state, "node": node, "tab": next(tabs)}
                address = call("addressOf", call("shownPlace", shown))
                place = call("placeFrom", f"#r=1.AA&{address}")
                event = {**place, "type": "show", "cursor": place["i"], "moves": 0}
                back = call("reduce", call("movedTo", first, place["i"], 10_000), event)[0]
                assert _shown(back) == _shown(shown), address
                count += 1
            later = call("movedTo", state, cursor, state["tick"] + 1)
            if later["tick"] == state["tick"]:
                break
            state = later
    assert count > 3 * len(run.steps)


@pytest.mark.parametrize("hash", ["", "#predict", "#r=1.AA", "#i=x", "#i=-1", "#&&=&", "#i=%"])
def test_an_address_without_a_place_names_none(hash):
    assert call("placeFrom", hash) is None


def test_odd_addresses_are_read_as_far_as_they_go():
    assert call("placeFrom", "#guess")["guess"] is True
    place = call("placeFrom", "#i=3&phase=accept&node=%2B3&level=x&more=1")
    assert (place["i"], place["node"], place["level"]) == (3, "+3", None)
