"""Hand-made steps and traces that look like real ones: verdicts, masks, caches and counts agree with each other."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
from hypothesis import strategies as st
from support.strategies import draft_trees

from speclab.trace.metrics import Counts
from speclab.trace.records import Adaptation, CacheRecord, Event, NodeRecord, Step, Trace
from speclab.tree import DraftTree

WORDS = (
    " the", " old", " woman", " said", " to", " her", ",", " and", " miller", " forest", " a", " of", ".", "\n",
    " bread", " every", " morning", " kind", " was", " she", " it", "ing", " 12", "s", " would", " not", " very",
)  # fmt: skip
ODD = (
    "<script>alert(1)</script>", "</svg>", "<b>", "<s>", "$x^2$", "&amp;", '"', "'", "\n", "\t", "    ",
    " 日本", "é", "\u0301", "\u200b", "\u202e", "🙂", "<0xE2>", "", "]]>", "%{x}", "\x00", "مرحبا",
)  # fmt: skip
TEXTS: dict[int, str] = dict(enumerate(WORDS)) | {100 + i: text for i, text in enumerate(ODD)}
ANY_TEXTS = {token: [*ODD, *WORDS][token % (len(ODD) + len(WORDS))] for token in range(128)}
EOS = 999
SETTINGS: Mapping[str, float | int | str] = {
    "high_confidence": 0.9, "low_confidence": 0.4, "base_depth": 5, "max_depth": 8, "node_budget": 256,
}  # fmt: skip
WAITING = Adaptation("waiting", {"iterations": 2, "needed": 8})
SLOT_BYTES = 2 * 8 * 320 * 4


def random_parents(nodes: int, seed: int) -> list[int]:
    """A random breadth-first tree."""
    chance = random.Random(seed)
    return [
        -1,
        *sorted(chance.randrange(max(0, i // 3 - 2), max(1, i // 2)) for i in range(1, nodes)),
    ]


def draft_tree(
    parents: Sequence[int],
    seed: int = 0,
    tokens: Sequence[int] | None = None,
    drafted: bool = False,
) -> DraftTree:
    """Siblings get different tokens, and probabilities that fall and add up to less than one."""
    chance = random.Random(seed)
    token = [0] * len(parents)
    log_prob = [0.0] * len(parents)
    taken: dict[int, list[int]] = {}
    left: dict[int, float] = {}
    for node, parent in enumerate(parents):
        free = [t for t in range(len(WORDS)) if t not in taken.get(parent, [])]
        token[node] = tokens[node] if tokens else chance.choice(free)
        taken.setdefault(parent, []).append(token[node])
        if node or drafted:
            prob = left.get(parent, 1.0) * chance.uniform(0.45, 0.9)
            left[parent] = left.get(parent, 1.0) - prob
            log_prob[node] = math.log(prob)
    source = ("draft" if drafted else "target", *("draft" for _ in parents[1:]))
    return DraftTree.of(token, parents, log_prob, source)


def build_step(
    tree: DraftTree,
    accepted: Sequence[int] = (),
    *,
    index: int = 0,
    prefix: int = 57,
    bonus: int | None = 3,
    drafted_root: bool = False,
    texts: Mapping[int, str] = TEXTS,
    seed: int = 0,
    adaptation: Adaptation = WAITING,
) -> Step:
    """A step whose walk took `accepted` (node 0 among them only where it was drafted)."""
    chance = random.Random(seed)
    path = [*([] if drafted_root else [0]), *accepted]
    below = (
        [int(tree.token[child]) for child in tree.children[path[-1]]]
        if path
        else [int(tree.token[0])]
    )
    if bonus is not None:  # the target's own token is none of the rejected candidates
        bonus = next(token for token in itertools.count(bonus) if token not in below)
    choice = {at: int(tree.token[below]) for at, below in itertools.pairwise(path)}
    if path and bonus is not None:
        choice[path[-1]] = bonus
    nodes = tuple(
        _record(tree, node, path, choice, drafted_root, prefix, chance) for node in range(len(tree))
    )
    committed = (
        *(int(tree.token[node]) for node in accepted),
        *(() if bonus is None else (bonus,)),
    )
    root_choice = (int(tree.token[0]) if accepted else bonus) if drafted_root else None
    depth = int(tree.depth.max())
    inner = sum(map(bool, tree.children))
    caches = tuple(
        _cache(name, rows, path, prefix, prefix + len(path))
        for name, rows in (("target", len(tree)), ("draft", inner))
    )
    seconds = {
        "draft": 0.002 + 0.0009 * depth, "verify": 0.005 + 0.00012 * len(tree), "accept": 0.0002, "commit": 0.0004,
        "learn": 0.0001,
    }  # fmt: skip
    drafted = len(tree) - (not drafted_root)
    counts = Counts(
        1,
        len(committed),
        drafted,
        len(accepted),
        depth + drafted_root,
        1,
        depth,
        sum(seconds.values()),
    )
    return Step(
        index, prefix, tree, nodes, tuple(accepted), committed, bonus, root_choice, SETTINGS, _events(tree, nodes),
        caches, seconds, adaptation, counts, tree.ancestor_mask(), (prefix,) * len(tree), texts,
    )  # fmt: skip


def _record(tree, node, path, choice, drafted_root, prefix, chance) -> NodeRecord:
    parent = int(tree.parent[node])
    token = int(tree.token[node])
    if node == 0 and not drafted_root:
        verdict = "root"
    elif node in path:
        verdict = "accepted"
    elif parent in path or (node == 0 and drafted_root):
        verdict = "rejected"
    else:
        verdict = "not reached"
    own = choice.get(node, chance.randrange(len(WORDS)))
    chosen = choice.get(parent) == token
    target = (
        None
        if verdict == "root"
        else chance.uniform(0.55, 0.95)
        if chosen
        else chance.uniform(0.01, 0.3)
    )
    top = ((own, 0.61), ((own + 1) % len(WORDS), 0.17), ((own + 2) % len(WORDS), 0.08))
    draft_top = tuple(
        (int(tree.token[c]), float(np.exp(tree.log_prob[c]))) for c in tree.children[node]
    )
    return NodeRecord(
        node, token, float(np.exp(tree.log_prob[node])), float(np.exp(tree.path_log_prob[node])), target, own,
        verdict, prefix + node, chance.uniform(0.2, 2.5), 0.61, top, draft_top,
    )  # fmt: skip


def _events(tree: DraftTree, nodes: Sequence[NodeRecord]) -> tuple[Event, ...]:
    events = []
    for node, children in enumerate(tree.children):
        values = {"level": int(tree.depth[node]), "path_prob": nodes[node].path_prob}
        if children:
            values |= {
                "confidence": max(prob for _, prob in nodes[node].draft_top),
                "branches": len(children),
                "added": len(children),
                "rule": "middle",
                "low_confidence": 0.4,
                "high_confidence": 0.9,
            }
            events.append(Event("expand", node, values))
        else:
            events.append(
                Event(
                    "stop",
                    node,
                    values
                    | {
                        "gate": "stop_probability",
                        "setting": "stop_probability",
                        "threshold": 0.1,
                    },
                )
            )
    return tuple(events)


def _cache(name: str, rows: int, path: Sequence[int], prefix: int, behind: int) -> CacheRecord:
    kept = tuple(prefix + node for node in path if node < rows)
    moved = tuple((slot, prefix + i) for i, slot in enumerate(kept) if slot != prefix + i)
    return CacheRecord(
        name,
        prefix,
        rows,
        kept,
        moved,
        prefix + len(kept),
        behind,
        64 * (behind // 64 + 5),
        SLOT_BYTES,
    )


def one_node() -> Step:
    """Plain decoding: the root alone."""
    return build_step(DraftTree.root(0), (), bonus=1, prefix=9)


def five_nodes() -> Step:
    """The tree of the first lesson: two children, one of them with two children; checked by hand."""
    tree = DraftTree.of(
        [0, 1, 8, 2, 9], [-1, 0, 0, 1, 1], [0.0, math.log(0.6), math.log(0.3), math.log(0.7), math.log(0.2)],
        ["target", "draft", "draft", "draft", "draft"],
    )  # fmt: skip
    return build_step(tree, (1, 3), bonus=3, prefix=12, index=2)


def heap() -> Step:
    """A tree whose nodes a heap gave in turn, from a block of two depths."""
    block = {"token": 1, "token_prob": 0.6, "second": 8, "second_prob": 0.3, "confidence": 0.6}
    events = [Event("marginal", None, {"level": depth, **block}) for depth in (1, 2)]
    for turn, node in enumerate((1, 3, 2, 4), start=1):
        values = {"order": turn, "path_prob": 0.5, "rank": 1, "level": 1}
        events.append(Event("pop", node, values))
    return replace(five_nodes(), events=tuple(events))


def greedy_path(tree: DraftTree, length: int, first: int = 0) -> tuple[int, ...]:
    path = [first]
    while len(path) <= length and tree.children[path[-1]]:
        path.append(max(tree.children[path[-1]], key=lambda child: len(tree.children[child])))
    return tuple(path[1:])


def sixty_nodes(index: int = 4) -> Step:
    tree = draft_tree(random_parents(60, seed=5), seed=5)
    return build_step(tree, greedy_path(tree, 4), bonus=4, prefix=139, index=index, seed=5)


def large(nodes: int = 256, prefix: int = 4096) -> Step:
    tree = draft_tree(random_parents(nodes, seed=8), seed=8)
    return build_step(tree, greedy_path(tree, 5), bonus=6, prefix=prefix, index=30, seed=8)


def odd_tokens() -> Step:
    """Markup, control characters, wide and empty tokens."""
    tokens = [100 + i for i in range(len(ODD))]
    tree = draft_tree(random_parents(len(ODD), seed=2), seed=2, tokens=tokens)
    return build_step(tree, greedy_path(tree, 3), bonus=100, prefix=20)


def drafted_root(accept: bool = True) -> Step:
    tree = draft_tree([-1, 0, 0, 1, 2, 3, 3], seed=1, drafted=True)
    return build_step(tree, (0, 1) if accept else (), bonus=7, drafted_root=True, prefix=30)


def ended_inside() -> Step:
    """EOS on the accepted path: no bonus."""
    tree = draft_tree([-1, 0, 0, 1, 1, 3], tokens=[0, 1, 2, EOS, 4, 5], seed=4)
    return build_step(tree, (1, 3), bonus=None, texts=TEXTS | {EOS: "<|endoftext|>"}, prefix=88)


def trace(iterations: int = 12, prompt: int = 30, seed: int = 0) -> Trace:
    """A run with growing and shrinking trees; the settings are adapted twice."""
    chance = random.Random(seed)
    steps: list[Step] = []
    prefix = prompt
    settings = dict(SETTINGS)
    for index in range(iterations):
        tree = draft_tree(
            random_parents(chance.randint(4, 24), chance.randrange(99)), chance.randrange(99)
        )
        path = greedy_path(tree, chance.randint(0, 6))
        before = dict(settings)
        adaptation = Adaptation("within", {"mean": 0.7, "iterations": 8, "low": 0.6, "high": 0.8})
        if index in {iterations // 3, 2 * iterations // 3}:
            settings["base_depth"] += 1
            depths = {"base_depth": before["base_depth"]}, {"base_depth": settings["base_depth"]}
            adaptation = Adaptation("bolder", {"mean": 0.84, "iterations": 8, "high": 0.8}, *depths)
        bonus = chance.randrange(len(WORDS))
        step = build_step(
            tree, path, index=index, prefix=prefix, bonus=bonus, seed=index, adaptation=adaptation
        )
        steps.append(replace(step, settings=before))
        prefix += 1 + len(path)
    ids = tuple(chance.randrange(len(WORDS)) for _ in range(prompt))
    models = {
        "target": "mini target",
        "draft": "mini draft",
        "device": "cpu",
        "dtype": "float32",
        "threads": 1,
    }
    return Trace(
        ids,
        0,
        tuple(steps),
        {"strategy": "DynaTree", **SETTINGS},
        models,
        TEXTS,
        0.021,
        finished="length",
    )


@st.composite
def steps(draw: st.DrawFn, max_nodes: int = 30) -> Step:
    """Any tree, any path down it, texts that try to break out of their markup."""
    tree = draw(draft_trees(max_nodes=max_nodes, vocab=64))
    drafted_root = draw(st.booleans())
    path = [0]
    while tree.children[path[-1]] and draw(st.integers(0, 3)):
        path.append(draw(st.sampled_from(tree.children[path[-1]])))
    if drafted_root and draw(st.booleans()):
        path = []
    accepted = path if drafted_root else path[1:]
    bonus = draw(st.integers(0, 63)) if not accepted or draw(st.booleans()) else None
    prefix = draw(st.integers(1, 300))
    return build_step(
        tree, accepted, bonus=bonus, drafted_root=drafted_root, texts=ANY_TEXTS, prefix=prefix
    )


def parse(markup: str) -> ElementTree.Element:
    """The root of a view; a token that broke out of its text would show as an element, a handler or an address."""
    markup.encode("utf-8")
    root = ElementTree.fromstring(f"<div>{markup.replace('&nbsp;', ' ')}</div>")
    for element in root.iter():
        assert element.tag.rpartition("}")[2] not in {"script", "iframe"}, element.tag
        for key in element.attrib:
            assert not key.lower().startswith("on"), key
            assert not key.endswith("href"), key
    return root


def words(markup: str) -> str:
    """All text that is shown."""
    return "".join(parse(markup).itertext())
