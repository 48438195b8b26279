"""The decoding loop. One iteration: draft a tree, verify it in one target pass, accept a path, commit it, learn.

Every strategy runs through `iterate`; it differs only in its drafter. `generate` is this loop without records, a
`Session` is this loop with them. `Decoding` is the state that the loop works on; whatever a phase hands to the next is
in `Draft`, `Verification`, `Acceptance` and `Outcome`, and all of them in the `Iteration` that is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Event as Flag
from typing import NamedTuple, Protocol

from speclab.drafters.base import Context, Draft, Drafter, Outcome, Strategy, checked, checked_draft
from speclab.engine.acceptance import (
    Acceptance,
    Choice,
    Probabilities,
    Rule,
    recursive_rejection,
    rejection_without_replacement,
    sample_and_match,
    typical_acceptance,
    typical_floor,
)
from speclab.engine.sampling import PositionalRng, RngPurpose, chooser, probabilities
from speclab.errors import CancelledError, ContextExceededError, SettingsError
from speclab.models.answer import Answer
from speclab.models.heads import HeadRunner
from speclab.models.pair import ModelPair
from speclab.models.runner import Runner
from speclab.models.timing import Stopwatch
from speclab.settings import SessionSettings
from speclab.trace.metrics import Counts
from speclab.trace.records import Adaptation
from speclab.tree import CandidateSampling

# The loop


def iterate(decoding: Decoding, propose: Callable[[Context], Draft] | None = None) -> Iteration:
    """One iteration. Where it fails or is cancelled, `Decoding.restore` leaves everything as it was before it.

    `propose`: gives the candidates, by default the drafter.
    """
    pair, drafter = decoding.pair, decoding.drafter
    prefix_length, strategy = pair.target.length, drafter.settings
    lengths, calls = cache_lengths(pair), _calls(pair)
    watch = Stopwatch(pair.target.device)

    context = _context(decoding)
    draft = (propose or drafter.draft)(context)  # candidates: a tree of n nodes
    draft = checked_draft(draft, context, type(strategy).__name__, pair.target.vocab_size, drafter.root)
    decoding.check()
    watch.mark("draft")
    verification = verify(decoding, draft)  # the target's logits after each node, [n, V], in one pass
    watch.mark("verify")
    rule = rule_for(draft.tree.candidate_sampling, decoding.settings)
    acceptance = apply_rule(rule, decoding, draft, verification)  # a path of the tree, and a bonus token after it
    outcome = _outcome(decoding, draft, verification, acceptance)
    watch.mark("accept")
    gather = not drafter.rebuild and draft.mask is None  # rows that saw what they should not are not kept
    commit(decoding, prefix_length, outcome, gather)  # the tokens join the text, their rows the prefix of every cache
    watch.mark("commit")
    adaptation = drafter.learn(outcome)  # what the drafter learns, and changes for the next iteration
    watch.mark("learn")

    spent = [after - before for after, before in zip(_calls(pair), calls, strict=True)]
    counts = _counts(drafter, outcome, spent, watch.seconds, lossless=rule.lossless and draft.mask is None)
    return Iteration(
        prefix_length, strategy, draft, verification, rule, acceptance, outcome, adaptation, lengths, watch, counts
    )


def verify(decoding: Decoding, draft: Draft) -> Verification:
    """One target pass over all nodes, each of which sees the prefix and its ancestors (DynaTree, section 3.4).

    Rows that are no candidates come after the nodes, in the same pass; no node sees them.
    """
    target, tree, rows = decoding.pair.target, draft.tree, draft.extra  # n nodes, m extra rows
    positions = [target.length + depth for depth in (*tree.depth.tolist(), *rows.depth)]  # prefix length + depth
    seen = tree.ancestor_mask() if draft.mask is None else draft.mask
    mask = rows.below(seen)  # [n + m, n + m] bool; every row sees the whole prefix besides
    prefix = decoding.tokens[: target.length] if decoding.processors is not None else ()
    answer = target.logits([*tree.token.tolist(), *rows.token], positions, mask)  # [n + m, V]
    if decoding.processors is not None and answer.rows is not None:
        answer = decoding.processors.of(answer, prefix, draft.paths())
    choose = chooser(answer, [position + 1 for position in positions], decoding.settings)
    of_nodes, of_extra = answer[: len(tree)], answer[len(tree) :]
    if decoding.drafter.root == "verified":
        return Verification(of_nodes, of_extra, choose)
    # A drafted root is a candidate as well: what the target makes of its place, it said in the pass before.
    assert decoding.next_answer is not None
    root_choice = chooser(decoding.next_answer, [len(decoding.tokens)], decoding.settings)(0)
    return Verification(of_nodes, of_extra, choose, decoding.next_answer, root_choice)


def rule_for(candidates: CandidateSampling, settings: SessionSettings) -> Rule:
    """The acceptance rule: how the candidates were chosen decides, never which strategy chose them."""
    if settings.temperature == 0:
        return Rule.GREEDY
    if settings.acceptance == "typical":
        return Rule.TYPICAL
    return {
        CandidateSampling.DETERMINISTIC: Rule.SAMPLE_AND_MATCH,
        CandidateSampling.INDEPENDENT: Rule.INDEPENDENT,
        CandidateSampling.WITHOUT_REPLACEMENT: Rule.WITHOUT_REPLACEMENT,
    }[candidates]


def apply_rule(rule: Rule, decoding: Decoding, draft: Draft, verification: Verification) -> Acceptance:
    """The path through a verified draft that `rule` accepts."""
    tree, settings, first = draft.tree, decoding.settings, len(decoding.tokens)

    def p(node: int) -> Probabilities:  # the target's distribution after a node, [V]
        return probabilities(verification.answer.row(node), settings)

    def rng(node: int) -> PositionalRng:
        return PositionalRng(settings.seed, first + int(tree.depth[node]), RngPurpose.ACCEPTANCE)

    if rule in {Rule.GREEDY, Rule.SAMPLE_AND_MATCH}:
        return sample_and_match(tree, verification.choose, verification.root_choice)
    if rule is Rule.TYPICAL:
        root = None
        if verification.root_answer is not None and verification.root_choice is not None:
            root = probabilities(verification.root_answer.row(0), settings), verification.root_choice
        floor = partial(typical_floor, epsilon=settings.typical_epsilon, delta=settings.typical_delta)
        return typical_acceptance(tree, p, verification.choose, floor, root)
    assert verification.root_choice is None, "the root of a tree of samples is the target's own token"
    reject = recursive_rejection if rule is Rule.INDEPENDENT else rejection_without_replacement
    return reject(tree, p, draft.draft_probs.__getitem__, rng)


def _outcome(decoding: Decoding, draft: Draft, verification: Verification, acceptance: Acceptance) -> Outcome:
    """What is committed: the accepted tokens and the bonus, cut where the text ends."""
    tree = draft.tree
    tokens = [*(int(tree.token[node]) for node in acceptance.accepted), acceptance.bonus][: decoding.room]
    last = next((place for place, token in enumerate(tokens) if decoding.ends(token)), len(tokens) - 1)
    committed = tuple(tokens[: last + 1])
    return Outcome(tree, acceptance.accepted[: len(committed)], committed, verification.answer, verification.extra)


def commit(decoding: Decoding, prefix_length: int, outcome: Outcome, gather: bool) -> None:
    """Appends the committed tokens and brings every cache to them; all other rows of the pass are dropped.

    `gather`: whether the target keeps the rows of the path; else it runs the committed tokens again.
    """
    target, drafter = decoding.pair.target, decoding.drafter
    if gather:
        path = outcome.accepted if drafter.root == "drafted" else (0, *outcome.accepted)
        target.keep(prefix_length, [prefix_length + node for node in path[: len(outcome.committed)]])
    else:
        target.crop(prefix_length)
    decoding.tokens.extend(outcome.committed)
    _catch_up(decoding)
    drafter.commit(outcome)


def _catch_up(decoding: Decoding) -> None:
    """Runs the committed tokens that the target's cache should hold and lacks; after a gather there are none."""
    target = decoding.pair.target
    held = len(decoding.tokens) - (decoding.drafter.root == "verified")
    missing = decoding.tokens[target.length : held]
    if missing:
        decoding.next_answer = decoding.processed(target.logits(missing), decoding.tokens[:held])


