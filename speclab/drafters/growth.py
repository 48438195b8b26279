"""Growing a draft tree breadth-first from a draft model or head (DynaTree, Algorithm 1), under policies of shape.

The chain, the fixed tree and DynaTree differ in their `Plan` alone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import exp, log
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from speclab.drafters.base import Context, Draft, Drafter, Root, Strategy, TopK
from speclab.drafters.draft_forward import DraftForward, ForwardDrafter, Row
from speclab.drafters.policies import (
    BLANK_GATE,
    COPY_GATE,
    Breadth,
    Candidate,
    Candidates,
    CandidateSampler,
    Gate,
    budget_gate,
    candidate_sampler,
    closed_gates,
    confidence,
    depth_gate,
)
from speclab.trace.records import Event
from speclab.tree import CandidateSampling, DraftTree

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair

Drafting = Literal["level", "node"]
HeadChoice = Annotated[
    int | None,
    Field(
        ge=0,
        le=15,
        description="which of the pair's draft heads drafts, counted from 0; none: the draft model, or where there is "
        "no draft model, head 0",
    ),
]


@dataclass(frozen=True, slots=True)
class Plan:
    """All that settings say about how a tree is grown from a draft model.

    Attributes:
        breadth: how many children a node gets.
        gates: tried in order; the first that is closed makes the node a leaf.
        node_budget: most nodes (N_max), the root too. `budget_name`: the setting that says so.
        prune: nodes to which it is closed are taken out at the end (tau); the root never, and nothing from a tree of
            sampled candidates, whose distribution that would change.
        root, rebuild: as in `Drafter`.
        drafting: "level" runs the draft model once over all nodes of a level, "node" once per node (Algorithm 1, line
            26); the trees are the same.
        candidates: how the children of a node are chosen.
    """

    breadth: Breadth
    gates: tuple[Gate, ...]
    node_budget: int
    prune: Gate | None = None
    root: Root = "verified"
    rebuild: bool = False
    drafting: Drafting = "level"
    candidates: Candidates = "top"
    budget_name: str = "node_budget"


class GrownStrategy(Strategy):
    """A strategy whose trees the draft model, or a draft head, grows by a plan."""

    @property
    def needs_draft(self) -> bool:
        return True

    @property
    def heads_needed(self) -> int:
        head = self.draft_source
        return 0 if head is None else head + 1

    @property
    def draft_source(self) -> int | None:
        """Which of the pair's heads drafts, where it has such a setting; None: the draft model, or the first head."""
        return getattr(self, "head", None)

    @abstractmethod
    def plan(self) -> Plan:
        """The policies that these settings stand for."""

    def grow(self, forward: DraftForward, context: Context) -> Draft:
        return grow(self.plan(), forward, context)

    def drafter(self, pair: ModelPair) -> Drafter:
        return GrownDrafter(self, pair)


class GrownDrafter(ForwardDrafter):
    """Grows its trees by the plan of its settings, which may change from one iteration to the next."""

    settings: GrownStrategy

    def __init__(self, settings: GrownStrategy, pair: ModelPair) -> None:
        plan = settings.plan()
        super().__init__(settings, pair, settings.draft_source, plan.root, plan.rebuild)

    def draft(self, context: Context) -> Draft:
        plan = self.settings.plan()
        sampled = candidate_sampler(plan.candidates, context) is not None
        return grow(plan, self.forward(plan.breadth.most, context.sampling if sampled else None), context)


def grow(plan: Plan, forward: DraftForward, context: Context) -> Draft:
    """One draft tree."""
    growth = _Growth.of(plan, forward, context)
    if plan.root == "verified":
        growth.add(-1, ((context.tokens[-1], 0.0),))
    else:
        growth.add(-1, forward.after_text(context.tokens)[:1])

    def ask(nodes: Sequence[int]) -> list[TopK]:
        if plan.root == "verified" and nodes[0] == 0:
            return [forward.after_root(context.tokens)]
        return forward.after([Row(node, growth.parent[node], growth.token[node]) for node in nodes])

    frontier = [0]
    while frontier and growth.room:
        context.check()
        batch = frontier if plan.drafting == "level" else frontier[:1]
        frontier = frontier[len(batch) :] + growth.expand(batch, ask)
    growth.events += [stop_event(node, growth.full, growth.candidate(node)) for node in frontier]
    draft, place = growth.finish()
    forward.renumber(place)
    return draft


@dataclass
class Nodes:
    """The columns of a tree under construction, its nodes in the order they are found."""

    token: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    depth: list[int] = field(default_factory=list)
    log_prob: list[float] = field(default_factory=list)
    path_log_prob: list[float] = field(default_factory=list)

    def add(self, parent: int, picked: TopK) -> range:
        """Adds the children of a node; a root has the parent -1."""
        first = len(self.token)
        depth, path = (self.depth[parent] + 1, self.path_log_prob[parent]) if parent >= 0 else (0, 0.0)
        for token, log_prob in picked:
            self.token.append(token)
            self.parent.append(parent)
            self.depth.append(depth)
            self.log_prob.append(log_prob)
            self.path_log_prob.append(log_prob + path)
        return range(first, len(self.token))

    def candidate(self, node: int) -> Candidate:
        """The node as gates see it."""
        return Candidate(self.depth[node], exp(self.log_prob[node]), exp(self.path_log_prob[node]))


