"""How a draft tree grows: DRAFTTREE of DynaTree (Chen, Liu and Li, Algorithm 1, lines 9 to 31).

A fixed tree and a chain are special cases. EAGLE-2's tree (Li et al. 2024, arXiv 2406.16858,
section 4) grows at its most probable nodes, and is then cut to the most probable of all candidates.
A recorded step can replace the draft model: `speclab.features.whatif`.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from math import exp
from typing import TYPE_CHECKING, NamedTuple

from speclab.drafters.base import Context, Draft, Drafter, Strategy, TopK
from speclab.drafters.cost import with_node_budget
from speclab.drafters.draft_pass import DraftPassDrafter
from speclab.trace.records import Event, Value
from speclab.tree import CandidateSampling, DraftTree

if TYPE_CHECKING:
    from speclab.pair import ModelPair

BLANK = "blank"
CONTEXT = "context"
"""Gates: the draft has no next tokens for this node, or a context ends."""
OUTRANKED = "outranked"
"""The gate of a node whose children cannot be among the best of all."""


@dataclass(frozen=True)
class Shape:
    """The settings of Algorithm 1; by default no gate closes.

    `best`: EAGLE-2's k: expand the k most probable nodes of a level, and keep the node budget of
    all candidates. `token_probability`: do not expand a token less likely than this (not in the
    papers). `names`: what the strategy calls these settings, if not the same.
    """

    max_depth: int  # D_max
    node_budget: int  # N_max
    branches: tuple[int, int, int]  # B_min, B_mid, B_max
    high_confidence: float = 0.0  # tau_h
    low_confidence: float = 0.0  # tau_l
    base_depth: int = 0  # D_0
    stop_probability: float = 0.0  # rho_stop
    deep_probability: float = 0.0  # rho_deep
    prune_probability: float = 0.0  # tau
    token_probability: float = 0.0
    best: int = 0
    names: Mapping[str, str] = field(default_factory=dict)


class Grown(NamedTuple):
    """A finished tree and how it came about; `numbers`: for each node, its number while the tree grew."""

    tree: DraftTree
    events: list[Event]
    topk: dict[int, TopK]
    numbers: list[int]


class Nodes:
    """The columns of a tree under construction, breadth-first.

    `copies`: nodes with the token of an earlier sibling.
    """

    def __init__(self, token: int, log_prob: float) -> None:
        self.token = [token]
        self.parent = [-1]
        self.depth = [0]
        self.log_prob = [log_prob]
        self.path_log_prob = [log_prob]
        self.copies: set[int] = set()
        self._children: set[tuple[int, int]] = set()

    def __len__(self) -> int:
        return len(self.token)

    def add(self, parent: int, token: int, log_prob: float) -> int:
        node = len(self.token)
        self.token.append(token)
        self.parent.append(parent)
        self.depth.append(self.depth[parent] + 1)
        self.log_prob.append(log_prob)
        self.path_log_prob.append(self.path_log_prob[parent] + log_prob)
        if (parent, token) in self._children:
            self.copies.add(node)
        self._children.add((parent, token))
        return node

    def path_prob(self, node: int) -> float:
        """p(u), the draft's probability of the whole path."""
        return exp(self.path_log_prob[node])

    def best(self, count: int, nodes: Sequence[int]) -> list[int]:
        """The `count` most probable of some nodes, best first; parents come before their children."""
        return nsmallest(
            count, nodes, key=lambda node: (-self.path_log_prob[node], self.depth[node], node)
        )


NextTokens = Callable[[Nodes, Sequence[int]], list[TopK]]
"""One draft pass: the most probable next tokens after each of these nodes, best first."""
Draw = Callable[[int, int], TopK]
"""Samples a number of children of a node."""


