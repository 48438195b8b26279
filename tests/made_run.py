"""A made-up run of large trees, for measuring and looking at what a real one of that size would give."""

from __future__ import annotations

import numpy as np

from speclab.trace.metrics import Counts
from speclab.trace.records import Adaptation, CacheRecord, Event, NodeRecord, Step, Trace
from speclab.tree import DraftTree

VOCABULARY = 4096
LETTERS = "etaoinshrdlucmfwypvbgkjqxz"


def made_run(iterations: int, nodes: int, prompt: int = 80, seed: int = 0) -> Trace:
    """Trees of random shape with random figures; the path accepted is the first child, three times out of four."""
    random = np.random.default_rng(seed)
    texts = {token: _word(random) for token in range(VOCABULARY)}
    steps: list[Step] = []
    prefix = prompt
    for index in range(iterations):
        steps.append(_step(random, index, prefix, nodes, texts))
        prefix += len(steps[-1].committed)
    return Trace(
        prompt_ids=tuple(random.integers(0, VOCABULARY, prompt).tolist()),
        first_token=7,
        steps=tuple(steps),
        settings={"strategy": "DynaTree", "temperature": 0.0, "max_new_tokens": 4 * iterations},
        models={"target": "made up", "device": "cpu"},
        texts=texts,
        prefill_seconds=0.05,
    )


def _word(random: np.random.Generator) -> str:
    return " " * int(random.random() < 0.7) + "".join(random.choice(list(LETTERS), random.integers(1, 8)))


def _tree(random: np.random.Generator, nodes: int) -> DraftTree:
    parents = [-1, *sorted(int(random.integers(max(0, i // 3 - 2), max(1, i // 2))) for i in range(1, nodes))]
    logs = [0.0, *(-random.exponential(1.5, nodes - 1)).tolist()]
    return DraftTree.of(random.integers(0, VOCABULARY, nodes).tolist(), parents, logs, "draft")


def _step(random: np.random.Generator, index: int, prefix: int, nodes: int, texts: dict[int, str]) -> Step:
    tree, path = _tree(random, nodes), [0]
    while tree.children[path[-1]] and random.random() < 0.75:
        path.append(int(tree.children[path[-1]][0]))
    records = tuple(_node(random, tree, i, prefix, path) for i in range(nodes))
    committed = (*(int(tree.token[i]) for i in path[1:]), records[path[-1]].target_choice)
    used = {token for record in records for token, _ in (*record.target_top, *record.draft_top)}
    used |= {*committed, *tree.token.tolist(), *(record.target_choice for record in records)}
    kept = tuple(prefix + i for i in path)
    return Step(
        index=index,
        prefix_length=prefix,
        tree=tree,
        nodes=records,
        accepted=tuple(path[1:]),
        committed=committed,
        bonus=committed[-1],
        root_choice=None,
        settings={"strategy": "DynaTree", "base_depth": 5 + index % 3, "node_budget": nodes},
        events=tuple(
            Event("expand", i, f"confidence {random.random():.2f} < low_confidence 0.40",
                  {"confidence": float(random.random()), "branches": 3, "level": 1 + int(tree.depth[i])})
            for i in range(nodes) if tree.children[i]
        ),
        caches=(CacheRecord("target", prefix, nodes, kept, (), prefix + len(path), prefix + len(path), 1024, 20480),),
        seconds={name: float(random.random()) / 50 for name in ("draft", "verify", "accept", "commit", "learn")},
        adaptation=Adaptation("mean 0.9", {"base_depth": 5}, {"base_depth": 6}),
        counts=Counts(1, len(committed), nodes - 1, len(path) - 1, int(tree.depth.max()), 1, 4, 0.02),
        mask=tree.ancestor_mask(),
        prefix_seen=(prefix,) * nodes,
        texts={token: texts[token] for token in sorted(used)},
    )  # fmt: skip


def _node(random: np.random.Generator, tree: DraftTree, i: int, prefix: int, path: list[int]) -> NodeRecord:
    parent, top = int(tree.parent[i]), sorted(random.dirichlet([0.6] * 5).tolist(), reverse=True)
    inside = i in path[:-1]
    choice = int(tree.token[path[path.index(i) + 1]]) if inside else int(random.integers(0, VOCABULARY))
    verdict = "root" if i == 0 else "accepted" if i in path else "rejected" if parent in path else "not reached"
    return NodeRecord(
        index=i,
        token=int(tree.token[i]),
        draft_prob=float(np.exp(tree.log_prob[i])),
        path_prob=float(np.exp(tree.path_log_prob[i])),
        target_prob=None if i == 0 else float(random.random()),
        target_choice=choice,
        verdict=verdict,
        reason=f"the target chose token {choice} after node {parent}",
        kv_slot=prefix + i,
        entropy=float(random.random() * 5),
        target_top=tuple(zip(random.integers(0, VOCABULARY, 5).tolist(), top, strict=True)),
        draft_top=tuple(zip(random.integers(0, VOCABULARY, 5).tolist(), top, strict=True)),
    )
