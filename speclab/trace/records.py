"""What happened, as plain immutable data without torch: one Step per iteration, one Trace per run.

Every view is a function of one Step or of a Trace, so stepping back never runs a model.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from speclab.display import line, public, short, view
from speclab.errors import SettingsError, named
from speclab.files import write_whole
from speclab.prompts import Message
from speclab.trace.codecs import (
    Amount,
    Length,
    Many,
    MaskBits,
    Natural,
    Probability,
    Real,
    TreeColumns,
    Whole,
    adapter,
)
from speclab.trace.metrics import Counts, Metrics

if TYPE_CHECKING:
    import networkx

VERSION = 3
PHASES = ("draft", "verify", "accept", "commit", "learn")
"""The phases of an iteration; the keys of `Step.seconds`."""
Verdict = Literal["root", "accepted", "rejected", "not reached"]
RANKS = ("token", "second", "third")
"""Keys of the tokens that an event names, best first."""
UNKNOWN = -1
"""A token that is not recorded."""
TIE = "tie"
"""The kind of a finding that is no fault."""
Value = Real | Whole | str | bool | None


@dataclass(frozen=True, slots=True)
class ResidualToken:
    """One token at the node where sampled acceptance stopped.

    `target`: its probability for the target. `residual`: in the distribution that the bonus token
    was drawn from. `draft`: in the distribution that the candidates were drawn from; None if none
    were drawn.
    """

    token: Natural
    residual: Probability
    target: Probability
    draft: Probability | None


@dataclass(frozen=True, slots=True)
class Trial:
    """A child that acceptance tested.

    `target`: its probability in the residual of the target's distribution; `against`: in the
    draft's. The first child of a node meets both distributions whole. `block`: with which
    probability the path down to it passes as a whole; None if children are tried alone.
    """

    node: Natural
    target: Probability
    against: Probability
    accepted: bool = False
    block: Probability | None = None


@dataclass(frozen=True, slots=True)
class Residual:
    """The distribution of the bonus token after `node` (None: before a drafted root), most probable
    tokens first."""

    node: Natural | None
    tokens: Many[ResidualToken]


@dataclass(frozen=True, slots=True)
class Event:
    """One drafting decision.

    `kind`: "expand" (children were requested), "stop" (a gate closed), "prune" (a candidate was
    dropped), "route" (which way the drafter went), "marginal" (the best tokens at a depth of a
    block, by `RANKS`), "pop" (a path of marginals joined the tree as number `order`). `node`: its
    tree node; for "prune" the parent of the dropped candidate. `values`: the numbers that decided,
    e.g. confidence, branches, path_prob, threshold, level, token, and which rule or gate it was
    (`rule`, `gate`, `by`, `route`); `setting` is the strategy's name of the setting that decided. A
    "prune" of several candidates has their number as "dropped". `views/words.json` words them.
    """

    kind: str
    node: Natural | None
    values: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One row of the verification pass; probabilities are 0…1.

    `index`: its number in the tree. `token`: its id. `draft_prob`: the drafter's probability of this
    token at its parent; `path_prob`: the product along its path. `target_prob`: the target's
    probability of this token at its parent; None for a verified root, and if not recorded.
    `verdict`: "root" is a verified root; "not reached" has a rejected ancestor, or the text ended
    or another child was accepted before the node was tried. `target_choice`: the target's choice
    *after* this node, `UNKNOWN` if not recorded; on a path whose candidates were tried one by one,
    the token that follows. `choice_prob`: the target's probability of that token, None if not
    recorded. `beyond_draft`: no draft that may have proposed has that token in its vocabulary.
    `target_top`, `draft_top`: the most probable next tokens, (token, probability), best first;
    `draft_top` is empty if the node was not expanded. `entropy`: of the target's distribution after
    this node, nats; 0 if not recorded. `kv_slot`: the row's slot in the target's cache during the
    pass.
    """

    index: Natural
    token: Natural
    draft_prob: Probability
    path_prob: Probability
    target_prob: Probability | None
    target_choice: Whole
    verdict: Verdict
    kv_slot: Length
    entropy: Real
    choice_prob: Probability | None = None
    beyond_draft: bool = False
    target_top: Many[tuple[Natural, Probability]] = ()
    draft_top: Many[tuple[Natural, Probability]] = ()


