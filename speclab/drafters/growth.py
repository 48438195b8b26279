"""Growing a draft tree breadth-first from a draft model (DynaTree, Algorithm 1), under small policies of shape.

The chain, the fixed tree and DynaTree differ in their `Shape` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log
from typing import Literal

from speclab.drafters.base import Commit, Context, Draft, LevelGate, Root, TopK
from speclab.drafters.draft_forward import DraftForward, Row
from speclab.drafters.drawn import Candidates, Drawing, drawing
from speclab.drafters.policies import Breadth, Candidate, Gate, blank_gate, budget_gate, copy_gate, depth_gate
from speclab.trace.records import Event
from speclab.tree import CandidateSampling, DraftTree, Floats

Drafting = Literal["level", "node"]
SOURCE = "draft"
"""What the nodes are said to come from."""
Ask = Callable[[Sequence[int]], list[TopK]]


@dataclass(frozen=True, slots=True)
class Shape:
    """What a tree may become. `gates` are tried in order; the first that is closed makes the node a leaf.

    `node_budget` (N_max) counts every node, the root too. Leaves with a path probability below `prune_probability`
    (tau) are taken out at the end, the root never, and nothing from a tree of draws: that would bend its distribution.
    """

    breadth: Breadth
    gates: tuple[Gate, ...]
    node_budget: int
    prune_probability: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """All that settings say about how a tree is grown from a draft model.

    `drafting`: "level" runs the draft model once over all nodes of a level, "node" once a node (Algorithm 1, line 26);
    the trees are the same. `root`, `commit`: as in `Drafter`. `candidates`: how the children of a node are chosen.
    """

    shape: Shape
    root: Root = "verified"
    commit: Commit = "gather"
    drafting: Drafting = "level"
    candidates: Candidates = "top"


def grow(plan: Plan, passes: DraftForward, context: Context) -> Draft:
    """One draft tree."""
    shape, root, draws = plan.shape, plan.root, drawing(plan.candidates, context)
    gates = (depth_gate("the context", context.max_depth), *shape.gates)
    growth = _Growth(shape, gates, draws, passes.draft_probs, context.level_gate if draws is None else None)
    if root == "verified":
        growth.add(context.tokens[-1], -1, 0.0)
    else:
        token, log_prob = passes.after_text(context.tokens)[0]
        growth.add(token, -1, log_prob)

    def ask(nodes: Sequence[int]) -> list[TopK]:
        if root == "verified" and nodes[0] == 0:
            return [passes.after_root(context.tokens)]
        return passes.after([Row(node, growth.parent[node], growth.token[node]) for node in nodes])

    frontier = [0]
    while frontier and growth.room:
        context.check()
        batch = frontier if plan.drafting == "level" else frontier[:1]
        frontier = frontier[len(batch) :] + growth.expand(batch, ask)
    for node in frontier:
        growth.stop(node, budget_gate(shape.node_budget))
    draft, place = growth.finish(SOURCE)
    passes.renumber(place)
    return draft


@dataclass
class _Growth:
    """The columns of a tree under construction, and the record of every decision."""

    shape: Shape
    gates: tuple[Gate, ...]
    draws: Drawing | None
    draft_probs: Mapping[int, Floats]
    level_gate: LevelGate | None = None
    copies: set[int] = field(default_factory=set)
    token: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    depth: list[int] = field(default_factory=list)
    log_prob: list[float] = field(default_factory=list)
    path_log_prob: list[float] = field(default_factory=list)
    tops: dict[int, TopK] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    @property
    def room(self) -> int:
        return self.shape.node_budget - len(self.token)

    def add(self, token: int, parent: int, log_prob: float) -> int:
        self.token.append(token)
        self.parent.append(parent)
        self.depth.append(self.depth[parent] + 1 if parent >= 0 else 0)
        self.log_prob.append(log_prob)
        self.path_log_prob.append(log_prob + (self.path_log_prob[parent] if parent >= 0 else 0.0))
        return len(self.token) - 1

    def candidate(self, node: int) -> Candidate:
        return Candidate(self.depth[node], exp(self.log_prob[node]), exp(self.path_log_prob[node]))

    def gate(self, node: int) -> Gate | None:
        if node in self.copies:
            return copy_gate()
        candidate = self.candidate(node)
        return next((gate for gate in self.gates if gate.closed(candidate)), None)

    def expand(self, batch: Sequence[int], ask: Ask) -> list[int]:
        """Gives children to the nodes of `batch` that no gate stops; returns the children."""
        closed = {node: self.gate(node) for node in batch}
        wanted = [node for node in batch if closed[node] is None][: self.room]
        if self.level_gate is not None and wanted:
            costly = self.level_gate(self.parent, self.log_prob, wanted, SOURCE)
            closed = {node: gate or costly for node, gate in closed.items()}
        # Every expanded node adds a child, so no more than `room` of them can be expanded.
        open_nodes = [node for node in batch if closed[node] is None][: self.room]
        tops = dict(zip(open_nodes, ask(open_nodes), strict=True)) if open_nodes else {}
        children: list[int] = []
        for node in batch:
            gate = closed[node] if self.room else budget_gate(self.shape.node_budget)
            gate = blank_gate() if gate is None and not tops[node] else gate
            if gate is None:
                children += self._branch(node, tops[node])
            else:
                self.stop(node, gate)
        return children

    def _branch(self, node: int, top: TopK) -> list[int]:
        self.tops[node], breadth = top, self.shape.breadth
        confidence = exp(top[0][1])
        wanted = breadth.branches(confidence)
        count = min(wanted, self.room)
        picked = top[:count] if self.draws is None else self._draw(node, count, self.draws)
        children = [self.add(token, node, log_prob) for token, log_prob in picked]
        first = {self.token[child]: child for child in reversed(children)}
        self.copies.update(child for child in children if first[self.token[child]] != child)
        values = {
            "confidence": confidence,
            "branches": wanted,
            "added": len(children),
            "path_prob": exp(self.path_log_prob[node]),
            "level": self.depth[node] + 1,
        }
        self.events.append(Event("expand", node, breadth.reason(confidence), values))
        return children

    def _draw(self, node: int, count: int, draws: Drawing) -> TopK:
        probs = self.draft_probs[node]
        return tuple((token, log(probs[token])) for token in draws.pick(probs, count))

    def stop(self, node: int, gate: Gate) -> None:
        candidate = self.candidate(node)
        values = {
            "gate": gate.name,
            "path_prob": candidate.path_prob,
            "level": candidate.depth,
            **gate.values,
        }
        self.events.append(Event("stop", node, gate.reason(candidate), values))

    def finish(self, source: str) -> tuple[Draft, dict[int, int]]:
        """Prunes, and renumbers every record to the tree that is left; also the new place of each node in it."""
        tau = self.shape.prune_probability if self.draws is None else 0.0
        keep = [node == 0 or exp(path) >= tau for node, path in enumerate(self.path_log_prob)]
        sampling = CandidateSampling.DETERMINISTIC if self.draws is None else self.draws.sampling
        tree = DraftTree.of(self.token, self.parent, self.log_prob, source, sampling)
        place = {node: index for index, node in enumerate(n for n, kept in enumerate(keep) if kept)}
        events = [
            Event(event.kind, place[event.node], event.reason, event.values)
            for event in self.events
            if event.node in place
        ]
        events += [self._pruned(node, place[self.parent[node]]) for node, kept in enumerate(keep) if not kept]
        tops = {place[node]: top for node, top in self.tops.items()}
        draft_probs = {node: self.draft_probs[node] for node in tops} if self.draws is not None else {}
        return Draft(tree.select(keep), tuple(events), tops, draft_probs=draft_probs), place

    def _pruned(self, node: int, parent: int) -> Event:
        path_prob, tau = exp(self.path_log_prob[node]), self.shape.prune_probability
        values = {"token": self.token[node], "path_prob": path_prob, "prune_probability": tau}
        return Event("prune", parent, f"path probability {path_prob:.3f} < prune_probability {tau:g}", values)
