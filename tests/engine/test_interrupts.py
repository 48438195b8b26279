"""Ctrl-C at any bytecode of an iteration: the session is as before it or as after it, and nothing else.

A trace function sends it before the so-manieth bytecode of speclab's own code; it is heard where the interpreter looks
for signals, library code included. Run as a script it is sent at every so-manieth bytecode of an iteration:
`python tests/engine/test_interrupts.py [stride [runs…]]`.
"""

from __future__ import annotations

import _thread
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from types import FrameType
from typing import Any

import pytest
from pairs import pair_of
from records import assert_same

import speclab
from speclab.drafters.base import Strategy
from speclab.engine.generate import Interrupted

PROMPT, VOCAB, NEW, AT = [5, 9, 2, 4, 3, 7, 7, 1, 5, 9, 2, 4], 16, 24, 1
OWN = str(Path(speclab.__file__).parent)
SMALL = {"node_budget": 6, "depth": 2, "children": 2}
RUNS: dict[str, tuple[Strategy, dict[str, Any]]] = {
    "dynatree": (speclab.DynaTree(base_depth=2, max_depth=2, prune_probability=0.1), {}),
    "by prompt, checked": (speclab.DynaTree(base_depth=2, max_depth=2, history="prompt"), {"check": True}),
    "paper": (speclab.DynaTree(root="drafted", commit="rebuild", base_depth=2, max_depth=2), {}),
    "goose": (speclab.Goose(node_budget=8, carry="carried"), {}),
    "lookahead": (speclab.Lookahead(window=3, ngram=3, guesses=3), {}),
    "head": (speclab.DraftHead(**SMALL), {}),
    "sampled": (speclab.LinearSpeculation(draft_tokens=2, candidates="independent"), {"temperature": 1.0, "seed": 3}),
}


def pair() -> speclab.ModelPair:
    return pair_of("llama", 0.05, VOCAB)


def session_of(strategy: Strategy, settings: dict[str, Any]) -> speclab.Session:
    """Before its second iteration."""
    session = speclab.Session(pair(), strategy, PROMPT, max_new_tokens=NEW, **settings)
    for _ in range(AT):
        session.step()
    return session


class Signal(int):
    """Reading `now` sends this signal, from C: no call of Python's follows in which it could be heard at once."""

    now = property(_thread.interrupt_main)


CTRL_C = Signal(signal.SIGINT)