@dataclass(frozen=True, slots=True)
class ExtraRow:
    """One row of the verification pass that is not a candidate, such as one of lookahead decoding's
    window.

    Extra rows follow the nodes: the first has KV slot and mask row `n`. `depth`: its position is
    prefix length + depth. `sees`: nodes and extra rows, by row, that the target was *given* to see;
    `prefix_seen`: prefix entries. `target_choice`: its most probable next token.
    """

    token: Natural
    depth: Natural
    sees: Many[Natural]
    prefix_seen: Length
    target_choice: Natural


@dataclass(frozen=True, slots=True)
class Proposal:
    """One of several trees that were drafted from the same root.

    `confidence`: the mean of exp(cumulative log-probability) over the nodes but the root, 0…1
    (Dual-Draft Routing, sections 4 and 5). `score`: what the trees were compared by. `chosen`:
    whether the target verified its nodes.
    """

    name: str
    tree: TreeColumns
    confidence: Probability
    score: Real
    chosen: bool


@dataclass(frozen=True, slots=True)
class CacheRecord:
    """One cache over one iteration, in slots (one token each).

    `before`: entries before the iteration. `written`: rows of this iteration's draft. `kept`: their
    slots that stay. `moved`: (from, to) slots of kept rows that were gathered. `after`: entries
    afterwards. `committed`: entries that sequential decoding would leave in the target's cache.
    `capacity`: slots allocated. `slot_bytes`: of each.
    """

    name: str
    before: Length
    written: Length
    kept: Many[Length]
    moved: Many[tuple[Length, Length]]
    after: Length
    committed: Length
    capacity: Length
    slot_bytes: Natural


