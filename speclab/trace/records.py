"""What happened, as plain immutable data: one Step per iteration, one Trace per run. Needs no torch.

Every view is a function of one Step (or of a Trace), so stepping back never touches a model.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Literal

from speclab.files import write_whole
from speclab.prompts import Message
from speclab.trace.codecs import Amount, Many, MaskBits, Natural, Real, TreeColumns, Whole, adapter
from speclab.trace.metrics import Counts, Metrics

VERSION = 2
PHASES = ("draft", "verify", "accept", "commit", "learn")
"""Of an iteration, in order; the keys of `Step.seconds`."""
Verdict = Literal["root", "accepted", "rejected", "not reached"]
RANKS = ("token", "second", "third")
"""Keys of the tokens that an event names, best first."""
UNKNOWN = -1
"""A token that is not recorded."""
Value = Real | Whole | str | bool | None


@dataclass(frozen=True, slots=True)
class TokenProb:
    """One token at the node where sampled acceptance stopped: its probability for the target, and for the draft.

    `residual`: what acceptance left of `target`, the probability with which the target then drew it. `draft`: in the
    distribution that the candidates were drawn from; None where none were drawn.
    """

    token: Natural
    residual: Amount
    target: Amount
    draft: Amount | None


@dataclass(frozen=True, slots=True)
class Trial:
    """A child that acceptance put to the test.

    `target`: its probability in what was left of the target's distribution, `against`: in what was left of the draft's.
    The first child of a node meets both distributions whole.
    """

    node: Natural
    target: Amount
    against: Amount
    accepted: bool = False


@dataclass(frozen=True, slots=True)
class Residual:
    """The distribution of the bonus token after `node` (None: before a drafted root), the most probable tokens first.

    `trials`: children of that node, all rejected, in their order; none where the target drew once, and no candidate
    carries what it drew.
    """

    node: Natural | None
    tokens: Many[TokenProb]
    trials: Many[Trial] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """One drafting decision, in the order it was taken.

    `kind`: "expand" (children were asked for), "stop" (a gate closed), "prune" (a candidate was dropped), "route"
    (which way the drafter went), "marginal" (the best tokens of a depth of a block, by `RANKS`), "pop" (a path of
    marginals joined the tree as number `order`). `node`: the tree node it speaks of; for "prune" the parent of the
    dropped candidate.
    Where one "prune" speaks of several candidates, `values` holds their number as "dropped".
    `values`: the numbers that decided, e.g. confidence, branches, path_prob, threshold, gate, level, token.
    """

    kind: str
    node: Natural | None
    reason: str
    values: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One row of the verification pass. Probabilities are in 0…1.

    `target_prob`: the target's probability of this token at its parent; None where nothing preceded it in this pass
    (a verified root). `target_choice`: the token the target chose *after* this node; on a path whose candidates were
    tried one by one, the token that follows; `UNKNOWN` where it is not recorded. `target_top`, `draft_top`: the most
    probable next tokens after it, (token, probability), best first; `draft_top` is empty where the node was not
    expanded. `entropy`: of the target's distribution after this node, nats. `kv_slot`: the row's place in the target's
    cache while the pass ran.
    """

    index: Natural
    token: Natural
    draft_prob: Amount
    path_prob: Amount
    target_prob: Amount | None
    target_choice: Whole
    verdict: Verdict
    reason: str
    kv_slot: Natural
    entropy: Real
    target_top: Many[tuple[Natural, Amount]] = ()
    draft_top: Many[tuple[Natural, Amount]] = ()


