"""Dual-Draft Routing publishes rules and no measurement; this says so where a report would show its figures."""

from __future__ import annotations

from speclab.bench.papers import Published

MEAN = (
    "Its confidence is the mean over the retained nodes, which favours short and narrow trees: both heads get the same "
    "node budget here."
)

ROUTING = Published(
    "Dual-Draft Routing", "Sections 5, 9 and 10", "Routing between two heads against either head and both trees as one",
    "a verifier with two draft heads, not named", "hardware not named", (),
    (
        MEAN,
        "Our two heads were trained on prose and on code, one layer each, for the shipped target.",
    ),
    ("The paper gives the rule and the measure (τ: tokens over verifier passes) and no figures of its own.",),
)  # fmt: skip