@dataclass(frozen=True, slots=True)
class Adaptation:
    """What the drafter changed for the next iteration.

    `kind`: why, with the numbers that decided as `values`; "" if it adapts nothing. `before` and
    `after`: the changed settings.
    """

    kind: str = ""
    values: Mapping[str, Value] = field(default_factory=dict)
    before: Mapping[str, Value] = field(default_factory=dict)
    after: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong at `node` (None: the whole pass) of `iteration`, counted from 0.

    `kind`: what the record contradicts, or what the models answer otherwise (docs/steps.md); `TIE`,
    where two tokens are closer than rounding, which is no fault. `fault`: the name in
    `clinic.FAULTS` whose signature it is, if any. `count`: rows of the iteration that are wrong in
    this way; `node` is the first. `text_is_right`: it only costs accepted tokens.
    """

    iteration: Natural
    node: Natural | None
    kind: str
    sentence: str
    fault: str = ""
    count: Natural = 1
    text_is_right: bool = False

    def __str__(self) -> str:
        return f"iteration {self.iteration + 1}, {self.kind}: {self.sentence}"


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One iteration, whole: a view needs no other step to draw it.

    `index`: from 0. `tree`: `n` nodes, breadth-first; `nodes`: the row of each. `prefix_length`:
    entries in the target's cache before the pass; node 0 has position `prefix_length`. `accepted`:
    drafted nodes of the committed path, in order (without a verified root). `committed`: token ids
    added: the accepted tokens, then `bonus`, unless the text ended before. `bonus`: the target's
    own token after the path, None if the text ended inside the path. `root_choice`: with a drafted
    root, the target's choice at its position. `settings`: of this draft. `caches`: of every model
    that ran. `seconds`: by phase. `adaptation`: what the drafter changed for the next iteration.
    `counts`: for metrics. `mask`: `[n, n]` bool, the tree part of the mask that the target was
    *given*; `prefix_seen`: prefix entries that each row saw. `texts`: token id to text. `note`: a
    code of `views/words.json`, or a text of whoever recorded it. `extra`: rows that could not be
    accepted. `rule`: of acceptance (`acceptance.Rule`). `trials`: the children that acceptance
    tried one by one, in order. `residual`: what the bonus was drawn from; None at temperature 0,
    and if the text ended before. `proposals`: the proposed trees, if there were several. `paths`:
    the rows of each path, if the target verified by paths; empty: by one mask.

    For another decoder's pass (`load_steps`): `position`: of each row as given to the model.
    `hidden_prefix`: (row, first, last) of hidden prefix entries. `rows`: the row of the file for
    each node, empty if the order is the same. `missing`: names of what is not recorded.
    `not_numbers`: nodes whose recorded answer is not a number. `request`, `batch`: as recorded.

    For a checked run (`clinic.marked`): `findings`. `plain`: in the first wrong iteration (token,
    probability) after the path of each node, run plainly. `gaps`: of each node's answer to the plain
    one, recorded and of the reference (None if not measured), or None if no answer is recorded.
    """

    index: Natural
    prefix_length: Length
    tree: TreeColumns
    nodes: Many[NodeRecord]
    accepted: Many[Natural]
    committed: Many[Natural]
    bonus: Natural | None
    root_choice: Natural | None
    settings: Mapping[str, Value]
    events: Many[Event]
    caches: Many[CacheRecord]
    seconds: Mapping[str, Amount]
    adaptation: Adaptation
    counts: Counts
    mask: MaskBits
    prefix_seen: Many[Length]
    texts: Mapping[Natural, str]
    note: str = ""
    extra: Many[ExtraRow] = ()
    rule: str = ""
    trials: Many[Trial] = ()
    residual: Residual | None = None
    proposals: Many[Proposal] = ()
    paths: Many[Many[Natural]] = ()
    position: Many[Whole] = ()
    hidden_prefix: Many[tuple[Natural, Length, Length]] = ()
    rows: Many[Natural] = ()
    missing: Many[str] = ()
    not_numbers: Many[Natural] = ()
    request: str = ""
    batch: str = ""
    findings: Many[Finding] = ()
    plain: Many[Many[tuple[Natural, Probability]]] = ()
    gaps: Many[tuple[Amount, Amount | None] | None] = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Step):
            return NotImplemented
        names = [column.name for column in fields(self) if column.name != "mask"]
        same = all(getattr(self, name) == getattr(other, name) for name in names)
        return same and np.array_equal(self.mask, other.mask)

    __hash__ = None  # type: ignore[assignment]

    @property
    def drafted(self) -> range:
        """The nodes that are candidates: all but a verified root."""
        first = 1 if self.root_choice is None else 0
        return range(first, len(self.tree))

    @property
    def path(self) -> tuple[int, ...]:
        """The nodes whose cache rows stay: a verified root, then the accepted nodes.

        Where the text ended inside the path, the last of them is the next root, without a row.
        """
        if 0 in self.drafted:
            return self.accepted
        return (0, *self.accepted)

    def link(self) -> str:
        """A link that shows this iteration in a browser, without a kernel (docs/link.md).

        It has no text before the iteration, which `trace.link(first=3, last=3)` has.
        """
        address: str = public("link")(self)
        return address

    def to_networkx(self) -> networkx.DiGraph[int]:
        """The tree's `networkx.DiGraph`, with text, verdict and accepted of each node."""
        graph = self.tree.to_networkx()
        for node in self.nodes:
            graph.nodes[node.index].update(
                text=self.texts.get(node.token, ""),
                verdict=node.verdict,
                accepted=node.index in self.accepted,
            )
        return graph

    def __repr__(self) -> str:
        return line(
            "Step",
            self.index,
            nodes=len(self.tree),
            accepted=len(self.accepted),
            committed=short("".join([self.texts.get(token, "") for token in self.committed])),
        )

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        # a page without plotly's renderer, such as nbconvert's, shows the table
        return {**view("static_html.iteration", self), **view("tree", self)}


