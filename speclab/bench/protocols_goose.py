"""GOOSE's tables and figures as protocols, under its budget of 60 nodes; every table starts cold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from speclab.bench import contenders as ways
from speclab.bench.contenders import ours
from speclab.bench.protocols import Protocol
from speclab.drafters.goose import Goose
from speclab.drafters.isotropic import IsotropicTree
from speclab.drafters.prompt_lookup import PromptLookup
from speclab.drafters.token_recycling import TokenRecycling

_COPIES = ours("prompt lookup, n 5 to 3", PromptLookup(longest_ngram=5, shortest_ngram=3, draft_tokens=20))
_TRANSITIONS = ours("token recycling, 60 nodes", TokenRecycling(node_budget=60))

MAIN = Protocol(
    name="goose-main",
    title="Tokens an iteration and speedup of strategies without a draft model",
    source="GOOSE, Table 3 and Figure 3",
    contenders=(
        ways.PLAIN, ways.LOOKUP, ways.RECYCLING, ways.LOOKAHEAD, ways.RETRIEVAL, ways.EAGLE_TREE, ways.GOOSE,
        ways.GOOSE_PAPER, ways.GOOSE_AUTHORS, ways.PEER, ways.PEER_LOOKUP,
    ),
    max_new_tokens=512,
    limits={"gsm8k": 1024, "goose-gsm8k": 1024, "mt-bench": 1024},
)  # fmt: skip

TOPOLOGY = replace(
    MAIN,
    name="goose-topology",
    title="A spine with branches against trees of one width, same sources and budget",
    source="GOOSE, Table 1 (section 5.3)",
    contenders=(
        ways.PLAIN,
        ways.GOOSE,
        ways.GOOSE_AUTHORS,
        ways.ISOTROPIC_3,
        ways.ISOTROPIC_TABLE,
        ways.ISOTROPIC_5,
    ),
)

ABLATION = replace(
    MAIN,
    name="goose-ablation",
    title="Goose without one part at a time",
    source="GOOSE, Table 2 (ablation)",
    contenders=(
        ways.PLAIN,
        ways.GOOSE_PAPER,
        ours("without spine branches", Goose(bypass_acceptance=0, spine_branches=False)),
        ours("without bigrams", Goose(bypass_acceptance=0, bigram_entries=0)),
        ours("without bypass", Goose(bypass="off")),
        ours("without spine", Goose(bypass_acceptance=0, spine="off")),
        ours("spine of transitions", Goose(bypass_acceptance=0, spine="transitions")),
        ours("our bypass", Goose()),
    ),
)

STEPS = replace(
    MAIN,
    name="goose-steps",
    title="From an isotropic tree of transitions to Goose, one part after another",
    source="GOOSE, section 5.3",
    contenders=(
        ways.PLAIN,
        ours("isotropic, table alone", IsotropicTree(copies=False, bigram_entries=0)),
        ours("+ spine", Goose(bypass="off", bigram_entries=0)),
        ours("+ bigrams", Goose(bypass="off")),
        ours("+ bypass", Goose(bypass_acceptance=0)),
    ),
)

ALLOCATION = replace(
    MAIN,
    name="goose-allocation",
    title="How branches are spread: the share along the spine, and its decay",
    source="GOOSE, Figure 4b",
    contenders=(
        ways.PLAIN,
        ours("all at the root", Goose(bypass="off", spine_branches=False)),
        ours("straight line of theory", Goose(bypass="off", schedule="optimal")),
        *(
            ours(name, Goose(bypass="off", schedule=schedule, spine_branch_ratio=share)).at(share)
            for name, schedule in (("as 1, 1/2, 1/3, …", "harmonic"), ("as many everywhere", "equal"))
            for share in (0.25, 0.5, 0.75)
        ),
    ),
    x_name="β",
)

TASKS = replace(
    MAIN,
    name="goose-tasks",
    title="Tokens per iteration by kind of text, and from prompt to prompt",
    source="GOOSE, appendices D.3 and D.4",
    contenders=(ways.PLAIN, ways.GOOSE, ways.GOOSE_AUTHORS),
    limit=10,
)

_CODE = Goose.of_authors_code()
_CODE_ALONE: dict[str, dict[str, Any]] = {
    "probabilities as scores": {},
    "bounds 0.2 and 0.4": {"low_acceptance": 0.2, "high_acceptance": 0.4},
    "first match": {"pick": "first"},
    "confidence by degrees": {"bypass": "gradual"},
    "matched again, up to 100 tokens": {"extended_spine": 100},
    "consensus of occurrences": {"consensus": "occurrences"},
    "depth from the root": {"depth_from": "root"},
    "breadth-first": {"filling": "breadth"},
    "share of the spine": {"statistic": "spine"},
    "by degrees, 60 to 100 nodes": {"bypass": "gradual", "node_budget": 100, "reserved_share": 0.4},
}
"""Each difference from the paper's text alone; the text does not say that scores are shares of the kept successors."""

CODE = replace(
    MAIN,
    name="goose-code",
    title="Goose by the paper's text and by its authors' code, and each difference alone",
    source="ours",
    contenders=(
        ways.PLAIN,
        ways.GOOSE,
        ways.GOOSE_AUTHORS,
        ours("authors' code, 60 nodes", _CODE.changed(node_budget=60, reserved_share=0.0)),
        ours("Goose, 100 nodes", Goose(node_budget=100)),
        *(ours(name, Goose(scores="vocabulary", **changes)) for name, changes in _CODE_ALONE.items()),
    ),
    limit=10,
    max_new_tokens=96,
    stop_at_eos=False,
)

DECOMPOSITION = replace(
    MAIN,
    name="goose-decomposition",
    title="Where accepted tokens come from, and what both sources together are worth",
    source="GOOSE, Figure 4 (section 5.4)",
    contenders=(ways.PLAIN, _COPIES, _TRANSITIONS, ways.GOOSE),
    recorded=True,
)

BOUND = replace(
    MAIN,
    name="goose-bound",
    title="Proposition 1 against what was measured",
    source="GOOSE, appendix E.4 and Figure 6",
    contenders=(ways.PLAIN, ways.GOOSE, ways.GOOSE_PAPER, ways.ISOTROPIC_3),
    recorded=True,
)

PROTOCOLS = (MAIN, TOPOLOGY, ABLATION, STEPS, ALLOCATION, TASKS, CODE, DECOMPOSITION, BOUND)
