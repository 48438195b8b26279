"""A run of three iterations as a training-free drafter records it: plain, a spine that is left, a bypass."""

from __future__ import annotations

from dataclasses import replace

from view_samples import TEXTS, build_step, trace

from speclab.trace.records import Adaptation, Event, Lookup, Row, Step, Trace
from speclab.tree import DraftTree

C, T = "context", "transition"
TABLE = {"carry": "cold", "table": "dense", "table_bytes": 3 << 20}


def route(name: str, reason: str, rows: int, **values: float | str) -> Event:
    found = {f"match_{n}": 0 for n in (5, 4, 3)}
    return Event("route", None, f"{name}: {reason}", {"route": name, **found, **values, "table_rows": rows, **TABLE})


def learned(before: float, after: float, rows: int) -> Adaptation:
    return Adaptation(
        "5 table rows filled, 2 refreshed",
        {"spine_ratio": 0.3, "spine_acceptance": before, "table_rows": rows},
        {"spine_ratio": 0.3 if after < 0.8 else 0.5, "spine_acceptance": after, "table_rows": rows + 5},
    )


def plain() -> Step:
    step = build_step(DraftTree.root(0), (), bonus=1, prefix=30)
    events = (route("plain", "no n-gram occurred before", 20, consensus=0, spine_acceptance=0.5),)
    return replace(step, events=events, adaptation=learned(0.5, 0.5, 20))


def left_spine() -> Step:
    """Copied: 1, 2, 3; the walk takes 1, then branches off with 4 and 6."""
    tree = DraftTree.of(
        [0, 1, 5, 2, 4, 3, 6], [-1, 0, 0, 1, 1, 3, 4], [0.0, -0.1, -2.0, -0.1, -1.5, -0.1, -1.0],
        ["target", C, T, C, T, C, T],
    )  # fmt: skip
    step = build_step(tree, (1, 4, 6), bonus=7, prefix=31, index=1)
    matches = [
        Event("match", None, "", {"ngram": n, "position": at, "copied": copied, "token": 1})
        for n, at, copied in ((4, 9, 3), (3, 17, 6))
    ]
    values = {"consensus": 2, "spine_ratio": 0.3, "spine_acceptance": 0.5, "spine": 3, "match_4": 3, "match_3": 6}
    told = route("spine tree", "2 of 2 lengths agree, 3 tokens to copy", 25)
    told = replace(told, values={**told.values, **values})
    return replace(step, events=(told, *matches), adaptation=learned(0.5, 0.83, 25))


def bypass() -> Step:
    tree = DraftTree.of([7, 8, 9], [-1, 0, 1], [0.0, -0.1, -0.1], ["target", C, C])
    step = build_step(tree, (1, 2), bonus=3, prefix=35, index=2)
    events = (route("bypass", "3 of 3 lengths agree, 2 tokens to copy", 30, consensus=3, spine_acceptance=0.83),)
    return replace(step, events=events, adaptation=learned(0.83, 0.88, 30))


def run() -> Trace:
    return replace(trace(1), steps=(plain(), left_spine(), bypass()))


def found(pair: bool = True, **changes: object) -> Lookup:
    rows = [Row((2, 1), ((3, 0.5), (4, 0.25)))] if pair else []
    rows.append(Row((1,), ((4, 0.4), (3, 0.2), (100, 0.1))))
    return replace(Lookup(tuple(rows), {"table_rows": 1204, "bigrams": 7, **TABLE}, 2, TEXTS), **changes)