@dataclass(frozen=True, slots=True)
class ExtraRow:
    """One row of the verification pass that is no candidate, such as a place of lookahead decoding's window.

    These rows come after the nodes: the first has KV slot and mask row `n`. `depth`: position is prefix length + depth.
    `sees`: nodes and extra rows that the target was *given* to see, by row; `prefix_seen`: how many prefix entries.
    `target_choice`: its most probable next token.
    """

    token: Natural
    depth: Natural
    sees: Many[Natural]
    prefix_seen: Natural
    target_choice: Natural


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed tree, one of several that were drafted from the same root.

    `confidence`: the mean of exp(cumulative log-probability) over the nodes but the root, 0…1 (Dual-Draft Routing,
    sections 4 and 5). `score`: what the trees were compared by; where the paper's statistic decides, the confidence.
    `chosen`: whether the target verified its nodes.
    """

    name: str
    tree: TreeColumns
    confidence: Amount
    score: Real
    chosen: bool


@dataclass(frozen=True, slots=True)
class CacheRecord:
    """One cache over one iteration, in slots (one token each).

    `before`: entries before the iteration; `written`: rows written for this iteration's draft; `moved`: (from, to) slot
    pairs of kept rows that were gathered; `after`: entries left, all of committed tokens; `committed`: how many
    entries sequential decoding would have left for the target; `capacity`: slots allocated; `slot_bytes`: of each.
    """

    name: str
    before: Natural
    written: Natural
    kept: Many[Natural]
    moved: Many[tuple[Natural, Natural]]
    after: Natural
    committed: Natural
    capacity: Natural
    slot_bytes: Natural


@dataclass(frozen=True, slots=True)
class Adaptation:
    """What the drafter changed for the next iteration, and why; `before` and `after` hold the changed settings."""

    reason: str
    before: Mapping[str, Value] = field(default_factory=dict)
    after: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """One iteration, whole: a view needs no other step to draw it.

    `index` counts from 0. `prefix_length`: entries in the target's cache before the pass; node 0 has position
    `prefix_length`. `accepted`: the drafted nodes of the committed path, in order (a verified root is not among
    them). `committed`: token ids added; with nothing cut off by the end of the text it is the accepted tokens, then
    `bonus`. `bonus`: the target's own token after the path, None when the text ended inside the path. `root_choice`:
    with a drafted root, the target's choice for its place, else None. `mask`: `[n, n]` bool, the tree part of the mask
    that the target was *given*; `prefix_seen`: prefix entries each row could see. `settings`: in force while drafting.
    `seconds`: by phase (draft, verify, accept, commit, learn). `texts`: token id to its text. `extra`: further rows of
    the pass, which could not be accepted. `rule`: of acceptance, in words (`acceptance.Rule`). `residual`: what
    the bonus was drawn from; None at temperature 0, and where the text ended before.
    `proposals`: the proposed trees, where there were several.

    Of another decoder's pass (`load_steps`): `position` of each row as the model was given it, `hidden_prefix`: (row,
    first, last) of prefix entries that it did not see, `rows`: the row of the file that each node was, empty where the
    file's order was kept, `missing`: names of what is not recorded.
    """

    index: Natural
    prefix_length: Natural
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
    prefix_seen: Many[Natural]
    texts: Mapping[Natural, str]
    note: str = ""
    extra: Many[ExtraRow] = ()
    rule: str = ""
    residual: Residual | None = None
    proposals: Many[Proposal] = ()
    position: Many[Whole] = ()
    hidden_prefix: Many[tuple[Natural, Natural, Natural]] = ()
    rows: Many[Natural] = ()
    missing: Many[str] = ()


def depth_counts(steps: Sequence[Step]) -> list[tuple[int, int]]:
    """For each depth from 1: (iterations that drafted so deep, iterations that accepted so deep)."""
    drafted = [step.counts.longest_path for step in steps]
    return [
        (sum([length >= depth for length in drafted]), sum([len(step.accepted) >= depth for step in steps]))
        for depth in range(1, max(drafted, default=0) + 1)
    ]


@dataclass(frozen=True)
class Trace:
    """A whole run: the prompt, the first token (from the prefill), and every step.

    `settings`: session settings and the strategy's own, as the user gave them, with `strategy` its name. `models`:
    what ran where (names, family, device, dtype, threads, versions). `prefill_seconds`: time to the first token, in
    `prefill_calls` target passes. `messages`: those that the prompt was made of by a chat template, if it was.
    """

    prompt_ids: Many[Natural]
    first_token: Natural
    steps: Many[Step]
    settings: Mapping[str, Value]
    models: Mapping[str, Value]
    texts: Mapping[Natural, str]
    prefill_seconds: Amount = 0.0
    prefill_calls: Natural = 1
    finished: str = ""
    messages: Many[Message] = ()
    version: Natural = VERSION

    def token_ids(self, cursor: int | None = None) -> tuple[int, ...]:
        """Generated ids after `cursor` iterations (all by default), the prefill's first token included."""
        steps = self.steps if cursor is None else self.steps[:cursor]
        return (self.first_token, *(token for step in steps for token in step.committed))

    def prompt_parts(self) -> list[tuple[str, int, int]]:
        """The prompt as runs of tokens: of whom (a role, or "" for what the chat template wrote), from, up to.

        Empty where no template wrote it, or where it is not known which tokens it wrote.
        """
        parts, at = [], 0
        for message in sorted([one for one in self.messages if one.stop], key=attrgetter("start")):
            if at < message.start:
                parts.append(("", at, message.start))
            parts.append((message.role, message.start, message.stop))
            at = message.stop
        return [*parts, ("", at, len(self.prompt_ids))] if 0 < at < len(self.prompt_ids) else parts

    @property
    def metrics(self) -> Metrics:
        """Metrics over all steps."""
        return Metrics(sum((step.counts for step in self.steps), Counts()), self.prefill_seconds, self.prefill_calls)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the trace as gzipped JSON, whole or not at all; returns the path.

        Raises:
            TraceError: the folder is missing, read-only or full.
        """
        return write_whole(path, gzip.compress(adapter(Trace).dump_json(self), mtime=0))