def grow(
    shape: Shape,
    next_tokens: NextTokens,
    root: DraftTree,
    max_depth: int,
    source: str,
    draw: Draw | None = None,
) -> Grown:
    """The draft tree of a shape.

    Args:
        root: node 0: the newest committed token, or a drafted one.
        max_depth: where the context of the draft or the target ends.
        source: of the drafted nodes.
        draw: samples the children of a node, instead of taking the most probable tokens.
    """
    tree = Nodes(int(root.token[0]), float(root.log_prob[0]))
    events: list[Event] = []
    topk: dict[int, TopK] = {}
    most = shape.node_budget
    if shape.best:  # EAGLE-2 applies its budget at the end
        most = sys.maxsize

    level = [0]  # line 11: the active frontier
    while level and len(tree) < most:  # line 12
        stops = _stops(shape, tree, level, max_depth)
        # each of them adds a child
        nodes = [node for node in level if node not in stops][: most - len(tree)]
        answers: dict[int, TopK] = {}
        if nodes:  # line 26, a level per pass
            answers = dict(zip(nodes, next_tokens(tree, nodes), strict=True))
        children: list[int] = []
        for node in level:  # line 13
            top = answers.get(node, ())
            if len(tree) >= most:
                events.append(_stop(shape, tree, node, "node_budget"))
            elif node in stops:
                events.append(stops[node])
            elif not top:
                events.append(_stop(shape, tree, node, BLANK))
            else:
                added, event = _expand(shape, tree, node, top, most - len(tree), draw)
                children += added
                topk[node] = top
                events.append(event)
        level = children
    events += [_stop(shape, tree, node, "node_budget") for node in level]

    sources = [source] * len(tree)
    sources[0] = root.source[0]
    grown = DraftTree.of(tree.token, tree.parent, tree.log_prob, sources)
    whole = Grown(grown, events, topk, list(range(len(tree))))
    kept = _kept(shape, tree, sampled=draw is not None)
    if len(kept) < len(tree):
        return _cut(shape, tree, kept, whole)
    return whole


def _expand(
    shape: Shape, tree: Nodes, node: int, top: TopK, room: int, draw: Draw | None
) -> tuple[list[int], Event]:
    """Adds the children of a node, at most `room`; returns them and what was decided."""
    confidence = exp(top[0][1])  # c(u)
    wanted, decided = _branches(shape, confidence)  # line 27: B(u)
    count = min(wanted, room)
    picked = top[:count]
    if draw is not None:
        picked = draw(node, count)
    added = []
    for token, log_prob in picked:  # line 28
        added.append(tree.add(node, token, log_prob))
    values: dict[str, Value] = {
        "confidence": confidence,
        "branches": wanted,
        "added": len(added),
        "path_prob": tree.path_prob(node),
        "level": tree.depth[node] + 1,
    }
    return added, Event("expand", node, values | decided)


def _stops(shape: Shape, tree: Nodes, level: Sequence[int], max_depth: int) -> dict[int, Event]:
    """The nodes of a level that stay leaves, and why."""
    stops = {}
    if shape.best:
        stops = _outranked(shape, tree, level)
    for node in level:
        stop = _gate(shape, tree, node, max_depth)
        if stop is not None:
            stops[node] = stop
    return stops


def _gate(shape: Shape, tree: Nodes, node: int, max_depth: int) -> Event | None:
    """Why a node stays a leaf (lines 14 to 25); None if it may be expanded."""
    path_prob = tree.path_prob(node)
    depth = tree.depth[node]
    if node in tree.copies:  # a sibling has the same token
        return _stop(shape, tree, node, "copy")
    if depth >= max_depth:
        return _stop(shape, tree, node, CONTEXT, threshold=max_depth)
    if path_prob < shape.prune_probability:  # lines 14 to 16: p(u) < tau
        return _stop(shape, tree, node, "prune_probability")
    if depth >= shape.max_depth:  # lines 17 to 19: d(u) >= D_max
        return _stop(shape, tree, node, "max_depth")
    if path_prob < shape.stop_probability:  # lines 20 to 22: p(u) < rho_stop
        return _stop(shape, tree, node, "stop_probability")
    # lines 23 to 25: d(u) >= D_0, p(u) < rho_deep
    if depth >= shape.base_depth and path_prob < shape.deep_probability:
        return _stop(shape, tree, node, "deep_probability", base_depth=shape.base_depth)
    prob = exp(tree.log_prob[node])
    if prob < shape.token_probability:
        return _stop(shape, tree, node, "token_probability", token_prob=prob)
    return None


def _outranked(shape: Shape, tree: Nodes, level: Sequence[int]) -> dict[int, Event]:
    """EAGLE-2: the nodes of a level that are not expanded because others are more probable.

    A node is also not expanded if no child of it can be among the best of all. EAGLE-2 expands it
    and drops its children, so the tree is the same.
    """
    # a child comes after its parent
    may_expand = set(tree.best(shape.node_budget - 1, range(len(tree))))
    outranked = {}
    for rank, node in enumerate(tree.best(len(level), level), start=1):
        if rank > shape.best:
            outranked[node] = _stop(shape, tree, node, "best", rank=rank, count=len(level))
        elif node not in may_expand:
            outranked[node] = _stop(shape, tree, node, "node_budget", gate=OUTRANKED)
    return outranked