# Before the first iteration


def start(
    pair: ModelPair,
    strategy: Strategy,
    prompt_ids: Sequence[int],
    settings: SessionSettings,
    processors: LogitsRules | None = None,
) -> Decoding:
    """Prefills the prompt and commits the first token.

    Args:
        processors: what the target's logits go through, in place of what its generation_config asks for.

    Raises:
        ContextExceededError: prompt and new tokens do not fit the context of the target, or of what drafts.
    """
    decoding = _decoding(pair, checked(strategy), settings, list(prompt_ids), len(prompt_ids), processors)
    if processors is None:
        pair.rules.warn(pair.target.name)
    logits = decoding.processed(decoding.drafter.prefill(pair.target, decoding.tokens), prompt_ids)
    decoding.tokens.append(chooser(logits, [len(prompt_ids)], settings)(0))
    _catch_up(decoding)
    return decoding


def resume(
    decoding: Decoding,
    committed: int,
    strategy: Strategy,
    settings: SessionSettings,
    learned: object = None,
    token: int | None = None,
) -> Decoding:
    """A decoding of its own that goes on after the first `committed` tokens of another; the other stays as it is.

    Committed entries are a prefix of the caches, so they are copied and no more than one token is run again.

    Args:
        committed: tokens to share, prompt included.
        learned: a drafter's snapshot from that point, if it is to go on from what it had learned.
        token: in place of the newest of them, whose entry is not copied.
    """
    pair = decoding.pair.fork(committed - 1)
    newest = decoding.tokens[committed - 1] if token is None else token
    tokens = [*decoding.tokens[: committed - 1], newest]
    twin = _decoding(pair, strategy, settings, tokens, decoding.prompt_length)
    if learned is not None:
        twin.drafter.restore(learned)
    _catch_up(twin)
    return twin