@contextmanager
def interrupted(moments: tuple[int, ...]) -> Iterator[list[int]]:
    """Ctrl-C before each of these bytecodes, counted from the last one on; how many there were is given."""
    left, seen = list(moments), [0]

    def local(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        if event == "opcode":
            seen[0] += 1
            if left and seen[0] == left[0]:
                seen[0] = 0
                del left[0]
                sys.settrace(None)  # or it would be heard in here, at the next bytecode
                _ = CTRL_C.now
        return local

    def start(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        if not frame.f_code.co_filename.startswith(OWN):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return local

    def heard(_: int, __: object) -> None:
        sys.settrace(start)
        raise KeyboardInterrupt

    before, handler = sys.gettrace(), signal.signal(signal.SIGINT, heard)
    sys.settrace(start)
    try:
        yield seen
    finally:
        sys.settrace(before)
        signal.signal(signal.SIGINT, handler)


def count(session: speclab.Session) -> int:
    """Bytecodes of one iteration."""
    with interrupted(()) as seen:
        session.step()
    return seen[0]


def assert_stands(session: speclab.Session, whole: speclab.Session) -> bool:
    """The session is as before its second iteration, or as after it; whether it is after."""
    done = len(session.steps)
    assert done in {AT, AT + 1}
    assert session.cursor == done
    trace = session.trace
    length = len(whole.trace.token_ids(done))
    assert trace.token_ids() == whole.trace.token_ids(done)
    assert (session.token_ids, session.finished) == (list(trace.token_ids()), "")
    for mine, its in zip(session.steps, whole.steps, strict=False):
        assert (mine.committed, mine.settings) == (its.committed, its.settings)
    assert session.metrics.counts.committed == length - 1
    return done == AT + 1


def assert_goes_on_as_if_nothing_had_been(session: speclab.Session, whole: speclab.Session) -> None:
    """Step by step the same trees, thresholds, adaptations and cache lengths; nothing carried over is another."""
    session.run()
    assert len(session.steps) == len(whole.steps)
    for mine, its in zip(session.steps, whole.steps, strict=True):
        assert_same(mine.tree, its.tree)
        assert (mine.committed, mine.settings, mine.adaptation) == (its.committed, its.settings, its.adaptation)
        assert [cache.after for cache in mine.caches] == [cache.after for cache in its.caches]
    assert session.trace.token_ids() == whole.trace.token_ids()
    assert session.ties == whole.ties
    lengths = [runner.length for runner in (*session.pair.runners.values(), *session.pair.heads)]
    assert lengths == [runner.length for runner in (*whole.pair.runners.values(), *whole.pair.heads)]


def interrupt(name: str, moments: Iterable[tuple[int, ...]]) -> tuple[int, int]:
    """One iteration is interrupted at each of the moments, over and over; how often it had not, and had happened."""
    strategy, settings = RUNS[name]
    whole = session_of(strategy, settings)
    whole.run()
    session, before, after = session_of(strategy, settings), 0, 0
    for place, moment in enumerate(moments, start=1):
        try:
            with interrupted(moment):
                session.step()
        except KeyboardInterrupt:
            pass
        happened = assert_stands(session, whole)
        before, after = before + (not happened), after + happened
        if happened or place % 8 == 0:
            assert_goes_on_as_if_nothing_had_been(session, whole)
            session = session_of(strategy, settings)
    assert_goes_on_as_if_nothing_had_been(session, whole)
    return before, after


@pytest.mark.model
@pytest.mark.parametrize("name", RUNS)
def test_an_iteration_and_its_record_come_together_or_not_at_all(name):
    """At the end of the iteration it has happened, before that it has not; every third time Ctrl-C comes twice."""
    total, samples = count(session_of(*RUNS[name])), 10
    places = sorted({1 + total * sample // samples for sample in range(samples)} | set(range(total - 180, total, 15)))
    before, after = interrupt(
        name, [(place,) if index % 3 else (place, 20 + index * 37 % 400) for index, place in enumerate(places)]
    )
    assert before > samples // 2
    assert after > 0


@pytest.mark.model
@pytest.mark.parametrize("name", ["dynatree", "by prompt, checked"])
def test_generate_hands_over_whole_iterations(name):
    """Tokens and figures agree wherever Ctrl-C falls, once there is a token; also while the text is being made."""
    strategy, settings = RUNS[name]
    whole = speclab.generate(pair(), strategy, PROMPT, max_new_tokens=NEW, **settings)
    with interrupted(()) as seen:
        speclab.generate(pair(), strategy, PROMPT, max_new_tokens=NEW, **settings)
    lengths, early, last = set(), seen[0] // 6, seen[0] - 200
    for place in [*range(1, early, early // 8), *range(early, last, seen[0] // 12), *range(last, seen[0], 25)]:
        try:
            with interrupted((place,)):
                speclab.generate(pair(), strategy, PROMPT, max_new_tokens=NEW, **settings)
        except Interrupted as stopped:
            result = stopped.result
            assert result.token_ids == whole.token_ids[: len(result.token_ids)]
            assert result.metrics.counts.committed == len(result.token_ids) - 1
            lengths.add(len(result.token_ids))
        except KeyboardInterrupt:
            assert place < seen[0] // 4 or place > seen[0] - 100, "before the first token, or as it returns"
    assert {1, NEW} <= lengths
    assert len(lengths) > 4


if __name__ == "__main__":
    stride = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    for name in sys.argv[2:] or RUNS:
        began, total = perf_counter(), count(session_of(*RUNS[name]))
        before, after = interrupt(name, [(at,) for at in range(1, total + 1, stride)])
        seconds = perf_counter() - began
        told = f"{before} had not happened, {after} had; {seconds:.0f} s"
        print(f"{name}: {total} bytecodes, every {stride}: {told}", flush=True)
