"""Strategies in many shapes, for tests that hold whatever the strategy."""

from hypothesis import strategies as st

import speclab

VARIANTS = {
    "plain": speclab.Autoregressive(),
    "chain": speclab.LinearSpeculation(draft_tokens=4),
    "chain with a stop": speclab.LinearSpeculation(draft_tokens=8, confidence_stop=0.5),
    "fixed tree": speclab.FixedTree(depth=3, branching=2),
    "dynatree": speclab.DynaTree(node_budget=16),
    "wide dynatree": speclab.DynaTree(
        low_confidence=0.9,
        high_confidence=0.99,
        stop_probability=0.0,
        prune_probability=0.0,
        node_budget=24,
    ),
    "pruned dynatree": speclab.DynaTree(
        low_confidence=0.9, high_confidence=0.99, prune_probability=0.15
    ),
    "best first": speclab.DraftHead(node_budget=12, depth=3, children=4),
    "copies and transitions": speclab.Goose(node_budget=16, shortest_ngram=1),
    "dynatree as in the paper": speclab.DynaTree.paper(),
    "lookahead": speclab.Lookahead(window=5, ngram=4, guesses=4),
}
PATHS = {
    name: VARIANTS[name]
    for name in (
        "chain with a stop",
        "wide dynatree",
        "copies and transitions",
        "dynatree as in the paper",
        "lookahead",
    )
}
"""One for each way through the engine: a chain, a tree of a model, a tree without a model, a
drafted root that is forwarded again, rows that are no candidates."""


@st.composite
def dynatrees(draw, **fixed):
    """Any consistent settings; thresholds from a continuum, so that no distribution meets one exactly."""
    low, high = sorted(draw(st.tuples(st.floats(0, 1), st.floats(0, 1))))
    stop, deep = sorted(draw(st.tuples(st.floats(0, 0.6), st.floats(0, 0.6))))
    few, many = sorted(draw(st.tuples(*[st.integers(1, 5)] * 2)))
    base, deepest = sorted(draw(st.tuples(*[st.integers(1, 7)] * 2)))
    return speclab.DynaTree(
        **(
            {
                "low_confidence": low,
                "high_confidence": high,
                "min_branches": few,
                "max_branches": many,
                "base_depth": base,
                "max_depth": deepest,
                "stop_probability": stop,
                "deep_probability": deep,
                "prune_probability": draw(st.floats(0, 0.3)),
                "node_budget": draw(st.integers(1, 40)),
                "root": draw(st.sampled_from(["verified", "drafted"])),
            }
            | fixed
        )
    )


DRAWN = {
    "drawn chain": speclab.LinearSpeculation(draft_tokens=3, candidates="independent"),
    "drawn chain with a stop": speclab.LinearSpeculation(
        draft_tokens=4, confidence_stop=0.4, candidates="independent"
    ),
    "drawn block": speclab.LinearSpeculation(
        draft_tokens=4, confidence_stop=0.1, candidates="block"
    ),
    "independent tree": speclab.FixedTree(
        depth=2, branching=3, prune_probability=0.15, candidates="independent"
    ),
    "tree without replacement": speclab.FixedTree(
        depth=3, branching=2, node_budget=6, candidates="without_replacement"
    ),
    "independent dynatree": speclab.DynaTree(
        base_depth=2,
        max_depth=3,
        high_confidence=0.6,
        prune_probability=0.05,
        node_budget=24,
        candidates="independent",
    ),
    "dynatree without replacement": speclab.DynaTree(
        base_depth=2, max_depth=3, prune_probability=0.3, candidates="without_replacement"
    ),
}
"""Candidates drawn from the draft; with thresholds and budgets that must not drop one by its own probability."""