def _decoding(
    pair: ModelPair,
    strategy: Strategy,
    settings: SessionSettings,
    tokens: list[int],
    prompt_length: int,
    processors: LogitsRules | None = None,
) -> Decoding:
    if processors is None:
        processors = pair.rules.processors(pair.target.model, prompt_length, settings.max_new_tokens)
        pair.target.allow_nonfinite = "remove_invalid_values" in pair.rules.followed
    drafter: object = strategy.drafter(pair)
    if not isinstance(drafter, Drafter):
        name = type(strategy).__name__
        raise SettingsError(
            f"{name}.drafter(pair) gave {drafter!r}: return a Drafter, as in return {name}Drafter(self)"
        )
    decoding = Decoding(pair, drafter, settings, tokens, prompt_length, processors)
    _check_context(decoding)
    return decoding


# State


class Snapshot(NamedTuple):
    """Where a text is between two iterations: what `Decoding.restore` needs, and nothing that decoding on changes.

    `tokens`: how many there are, prompt included. `learned`: the drafter's snapshot. `lengths`: of the caches.
    """

    tokens: int
    next_answer: Answer | None
    learned: object
    lengths: tuple[int, ...]


class LogitsRules(Protocol):
    """What logits go through before anything is chosen from them, such as `speclab.models.processors.Processors`."""

    def of(self, answer: Answer, prefix: Sequence[int], paths: Sequence[Sequence[int]] = ((),)) -> Answer:
        """Of rows that share a prefix; `paths`: for each row the ids after it, its own included."""
        ...


