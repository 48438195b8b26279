"""Made-up results: times that follow from a simple rule, so that a report's figures can be worked out by hand."""

from __future__ import annotations

from datetime import UTC, datetime

from speclab.analysis.attribution import Attribution, SourceRate
from speclab.analysis.routing import Part
from speclab.bench.result import Bound, Result, RunInfo, Stored, VerifyCost

PASS, TOKENS = 0.010, 100
KINDS = ("prose", "code")


def result(method="plain", **changed):
    """A text of 101 tokens: a prefill of 20 ms, then iterations that bring `per` tokens in `cost` plain passes each."""
    per, cost = changed.pop("per", 1.0), changed.pop("cost", 1.0)
    draft = changed.pop("draft", 0.0)
    iterations = round(TOKENS / per)
    each = PASS * cost
    seconds = 0.020 + iterations * each
    fields = {
        "protocol": "dynatree-main", "method": method, "workload": "shipped", "kind": "prose", "prompt_id": "p0",
        "repeat": 0, "prompt_tokens": 30, "max_new_tokens": 101, "new_tokens": 101, "finished": "max_new_tokens",
        "seconds": seconds, "ttft": 0.020,
        "target_seconds": 0.020 + 0.8 * PASS * iterations, "draft_seconds": draft * iterations,
        "phases": {"draft": draft * iterations, "verify": 0.8 * PASS * iterations, "accept": 0.001 * iterations},
        "iterations": iterations, "target_calls": iterations + 1, "draft_calls": 3 * iterations if draft else 0,
        "committed": TOKENS, "drafted": round(4 * iterations), "accepted": TOKENS - iterations,
        "longest_path": 4 * iterations, "nodes": 5 * iterations, "equal": True, "peak_memory_bytes": 500_000_000,
        "memory_kind": "rss",
        "verify_cost": (
            VerifyCost(nodes=1, passes=2, seconds=0.007), VerifyCost(nodes=5, passes=iterations, seconds=0.008),
        ),
    }  # fmt: skip
    return Result(**(fields | changed))


METHODS = {
    "plain": {"per": 1.0, "cost": 1.0},
    "linear, K 5": {"per": 2.0, "cost": 1.6, "draft": 0.004},
    "DynaTree": {"per": 4.0, "cost": 2.0, "draft": 0.008},
    "transformers, greedy": {"per": 1.0, "cost": 1.25, "group": "transformers"},
}
PEER = {"drafted": None, "accepted": None, "longest_path": None, "nodes": None, "phases": {}, "verify_cost": ()}


def results(**changed):
    """Two prompts of each kind, two rounds; code costs half of prose."""
    return [
        result(name, kind=kind, prompt_id=f"{kind}-{i}", repeat=repeat,
               **(rule | {"cost": rule["cost"] * (1 if kind == "prose" else 0.5)}
                  | (PEER if rule.get("group") else {}) | changed))
        for repeat in range(2) for kind in KINDS for i in range(2) for name, rule in METHODS.items()
    ]  # fmt: skip


def run(**changed):
    fields = {
        "protocol": "dynatree-main", "title": "Throughput and speedup", "methods": tuple(METHODS), "baseline": "plain",
        "arguments": {"workload": "shipped", "max_new_tokens": 1500, "repeats": 2},
        "pair": {
            "pair": "mini", "target_parameters": 10_900_000, "draft_parameters": 1_100_000, "target_dtype": "float32",
        },
        "machine": {"processor": "A processor", "device": "cpu", "memory": "24 GiB"},
        "versions": {"speclab": "0.1", "torch": "2.13"}, "threads": 1,
        "started": datetime(2026, 11, 21, 14, 0, tzinfo=UTC), "ended": datetime(2026, 11, 21, 14, 9, tzinfo=UTC),
    }  # fmt: skip
    return RunInfo(**(fields | changed))


def stored(some=None, notes=(), **changed):
    return Stored(run(**changed), tuple(results() if some is None else some), tuple(notes))


COUNT = SourceRate(drafted=100, tried=40, places=40, accepted=30, first=30)
RECORDED = {
    "sources": {"context": COUNT, "transition": SourceRate(drafted=500, tried=200, places=80, accepted=40, first=32)},
    "paths": Attribution(spine_only=30, spine_continuation=20, branch_only=50, continued=8),
    "bound": Bound(iterations=30, expected=2.0, by_rate=4.5, isotropic=1.5, measured=4.0),
}
HEADS = (
    Part(name="prose", chosen=30, accepted=60, committed=90, confidence=0.5, share=0.2, expected=3.0, followed=2.0),
    Part(name="code", chosen=10, accepted=10, committed=20, confidence=0.3, share=0.1, expected=2.0, followed=1.0),
)