def _branches(shape: Shape, confidence: float) -> tuple[int, dict[str, Value]]:
    """B(u), and the rule: few children if the draft is confident, many if it is unsure (section 3.3)."""
    fewest, some, most = shape.branches
    high = shape.high_confidence
    low = shape.low_confidence
    if fewest == most:
        return most, {"rule": "fixed"}
    bounds: dict[str, Value] = {"high_confidence": high, "low_confidence": low}
    if confidence >= high:
        return fewest, bounds | {"rule": "high", "setting": "high_confidence"}
    if confidence < low:
        return most, bounds | {"rule": "low", "setting": "low_confidence"}
    return some, bounds | {"rule": "middle"}


def _stop(shape: Shape, tree: Nodes, node: int, closed: str, **values: Value) -> Event:
    """The event of a node without children: the gate that closed, and what it compared."""
    known: dict[str, Value] = {
        "gate": closed,
        "path_prob": tree.path_prob(node),
        "level": tree.depth[node],
    }
    if hasattr(shape, closed):
        known["setting"] = shape.names.get(closed, closed)
        known["threshold"] = getattr(shape, closed)
    return Event("stop", node, known | values)


def _kept(shape: Shape, tree: Nodes, *, sampled: bool) -> list[int]:
    nodes = range(len(tree))
    if shape.best:  # EAGLE-2: the best of all candidates
        return sorted(tree.best(shape.node_budget, nodes))
    # section 3.3; dropping a sample by its probability would change the output distribution
    if sampled:
        return list(nodes)
    least = shape.prune_probability
    return [node for node in nodes if node == 0 or tree.path_prob(node) >= least]


def _cut(shape: Shape, tree: Nodes, numbers: list[int], grown: Grown) -> Grown:
    """Only the nodes `numbers` of a tree, with "prune" events for the dropped ones."""
    index = {node: row for row, node in enumerate(numbers)}
    dropped: dict[int, list[int]] = {}
    for node in range(len(tree)):
        if node not in index and tree.parent[node] in index:
            dropped.setdefault(tree.parent[node], []).append(node)
    events = []
    for event in grown.events:
        if event.node in index:
            events.append(replace(event, node=index[event.node]))
    least = min(map(tree.path_prob, numbers))
    for parent, children in dropped.items():
        shown = children
        if shape.best:  # EAGLE-2 drops hundreds: one event per parent
            shown = children[:1]
        for child in shown:
            path_prob = tree.path_prob(child)
            values: dict[str, Value] = {"token": tree.token[child], "path_prob": path_prob}
            if shape.best:
                values |= {"by": "best", "setting": "node_budget", "kept": len(numbers)}
                values |= {"dropped": len(children), "least_kept": least}
            else:
                values |= {"setting": "prune_probability", "threshold": shape.prune_probability}
            events.append(Event("prune", index[parent], values))
    topk = {index[node]: top for node, top in grown.topk.items() if node in index}
    return Grown(
        grown.tree.select([node in index for node in range(len(tree))]), events, topk, numbers
    )


class GrownStrategy(Strategy):
    """A strategy whose trees the draft model or a draft head grows to a shape; what-if supports all of them."""

    @property
    def needs_draft(self) -> bool:
        return True

    @abstractmethod
    def shape(self) -> Shape:
        """The shape of these settings; a node budget must be a number."""

    def drafter(self, pair: ModelPair) -> Drafter:
        return GrownDrafter(self, pair, getattr(self, "head", None))


class GrownDrafter(DraftPassDrafter):
    """Grows trees to the shape of its settings, which may change between iterations."""

    settings: GrownStrategy

    def __init__(self, settings: GrownStrategy, pair: ModelPair, head: int | None) -> None:
        super().__init__(with_node_budget(settings, pair), pair, head)

    def draft(self, context: Context) -> Draft:
        shape = self.settings.shape()
        passes = self.begin(
            context, max(shape.branches), getattr(self.settings, "candidates", "top")
        )
        max_depth = passes.context.max_depth
        if self.root == "verified" or max_depth < 0:  # a pass needs a root, if only a guess
            root = DraftTree.root(context.tokens[-1])
        else:  # line 10: the root is the draft's own most probable token
            token, log_prob = passes.root()[0]
            root = DraftTree.of([token], [-1], [log_prob], self.source)
        draw = None
        if passes.sampling is not CandidateSampling.DETERMINISTIC:
            draw = passes.draw
        tree, events, topk, self.numbers = grow(
            shape, passes, root, max(max_depth, 0), self.source, draw
        )
        if draw is None:
            return Draft(tree, events, topk)
        probs = {node: passes.draft_probs[node] for node in topk}
        return Draft(
            replace(tree, candidate_sampling=passes.sampling), events, topk, draft_probs=probs
        )