@dataclass
class Decoding:
    """The state of one text being decoded: `tokens` is the prompt and everything committed since.

    Between iterations the target's cache holds all of `tokens` but the newest, which is the next root; with a drafted
    root it holds them all, and `next_answer`, one row, are what the target makes of them. `processors`: what the
    target's generation_config does to its logits, None where it does nothing; all that are kept went through them.
    """

    pair: ModelPair
    drafter: Drafter
    settings: SessionSettings
    tokens: list[int]
    prompt_length: int
    processors: LogitsRules | None = None
    next_answer: Answer | None = None
    cancel: Flag = field(default_factory=Flag)

    @property
    def context(self) -> int | None:
        """Positions that the target and whatever drafts were trained for; None if no config names a bound."""
        bounds = (runner.context for runner in self._used)
        return min((bound for bound in bounds if bound is not None), default=None)

    @property
    def bound(self) -> int | None:
        """Positions that the text may have; None if there is no bound."""
        return self.context

    @property
    def _used(self) -> tuple[Runner | HeadRunner, ...]:
        return self.pair.target, *self.drafter.runners

    @property
    def room(self) -> int:
        """New tokens that may still be committed."""
        return self.prompt_length + self.settings.max_new_tokens - len(self.tokens)

    @property
    def finished(self) -> str:
        """Why the text has ended; empty while it goes on."""
        if self.ends(self.tokens[-1]):
            return "end of text"
        return "" if self.room > 0 else "max_new_tokens"

    def ends(self, token: int) -> bool:
        """Whether this token ends the text."""
        return self.settings.stop_at_eos and token in self.pair.eos_ids

    def processed(self, answer: Answer, ids: Sequence[int]) -> Answer:
        """The last row of the target's logits, which is after `ids`, as its generation_config has it."""
        last = answer[-1:]
        return last if self.processors is None or last.rows is None else self.processors.of(last, ids)

    def check(self) -> None:
        """Raises where the run was cancelled."""
        if self.cancel.is_set():
            raise CancelledError("stopped before this iteration was committed: step again to go on")

    def snapshot(self) -> Snapshot:
        """Where the text is; cheap."""
        return Snapshot(len(self.tokens), self.next_answer, self.drafter.snapshot(), cache_lengths(self.pair))

    def restore(self, to: Snapshot) -> None:
        """Takes back whatever part of an iteration has happened since `to`, wherever it stopped; runs no model.

        An iteration only adds to tokens and caches, and sources note a change before they make it. So this may itself
        be stopped anywhere, by a second Ctrl-C, and is then done again from the start.
        """
        del self.tokens[to.tokens :]
        self.next_answer = to.next_answer
        self.drafter.restore(to.learned)
        for runner, length in zip(runners(self.pair), to.lengths, strict=True):
            runner.crop(min(length, runner.length))


@dataclass(frozen=True, slots=True)
class Verification:
    """What the target makes of a tree: `answer`, `n` rows, and its choice after each node.

    `extra`: its answer to the draft's `m` extra rows.
    With a drafted root also `root_answer`, one row, and `root_choice` for the root's own place.
    """

    answer: Answer
    extra: Answer
    choose: Choice
    root_answer: Answer | None = None
    root_choice: int | None = None


@dataclass(frozen=True, slots=True)
class Iteration:
    """One iteration, with the tensors still at hand for whoever records it. `strategy`: the settings it drafted with.

    `lengths`: of the caches before it. `watch`: seconds by phase; on CUDA they are known when the device is done, so
    they are read when it was waited for.
    """

    prefix_length: int
    strategy: Strategy
    draft: Draft
    verification: Verification
    rule: Rule
    acceptance: Acceptance
    outcome: Outcome
    adaptation: Adaptation
    lengths: tuple[int, ...]
    watch: Stopwatch
    counts: Counts


def runners(pair: ModelPair) -> tuple[Runner | HeadRunner, ...]:
    """Target, then draft if there is one, then the heads."""
    return (*((pair.target,) if pair.draft is None else (pair.target, pair.draft)), *pair.heads)


def cache_lengths(pair: ModelPair) -> tuple[int, ...]:
    """Entries in each runner's cache."""
    return tuple(runner.length for runner in runners(pair))


def _calls(pair: ModelPair) -> tuple[int, ...]:
    return tuple(runner.calls for runner in runners(pair))


def _context(decoding: Decoding) -> Context:
    bound, held = decoding.bound, decoding.pair.target.length
    max_depth = bound - 1 - held if bound is not None else 1 << 30
    return Context(decoding.tokens, max_depth, decoding.check, decoding.settings)


def _check_context(decoding: Decoding) -> None:
    bound, name, prompt_length = decoding.bound, decoding.pair.name, decoding.prompt_length
    max_new_tokens = decoding.settings.max_new_tokens
    if bound is None or prompt_length + max_new_tokens <= bound:
        return
    room = bound - prompt_length
    way_out = f"set max_new_tokens to {room} or less, or " if room > 0 else ""
    asked = f"{prompt_length} prompt tokens and {max_new_tokens} new ones"
    raise ContextExceededError(f"{asked} exceed the context of {name}, {bound} tokens: {way_out}shorten the prompt")


def _counts(drafter: Drafter, outcome: Outcome, calls: Sequence[int], seconds: float, *, lossless: bool) -> Counts:
    verified_root = int(drafter.root == "verified")
    return Counts(
        iterations=1,
        committed=len(outcome.committed),
        drafted=len(outcome.tree) - verified_root,
        accepted=len(outcome.accepted),
        longest_path=int(outcome.tree.depth[-1]) + 1 - verified_root,
        target_calls=calls[0],
        draft_calls=sum(calls[1:]),
        seconds=seconds,
        lossy=int(not lossless),
    )
