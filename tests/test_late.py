"""A step's nodes, texts and events are worked out when they are read, and nobody can tell."""

from __future__ import annotations

import copy
import gc
import pickle
from dataclasses import dataclass, replace
from threading import Thread
from types import FunctionType, ModuleType

import numpy as np
import pytest
import torch
from tiny import tiny

import speclab
from speclab.engine.record import Reading
from speclab.models.pair import load_pair
from speclab.models.runner import Runner
from speclab.trace.records import Late

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


@dataclass(frozen=True, slots=True)
class Point(Late):
    x: int
    y: int = 0
    name: str = ""


def late(reads: list[int]) -> Point:
    def later(point: Point) -> dict:
        reads.append(point.x)
        return {"y": point.x + 1, "name": "late"}

    return Point(1, 7).put_off("y", "name", later=later)


def test_a_late_field_is_worked_out_once_and_from_the_others():
    reads: list[int] = []
    point = late(reads)
    assert (point.x, reads) == (1, [])
    assert (point.y, point.name, point.y) == (2, "late", 2)
    assert reads == [1]


@pytest.mark.parametrize(
    "use",
    [copy.copy, copy.deepcopy, replace, lambda point: pickle.loads(pickle.dumps(Point(1, point.y, point.name)))],
    ids=["copy", "deepcopy", "replace", "pickle"],
)
def test_whoever_takes_a_late_record_gets_a_whole_one(use):
    assert use(late([])) == Point(1, 2, "late") == late([])
    assert repr(late([])) == repr(Point(1, 2, "late"))


def test_a_name_that_is_none_is_missed_as_ever():
    for point in (late([]), Point(1)):
        with pytest.raises(AttributeError, match="nothing"):
            point.nothing  # noqa: B018
    with pytest.raises(AttributeError):
        late([]).y = 3


def test_two_threads_may_read_at_once():
    for _ in range(50):
        point, seen = late([]), []
        threads = [Thread(target=lambda point=point, seen=seen: seen.append(point.y)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == [2] * 4


def held(thing: object, seen: dict[int, object] | None = None) -> list[object]:
    """Everything that can be reached from a thing, but for modules, classes and code."""
    seen = {} if seen is None else seen
    if id(thing) not in seen and not isinstance(thing, type | ModuleType | FunctionType):
        seen[id(thing)] = thing
        for one in gc.get_referents(thing):
            held(one, seen)
    return list(seen.values())


@pytest.mark.model
@pytest.mark.parametrize("settings", [{}, {"temperature": 1.0}], ids=["greedy", "sampled"])
def test_running_works_out_no_record_and_keeps_no_tensor_and_no_model(settings, monkeypatch):
    read, fields = [], Reading.fields
    monkeypatch.setattr(Reading, "fields", lambda *given: read.append(1) or fields(*given))
    session = speclab.Session(
        load_pair(target=tiny("gpt_neox")), speclab.Goose(), PROMPT, max_new_tokens=16, **settings
    )
    last = session.run()
    assert read == []
    kept = held(session.steps)
    assert not [one for one in kept if isinstance(one, torch.Tensor | torch.nn.Module | Runner)]
    assert max(one.size for one in kept if isinstance(one, np.ndarray)) < 64 * len(last.tree)
    assert all(len(step.nodes) == len(step.tree) and step.texts for step in session.steps)
    assert len(read) == len(session.steps)
