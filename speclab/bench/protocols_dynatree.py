"""DynaTree's tables and figures as protocols. T = 1500 new tokens as there; a shorter context cuts it, and says so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from typing import Any

from speclab.bench import contenders as ways
from speclab.bench.contenders import Contender, ours
from speclab.bench.protocols import Protocol
from speclab.drafters.dynatree import DynaTree
from speclab.drafters.fixed_tree import FixedTree

LENGTHS = (100, 200, 300, 500, 1000, 1200, 1500, 1800, 2000)
PROMPT_LENGTHS = (100, 200, 300, 500, 750, 1000)
THRESHOLDS = (
    (0.6, 0.2),
    (0.7, 0.3),
    (0.7, 0.4),
    (0.7, 0.5),
    (0.8, 0.3),
    (0.8, 0.4),
    (0.8, 0.5),
    (0.8, 0.6),
    (0.9, 0.4),
    (0.9, 0.5),
    (0.9, 0.6),
    (0.9, 0.7),
    (0.95, 0.3),
)
BREADTHS = ((1, 2), (1, 3), (1, 4), (1, 5), (2, 3), (2, 4), (2, 5), (3, 5))
DEPTHS = ((4, 6), (5, 7), (5, 8), (6, 8), (6, 10), (7, 10), (8, 12))
FIXED_TREES = tuple(product((0.01, 0.02, 0.03, 0.05, 0.1), range(3, 9), (2, 3, 4)))
"""τ, D and B of Figure 7, every one with every other."""

_SWEPT = {"high_confidence": 0.8, "low_confidence": 0.4}
"""What Figures 6b and 6c have in place of 0.9 and 0.4."""
_MAIN = (ways.PLAIN, ways.LINEAR_5, ways.LINEAR_8, ways.FIXED_8_3, ways.DYNATREE)


def _swept(contenders: Iterable[Contender], values: Iterable[float]) -> tuple[Contender, ...]:
    """Every contender at every value."""
    return tuple(contender.at(value) for value in values for contender in contenders)


def _dynatree(x: float, x2: float, **settings: Any) -> Contender:
    return ours("DynaTree", DynaTree(**settings)).at(x, x2)


MAIN = Protocol(
    name="dynatree-main",
    title="Throughput and speedup",
    source="DynaTree, Table 1",
    contenders=(*_MAIN, ways.DYNATREE_UNSURE, ways.PAPERS_PROCEDURE, ways.AUTHORS_CODE, *ways.PEERS),
    max_new_tokens=1500,
    prompt_tokens=800,
    stop_at_eos=False,
)

LATENCY = replace(
    MAIN, name="dynatree-latency", title="Time to first token, and per output token", source="DynaTree, Table 2"
)

VERIFICATION = replace(
    MAIN,
    name="dynatree-verification",
    title="Acceptance, tokens an iteration, path length, iterations",
    source="DynaTree, Table 3",
    contenders=(*_MAIN, ways.DYNATREE_UNSURE),
)

ABLATION = replace(
    MAIN,
    name="dynatree-ablation",
    title="From a fixed tree over breadth and depth to history",
    source="DynaTree, Table 4 and Figure 4",
    contenders=(
        ways.PLAIN,
        ways.FIXED_5_2,
        ours("+ breadth", DynaTree(history="off", max_depth=5, stop_probability=0, deep_probability=0)),
        ours("+ breadth and depth", DynaTree(history="off")),
        ours("+ history", DynaTree()),
    ),
)

LENGTH = replace(
    MAIN,
    name="dynatree-length",
    title="Speed over the number of new tokens",
    source="DynaTree, Figure 5",
    contenders=_swept((*_MAIN, ways.FIXED_5_2, ways.PEER, ways.PEER_ASSISTED), LENGTHS),
    swept="new tokens",
    x_name="new tokens (T)",
    limit=1,
    max_new_tokens=max(LENGTHS),
)

PROMPT_LENGTH = replace(
    MAIN,
    name="dynatree-prompt-length",
    title="Speed over the length of the prompt",
    source="DynaTree, Figure 8",
    contenders=_swept((*_MAIN, ways.FIXED_5_2), PROMPT_LENGTHS),
    swept="prompt tokens",
    x_name="prompt tokens (L_max)",
    workload="shipped-long",
    limit=1,
    max_new_tokens=500,  # the paper's 1500 would leave a context of 1024 no prompts to vary
    prompt_tokens=max(PROMPT_LENGTHS),
)

THRESHOLD_SWEEP = replace(
    MAIN,
    name="dynatree-thresholds",
    title="DynaTree by its confidence thresholds",
    source="DynaTree, Figure 6a",
    contenders=(
        ways.PLAIN,
        ways.FIXED_5_2,
        *(_dynatree(high, low, high_confidence=high, low_confidence=low) for high, low in THRESHOLDS),
    ),
    x_name="τ_h",
    x2_name="τ_ℓ",
    limit=1,
)

BREADTH_SWEEP = replace(
    THRESHOLD_SWEEP,
    name="dynatree-breadth",
    title="DynaTree by its least and most branches",
    source="DynaTree, Figure 6b",
    contenders=(
        ways.PLAIN,
        ways.FIXED_5_2,
        *(
            _dynatree(least, most, min_branches=least, mid_branches=max(2, least), max_branches=most, **_SWEPT)
            for least, most in BREADTHS
        ),
    ),
    x_name="B_min",
    x2_name="B_max",
)

DEPTH_SWEEP = replace(
    THRESHOLD_SWEEP,
    name="dynatree-depth",
    title="DynaTree by its base and largest depth",
    source="DynaTree, Figure 6c",
    contenders=(
        ways.PLAIN,
        ways.FIXED_5_2,
        *(_dynatree(base, most, base_depth=base, max_depth=most, **_SWEPT) for base, most in DEPTHS),
    ),
    x_name="D_0",
    x2_name="D_max",
)

FIXED_SWEEP = replace(
    MAIN,
    name="dynatree-fixed-sweep",
    title="The fixed tree by depth, branching and threshold",
    source="DynaTree, Figure 7",
    contenders=(
        ways.PLAIN,
        *(
            ours(f"fixed tree, τ {at:g}", FixedTree(depth=depth, branching=width, prune_probability=at)).at(
                depth, width
            )
            for at, depth, width in FIXED_TREES
        ),
    ),
    x_name="D",
    x2_name="B",
    limit=1,
)

MEMORY = replace(
    MAIN,
    name="dynatree-memory",
    title="Peak memory",
    source="DynaTree, Table 5",
    contenders=(ways.PLAIN, ways.LINEAR_5, ways.FIXED_5_2, ways.DYNATREE, ways.PEER, ways.PEER_ASSISTED),
    limit=1,
)

PROTOCOLS = (
    MAIN, LATENCY, VERIFICATION, ABLATION, LENGTH, PROMPT_LENGTH, THRESHOLD_SWEEP, BREADTH_SWEEP, DEPTH_SWEEP,
    FIXED_SWEEP, MEMORY,
)  # fmt: skip
