"""Which published table a protocol is read beside, and which contender of ours beside which method of the paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from speclab.bench import papers_dual_draft, papers_dynatree, papers_goose
from speclab.bench.papers import Published
from speclab.bench.papers_dynatree import FIXED, LINEAR_5, LINEAR_8, SMALL_FIXED, TREE
from speclab.bench.papers_goose import GOOSE


@dataclass(frozen=True, slots=True)
class Beside:
    """A published table, and how ours is laid beside it.

    `methods`: contender of ours → method of the paper. `relative`: a metric and a method, where the point of the table
    is what each method has over that one. `settings`: the paper's settings gathered under a name, each shown as its
    mean, where the table is too wide to be read whole.
    """

    published: Published
    methods: Mapping[str, str] = field(default_factory=dict)
    relative: tuple[str, str] | None = None
    settings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


_DYNATREE = {
    "plain": "AR",
    "linear, K 5": LINEAR_5,
    "linear, K 8": LINEAR_8,
    "fixed tree, D 8 B 3 τ 0.1": FIXED,
    "fixed tree, D 5 B 2": SMALL_FIXED,
    "DynaTree": TREE,
    "DynaTree, paper's procedure": TREE,
    "DynaTree, authors' code": TREE,
}
_FIXED_TREES = {f"fixed tree, τ {at:g}": f"Fixed Tree, τ {at:g}" for at in (0.01, 0.02, 0.03, 0.05, 0.1)}
_STEPS = {
    "fixed tree, D 5 B 2": SMALL_FIXED,
    "+ breadth": "+ Dynamic Breadth (log)",
    "+ breadth and depth": "+ Dynamic Breadth & Depth",
    "+ history": "+ History Adaptation",
}
_GOOSE = {
    "plain": "AR",
    "prompt lookup": "PLD",
    "token recycling": "TR",
    "lookahead": "Lookahead",
    "retrieval": "REST",
    "draft head, EAGLE-2 tree": "EAGLE-2",
    "Goose": GOOSE,
    "Goose, the paper's bypass": GOOSE,
    "Goose, authors' code": GOOSE,
}
_PARTS = {
    "Goose, the paper's bypass": GOOSE,
    "without spine branches": "w/o spine branches",
    "without bigrams": "w/o bigram adjacency",
    "without bypass": "w/o consensus bypass",
    "without spine": "w/o context-match spine",
    "spine of transitions": "w/o PLD tokens (shape kept)",
}
_SHAPES = {
    "Goose": "Spine",
    "Goose, authors' code": "Spine",
    "isotropic, b 3": "Iso(3)",
    "isotropic, b 3, table alone": "Iso(3)",
    "isotropic, b 5": "Iso(5)",
}
_ADDED = {
    "isotropic, table alone": "isotropic, TR only",
    "+ spine": "+ spine",
    "+ bigrams": "+ bigram",
    "+ bypass": "+ bypass",
}
_MODELS = ("Vicuna-7B", "Llama-3-8B", "Qwen3-8B", "Vicuna-13B", "Vicuna-33B")


def _by_model(published: Published) -> dict[str, tuple[str, ...]]:
    split = {model: tuple(each for each in published.settings if each.startswith(model)) for model in _MODELS}
    return {f"{model}, mean of {len(each)}": each for model, each in split.items() if each}


BESIDE: dict[str, tuple[Beside, ...]] = {
    "main": (
        Beside(papers_dynatree.MAIN, _DYNATREE),
        Beside(papers_goose.MAIN, _GOOSE, settings=_by_model(papers_goose.MAIN)),
    ),
    "dynatree-main": (Beside(papers_dynatree.MAIN, _DYNATREE),),
    "dynatree-latency": (Beside(papers_dynatree.LATENCY, _DYNATREE),),
    "dynatree-verification": (Beside(papers_dynatree.VERIFICATION, _DYNATREE),),
    "dynatree-ablation": (Beside(papers_dynatree.ABLATION, _STEPS, ("throughput", SMALL_FIXED)),),
    "dynatree-length": (
        Beside(papers_dynatree.LENGTH, _DYNATREE),
        Beside(papers_dynatree.LENGTH_AGAIN, _DYNATREE),
    ),
    "dynatree-prompt-length": (
        Beside(papers_dynatree.PROMPT_LENGTH, _DYNATREE),
        Beside(papers_dynatree.PROMPT_LENGTH_AGAIN, _DYNATREE),
    ),
    "dynatree-thresholds": (Beside(papers_dynatree.THRESHOLDS, _DYNATREE),),
    "dynatree-breadth": (Beside(papers_dynatree.BREADTHS, _DYNATREE),),
    "dynatree-depth": (Beside(papers_dynatree.DEPTHS, _DYNATREE),),
    "dynatree-fixed-sweep": (Beside(papers_dynatree.FIXED_SWEEP, _FIXED_TREES),),
    "dynatree-memory": (Beside(papers_dynatree.MEMORY, _DYNATREE, ("peak_mb", "AR")),),
    "goose-main": (
        Beside(papers_goose.MAIN, _GOOSE, settings=_by_model(papers_goose.MAIN)),
        Beside(papers_goose.AVERAGES, _GOOSE),
        Beside(papers_goose.BENCHMARKS),
    ),
    "goose-topology": (
        Beside(
            papers_goose.TOPOLOGY,
            _SHAPES,
            ("tokens_per_iteration", "Iso(3)"),
            _by_model(papers_goose.TOPOLOGY),
        ),
    ),
    "goose-ablation": (Beside(papers_goose.ABLATION, _PARTS, ("tokens_per_iteration", GOOSE)),),
    "goose-steps": (Beside(papers_goose.STEPS, _ADDED, ("tokens_per_iteration", "isotropic, TR only")),),
    "goose-allocation": (Beside(papers_goose.ALLOCATION),),
    "goose-tasks": (Beside(papers_goose.TASKS, _GOOSE), Beside(papers_goose.SPREAD)),
    "goose-decomposition": (Beside(papers_goose.DECOMPOSITION),),
    "goose-bound": (Beside(papers_goose.BOUND),),
    "dual-draft-routing": (Beside(papers_dual_draft.ROUTING),),
}
"""By the name of a protocol; one that no paper has is not here."""
