"""GOOSE's tables and figures as protocols, under its budget of 60 nodes; every table starts cold."""

from __future__ import annotations

from dataclasses import replace

from speclab.bench import contenders as ways
from speclab.bench.contenders import ours
from speclab.bench.protocols import Protocol
from speclab.drafters.goose import Goose
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
        ways.GOOSE_PAPER, ways.PEER, ways.PEER_LOOKUP,
    ),
    max_new_tokens=512,
)  # fmt: skip

TOPOLOGY = replace(
    MAIN,
    name="goose-topology",
    title="A spine with branches against trees of one width, same sources and budget",
    source="GOOSE, Table 2 (section 5.3)",
    contenders=(ways.PLAIN, ways.GOOSE, ways.ISOTROPIC_3, ways.ISOTROPIC_5),
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

PROTOCOLS = (MAIN, TOPOLOGY, ABLATION, DECOMPOSITION, BOUND)
