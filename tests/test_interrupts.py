"""Ctrl-C at any line and bytecode of an iteration: the session is as before it or as after it, and nothing else.

A trace function raises KeyboardInterrupt before the so-manieth line or bytecode of speclab's own code. Run as a script
it does so at every line and at every so-manieth bytecode: `python tests/test_interrupts.py [stride]`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from heads import random_head
from records import assert_same
from tiny import tiny

import speclab
from speclab.drafters.base import Strategy
from speclab.generation import Interrupted

PROMPT, VOCAB, NEW, AT = [5, 9, 2, 4, 3, 7, 7, 1, 5, 9, 2, 4], 16, 24, 1
OWN = str(Path(speclab.__file__).parent)
SMALL = {"node_budget": 6, "depth": 2, "children": 2}
RUNS: dict[str, tuple[Strategy, dict[str, Any]]] = {
    "dynatree": (speclab.DynaTree(base_depth=2, max_depth=2, prune_probability=0.1), {}),
    "by prompt, checked": (speclab.DynaTree(base_depth=2, max_depth=2, history="prompt"), {"check": True}),
    "paper": (speclab.DynaTree(root="drafted", commit="rebuild", base_depth=2, max_depth=2), {}),
    "goose": (speclab.Goose(node_budget=8, bigram_entries=4, table_megabytes=1), {}),
    "recycling": (speclab.TokenRecycling(node_budget=8, carry="carried"), {}),
    "lookahead": (speclab.Lookahead(window=3, ngram=3, guesses=3), {}),
    "head": (speclab.DraftHead(**SMALL), {}),
    "two trees": (speclab.DualDraft(mode="merge", first=speclab.DraftHead(**SMALL), second=speclab.PromptLookup()), {}),
    "sampled": (speclab.LinearSpeculation(draft_tokens=2, candidates="independent"), {"temperature": 1.0, "seed": 3}),
}


@cache
def models() -> speclab.ModelPair:
    target, draft = tiny("llama", vocab=VOCAB), tiny("llama", vocab=VOCAB)
    noise = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in draft.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=noise))
    return speclab.load_pair(target=target, draft=draft, heads=[random_head(target, 1)])


def session_of(strategy: Strategy, settings: dict[str, Any]) -> speclab.Session:
    """Before its second iteration, on a pair of its own: what is carried over must not come from elsewhere."""
    pair = models().fresh()
    pair.carried.clear()
    session = speclab.Session(pair, strategy, PROMPT, max_new_tokens=NEW, **settings)
    for _ in range(AT):
        session.step()
    return session


@contextmanager
def interrupted(moments: tuple[int, ...], bytecodes: bool) -> Iterator[list[int]]:
    """KeyboardInterrupt before each of these moments, counted from the last one on; how many there were is given."""
    left, seen = list(moments), [0]

    def local(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        if event == ("opcode" if bytecodes else "line"):
            seen[0] += 1
            if left and seen[0] == left[0]:
                seen[0] = 0
                del left[0]
                raise KeyboardInterrupt
        return local

    def start(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        if not frame.f_code.co_filename.startswith(OWN):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = bytecodes, not bytecodes
        return local(frame, event, None)

    before = sys.gettrace()
    sys.settrace(start)
    try:
        yield seen
    finally:
        sys.settrace(before)


def count(session: speclab.Session, bytecodes: bool) -> int:
    """Moments of one iteration."""
    with interrupted((), bytecodes) as seen:
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


def interrupt(name: str, moments: list[tuple[int, ...]], bytecodes: bool) -> tuple[int, int]:
    """One iteration is interrupted at each of the moments, over and over; how often it had not, and had happened."""
    strategy, settings = RUNS[name]
    whole = session_of(strategy, settings)
    whole.run()
    session, before, after = session_of(strategy, settings), 0, 0
    for place, moment in enumerate(moments):
        try:
            with interrupted(moment, bytecodes):
                session.step()
        except KeyboardInterrupt:
            pass
        happened = assert_stands(session, whole)
        before, after = before + (not happened), after + happened
        if happened or place % 16 == 15 or place == len(moments) - 1:
            assert_goes_on_as_if_nothing_had_been(session, whole)
            session = session_of(strategy, settings)
    return before, after


def sampled_moments(name: str, bytecodes: bool, samples: int) -> list[tuple[int, ...]]:
    """Evenly over the iteration, its last moments all of them; every third with a second Ctrl-C soon after."""
    total = count(session_of(*RUNS[name]), bytecodes)
    places = sorted({1 + total * sample // samples for sample in range(samples)} | set(range(total - 5, total + 1)))
    return [(place,) if index % 3 else (place, 1 + index * 7 % 90) for index, place in enumerate(places)]


@pytest.mark.model
@pytest.mark.parametrize("name", RUNS)
def test_an_iteration_and_its_record_come_together_or_not_at_all(name):
    """At the end of the iteration it has happened, before that it has not: both are seen."""
    lines = interrupt(name, sampled_moments(name, bytecodes=False, samples=24), bytecodes=False)
    codes = interrupt(name, sampled_moments(name, bytecodes=True, samples=12), bytecodes=True)
    assert min(lines[0], codes[0]) > 10
    assert lines[1] + codes[1] > 0


@pytest.mark.model
@pytest.mark.parametrize("name", ["dynatree", "by prompt, checked"])
def test_generate_hands_over_whole_iterations(name):
    """Tokens and figures agree wherever Ctrl-C falls, once there is a token; also while the text is being made."""
    strategy, settings = RUNS[name]
    whole = speclab.generate(models(), strategy, PROMPT, max_new_tokens=NEW, **settings)
    with interrupted((), bytecodes=False) as seen:
        speclab.generate(models(), strategy, PROMPT, max_new_tokens=NEW, **settings)
    handed = 0
    for place in [*range(1, seen[0] - 40, seen[0] // 24), *range(seen[0] - 12, seen[0])]:
        try:
            with interrupted((place,), bytecodes=False):
                speclab.generate(models(), strategy, PROMPT, max_new_tokens=NEW, **settings)
        except Interrupted as stopped:
            result, handed = stopped.result, handed + 1
            assert result.token_ids == whole.token_ids[: len(result.token_ids)]
            assert result.metrics.counts.committed == len(result.token_ids) - 1
            assert len(result.token_ids) > (0 if place < seen[0] - 12 else NEW // 2)
        except KeyboardInterrupt:
            assert place < seen[0] // 2 or place > seen[0] - 5, "before the first token, or as it returns"
    assert handed > 20


if __name__ == "__main__":
    stride = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    for name in sys.argv[2:] or RUNS:
        for bytecodes, every in ((False, 1), (True, stride)):
            total = count(session_of(*RUNS[name]), bytecodes)
            before, after = interrupt(name, [(at,) for at in range(1, total + 1, every)], bytecodes)
            what = "bytecodes" if bytecodes else "lines"
            print(f"{name}: {total} {what}, every {every}: {before} had not happened, {after} had", flush=True)