@dataclass(frozen=True)
class Trace:
    """A whole run: the prompt, the first token (from the prefill; None if the first step ran the
    prompt's last token, as its root), and every step.

    `settings`: of the session and of the strategy, as the user gave them, with its name as
    `strategy`. `models`: what ran where (names, family, device, dtype, threads, versions).
    `prefill_seconds`: time to the first token, in `prefill_calls` target passes. `messages`: of the
    prompt, if a chat template wrote it.
    """

    prompt_ids: Many[Natural]
    first_token: Natural | None
    steps: Many[Step]
    settings: Mapping[str, Value]
    models: Mapping[str, Value]
    texts: Mapping[Natural, str]
    prefill_seconds: Amount = 0.0
    prefill_calls: Natural = 1
    finished: str = ""
    messages: Many[Message] = ()
    version: Natural = VERSION

    def __repr__(self) -> str:
        generated = self.token_ids
        return line(
            "Trace",
            self.settings.get("strategy", ""),
            prompt=len(self.prompt_ids),
            tokens=len(generated),
            iterations=len(self.steps),
            finished=self.finished,
            text=short("".join([self.texts.get(token, "") for token in generated])),
        )

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        return view("text", self)

    @property
    def token_ids(self) -> list[int]:
        """Generated ids, including the prefill's first token."""
        return self.tokens_at(len(self.steps))

    def tokens_at(self, cursor: int) -> list[int]:
        """Generated ids after `cursor` iterations, including the prefill's first token."""
        tokens: list[int] = []
        if self.first_token is not None:
            tokens.append(self.first_token)
        for step in self.steps[:cursor]:
            tokens += step.committed
        return tokens

    def prompt_parts(self) -> list[tuple[str, int, int]]:
        """The prompt as runs of tokens: (role, or "" for the chat template's own tokens; start;
        stop).

        Empty if there is no template, or the template's tokens are not known.
        """
        parts = []
        end = 0
        located = [message for message in self.messages if message.stop]
        for message in sorted(located, key=attrgetter("start")):
            if end < message.start:
                parts.append(("", end, message.start))
            parts.append((message.role, message.start, message.stop))
            end = message.stop
        if 0 < end < len(self.prompt_ids):
            parts.append(("", end, len(self.prompt_ids)))
        return parts

    @property
    def metrics(self) -> Metrics:
        return Metrics(
            sum((step.counts for step in self.steps), Counts()),
            self.prefill_seconds,
            self.prefill_calls,
        )

    def link(self, first: int | None = None, last: int | None = None) -> str:
        """A link that shows the iterations `first` to `last`, counted from 0, in a browser, without a
        kernel (docs/link.md); by default the whole run.

        Raises:
            SettingsError: there are no such iterations, or they are too many for a link.
        """
        address: str = public("link")(self, first=first, last=last)
        return address

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the trace as gzipped JSON, whole or not at all; returns the path.

        Raises:
            TraceError: the folder is missing, read-only or full.
        """
        return write_whole(path, gzip.compress(adapter(Trace).dump_json(self), mtime=0))


def trace_of(run: object) -> Trace:
    """The trace of a session, or the trace itself.

    Raises:
        SettingsError: it is neither.
    """
    trace = getattr(run, "trace", run)
    if isinstance(trace, Trace):
        return trace
    raise SettingsError(
        f"Expected a session or a trace, got {named(run)}: speclab.load_trace opens a file."
    )


def step_of(step: object) -> Step:
    """The iteration itself; raises `SettingsError` for anything else."""
    if isinstance(step, Step):
        return step
    raise SettingsError(
        f"Expected an iteration, got {named(step)}: take one of session.steps or trace.steps."
    )