@dataclass(kw_only=True)
class _Growth(Nodes):
    """A tree that grows by a plan, and the record of every decision."""

    plan: Plan
    gates: tuple[Gate, ...]
    forward: DraftForward
    sampler: CandidateSampler | None
    full: Gate
    copies: set[int] = field(default_factory=set)
    tops: dict[int, TopK] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    @classmethod
    def of(cls, plan: Plan, forward: DraftForward, context: Context) -> _Growth:
        sampler = candidate_sampler(plan.candidates, context)
        gates = (depth_gate("the context", context.max_depth), *plan.gates)
        full = budget_gate(plan.budget_name, plan.node_budget)
        return cls(plan=plan, gates=gates, forward=forward, sampler=sampler, full=full)

    @property
    def room(self) -> int:
        return self.plan.node_budget - len(self.token)

    def expand(self, batch: Sequence[int], ask: Callable[[Sequence[int]], list[TopK]]) -> list[int]:
        """Gives children to the nodes of `batch` that no gate stops; returns the children."""
        room = self.room
        candidates = {node: self.candidate(node) for node in batch}
        closed = dict(zip(batch, closed_gates(self.gates, candidates.values()), strict=True))
        closed.update(dict.fromkeys(self.copies.intersection(batch), COPY_GATE))
        # Every expanded node adds a child, so no more than `room` of them can be expanded.
        open_nodes = [node for node in batch if closed[node] is None][:room]
        tops = dict(zip(open_nodes, ask(open_nodes), strict=True)) if open_nodes else {}
        children: list[int] = []
        for node in batch:
            gate = closed[node] if len(children) < room else self.full
            gate = BLANK_GATE if gate is None and not tops[node] else gate
            if gate is None:
                children += self._branch(node, tops[node], room - len(children))
            else:
                self.events.append(stop_event(node, gate, candidates[node]))
        return children

    def _branch(self, node: int, top: TopK, room: int) -> range:
        self.tops[node], breadth = top, self.plan.breadth
        wanted = breadth.branches(top)
        count = min(wanted, room)
        children = self.add(node, top[:count] if self.sampler is None else self._sample(node, count, self.sampler))
        if self.sampler is not None:
            first = {self.token[child]: child for child in reversed(children)}
            self.copies.update([child for child in children if first[self.token[child]] != child])
        values = {
            "confidence": confidence(top),
            "branches": wanted,
            "added": len(children),
            "path_prob": exp(self.path_log_prob[node]),
            "level": self.depth[node] + 1,
        }
        self.events.append(Event("expand", node, breadth.reason(top), values))
        return children

    def _sample(self, node: int, count: int, sampler: CandidateSampler) -> TopK:
        probs = self.forward.draft_probs[node]
        return tuple((token, log(probs[token])) for token in sampler.pick(probs, count))

    def finish(self) -> tuple[Draft, dict[int, int]]:
        """Prunes, and renumbers every record to the tree that is left; also the new place of each node in it."""
        pruned = {} if self.plan.prune is None or self.sampler is not None else self._pruned(self.plan.prune)
        kept = [node for node in range(len(self.token)) if node not in pruned]
        place = {node: index for index, node in enumerate(kept)}
        events = [
            Event(event.kind, place[event.node], event.reason, event.values)
            for event in self.events
            if event.node in place
        ]
        events += [
            Event(event.kind, place[self.parent[node]], event.reason, event.values) for node, event in pruned.items()
        ]
        sampling = CandidateSampling.DETERMINISTIC if self.sampler is None else self.sampler.sampling
        tree = DraftTree.of(self.token, self.parent, self.log_prob, self.forward.source, sampling)
        tops = {place[node]: top for node, top in self.tops.items()}
        draft_probs = {node: self.forward.draft_probs[node] for node in tops} if self.sampler is not None else {}
        return Draft(
            tree.select([node in place for node in range(len(tree))]), tuple(events), tops, draft_probs=draft_probs
        ), place

    def _pruned(self, prune: Gate) -> dict[int, Event]:
        """The nodes that are taken out, and why."""
        found = dict[int, Event]()
        candidates = list(map(self.candidate, range(len(self.token))))
        for node, gate in enumerate(closed_gates((prune,), candidates)):
            if gate is not None and node > 0:
                values = {"token": self.token[node], "path_prob": candidates[node].path_prob, **gate.values}
                reason = gate.reason.format(**candidates[node]._asdict())
                found[node] = Event("prune", self.parent[node], reason, values)
        return found


def stop_event(node: int, gate: Gate, candidate: Candidate) -> Event:
    """Why a node has no children."""
    values = {"gate": gate.name, "path_prob": candidate.path_prob, "level": candidate.depth, **gate.values}
    return Event("stop", node, gate.reason.format(**candidate._asdict()), values)
