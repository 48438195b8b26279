"""Ctrl-C inside an iteration: it has not happened, and the next step is the one that would have come."""

from functools import cache

import pytest
from support.every_strategy import ALONE, DRAFTED
from support.pairs import pair_of
from support.records import assert_same

import speclab
from speclab.engine import decode, session

pytestmark = pytest.mark.model

PROMPT = [5, 9, 2, 4, 3, 7, 7, 1, 5, 9, 2, 4]
NEW = 20
NAMES = ("dynatree", "drafted root", "goose", "lookahead", "best first")
STRATEGIES = {name: (ALONE | DRAFTED)[name] for name in NAMES}
STOPS = {
    "draft": (decode, "checked_draft"),
    "verify": (decode, "rule_for"),
    "commit": (decode.Decoding, "catch_up"),
    "learn": (decode, "Iteration"),
    "record": (session, "record"),
    "kept answers": (session, "kept_answers"),
}
"""What is called last in a phase, or first after it."""


def stopping(monkeypatch, place, calls=1):
    """Ctrl-C in place of this call, counted from now on."""
    owner, name = STOPS[place]
    original = getattr(owner, name)
    left = [calls]

    def stop(*given, **named):
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        return original(*given, **named)

    monkeypatch.setattr(owner, name, stop)


def begun(name):
    return speclab.Session(pair_of("llama", 0.05, 16), STRATEGIES[name], PROMPT, max_new_tokens=NEW)


@cache
def whole(name):
    run = begun(name)
    run.run()
    return run


def lengths(run):
    return [runner.length for runner in decode.runners(run.pair)]


@pytest.mark.parametrize("place", STOPS)
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_stopped_iteration_has_not_happened(monkeypatch, name, place):
    run = begun(name)
    run.step()
    before = run.trace
    held = lengths(run)
    with monkeypatch.context() as patch:
        stopping(patch, place)
        with pytest.raises(KeyboardInterrupt):
            run.step()
    assert_same(run.trace, before)
    assert lengths(run) == held
    run.run()
    for mine, its in zip(run.steps, whole(name).steps, strict=True):
        for part in ("tree", "committed", "settings", "adaptation"):
            assert_same(getattr(mine, part), getattr(its, part))
    assert lengths(run) == lengths(whole(name))
