"""The decoding loop. One iteration: draft a tree, verify it in one target pass, accept a path,
commit it, learn.

Every strategy runs through `iterate`; it differs only in its drafter. `generate` is this loop
without records, a `Session` is this loop with them. `Decoding` is the state of one text; an
`Iteration` holds what each phase returned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Event as Flag
from typing import NamedTuple

from speclab.drafters.base import (
    Context,
    Draft,
    Drafter,
    Outcome,
    Strategy,
    checked,
    checked_draft,
    require,
)
from speclab.drafters.cost import observe, with_node_budget
from speclab.engine.acceptance import (
    Acceptance,
    Rule,
    block_verification,
    recursive_rejection,
    rejection_without_replacement,
    sample_and_match,
)
from speclab.engine.stopwatch import Stopwatch
from speclab.engine.targets import RowProcessor, Targets
from speclab.errors import CancelledError, ContextExceededError, SettingsError
from speclab.models.answer import Answer
from speclab.models.source import DraftSource, Target
from speclab.pair import ModelPair
from speclab.sampling import PositionalRng, RngPurpose
from speclab.settings import SessionSettings
from speclab.trace.metrics import Counts, looked
from speclab.trace.records import Adaptation
from speclab.tree import CandidateSampling

Propose = Callable[[Context], Draft]


# The loop


def iterate(decoding: Decoding, propose: Propose | None = None) -> Iteration:
    """One iteration. If it fails or is cancelled, `Decoding.restore` undoes it.

    `propose` drafts in place of the drafter.
    """
    drafter = decoding.drafter
    prefix_length = decoding.target.length
    strategy = drafter.settings
    lengths = decoding.lengths
    calls = decoding.calls
    watch = Stopwatch(decoding.pair.target.device)

    draft = draft_tree(decoding, propose or drafter.draft)  # candidates: a tree of n nodes
    watch.mark("draft")
    verification = verify(decoding, draft)  # one target pass over the n nodes
    watch.mark("verify")
    rule, acceptance = accept(decoding, draft, verification)  # a path, and a bonus token after it
    outcome = cut(decoding, draft, verification, acceptance)  # without what follows the text's end
    watch.mark("accept")
    commit(decoding, prefix_length, draft, outcome)  # tokens join the text, rows every cache
    watch.mark("commit")
    if decoding.target is decoding.pair.target:  # no replay: for the budgets of later texts
        observe(strategy, decoding.pair, draft.tree, outcome.accepted, watch.seconds)
    adaptation = drafter.learn(outcome)  # what the drafter changes for the next iteration
    watch.mark("learn")

    spent = tuple(now - then for now, then in zip(decoding.calls, calls, strict=True))
    return Iteration(
        prefix_length=prefix_length,
        strategy=strategy,
        lengths=lengths,
        draft=draft,
        verification=verification,
        rule=rule,
        acceptance=acceptance,
        outcome=outcome,
        adaptation=adaptation,
        watch=watch,
        calls=spent,
    )


def draft_tree(decoding: Decoding, propose: Propose) -> Draft:
    """The tree that a drafter proposes, if the target can verify it.

    Raises:
        SettingsError: it is no tree of this text and vocabulary; the sentence names the strategy.
    """
    draft = checked_draft(
        propose(decoding.context()),
        decoding.context(),  # another one, since a drafter may write into its own
        type(decoding.drafter.settings).__name__,
        decoding.target.vocab_size,
        decoding.drafter.root,
    )
    decoding.check()
    return draft


def verify(decoding: Decoding, draft: Draft) -> Verification:
    """One target pass over all nodes; each sees the prefix and its ancestors (DynaTree, section
    3.4).

    Extra rows, which are not candidates, follow the nodes in the same pass; no node sees them.
    """
    tree = draft.tree  # n nodes
    extra = draft.extra  # m rows
    prefix = decoding.target.length
    # siblings share a position: prefix length + depth, as each would have in the text
    depths = tree.depth.tolist() + list(extra.depth)
    positions = [prefix + depth for depth in depths]
    # [n + m, n + m] bool: a node's ancestors and itself; the runner adds the prefix columns
    mask = extra.below(tree.ancestor_mask())
    tokens = tree.token.tolist() + list(extra.token)
    answer = decoding.target.logits(tokens, positions, mask, topk=decoding.topk)
    nodes = answer[: len(tree)]  # [n, V] on demand

    # a processor reads the text that a node stands for: the prefix and the path to it
    def ids(node: int) -> list[int]:
        path: list[int] = tree.token[list(tree.path(node))].tolist()
        return decoding.tokens[:prefix] + path

    targets = decoding.targets(nodes, [position + 1 for position in positions], ids)
    root = None
    if decoding.drafter.root == "drafted":  # a candidate, too: the pass before predicted it
        root = decoding.after_text
    return Verification(nodes, answer[len(tree) :], targets, root)


def rule_for(candidates: CandidateSampling, settings: SessionSettings) -> Rule:
    """The acceptance rule. It depends on how the candidates were chosen, never on the strategy."""
    if settings.temperature == 0:
        return Rule.GREEDY
    if candidates is CandidateSampling.DETERMINISTIC:
        return Rule.SAMPLE_AND_MATCH
    return Rule(candidates)  # rules and ways of drawing share their names


def accept(decoding: Decoding, draft: Draft, verification: Verification) -> tuple[Rule, Acceptance]:
    """The rule that fits how the candidates were chosen, and the path that it accepts."""
    rule = rule_for(draft.tree.candidate_sampling, decoding.settings)
    tree = draft.tree
    targets = verification.targets
    if rule.follows_the_target:  # greedy, and candidates chosen beforehand
        return rule, sample_and_match(tree, targets.choose, verification.root_choice)

    # samples are tried against the target's distribution; a draw depends on seed and position alone
    def rng(node: int) -> PositionalRng:
        return PositionalRng(
            decoding.settings.seed,
            len(decoding.tokens) + int(tree.depth[node]),
            RngPurpose.ACCEPTANCE,
        )

    assert verification.root is None, "the root of a tree of samples is the target's own token"
    rules: dict[Rule, Callable[..., Acceptance]] = {
        Rule.INDEPENDENT: recursive_rejection,
        Rule.WITHOUT_REPLACEMENT: rejection_without_replacement,
        Rule.BLOCK: block_verification,
    }
    return rule, rules[rule](tree, targets.probs, draft.draft_probs.__getitem__, rng)


def cut(
    decoding: Decoding, draft: Draft, verification: Verification, acceptance: Acceptance
) -> Outcome:
    """What is committed: the accepted tokens and the bonus, cut at the end of the text."""
    tokens = draft.tree.token[list(acceptance.accepted)].tolist()
    tokens.append(acceptance.bonus)
    committed: list[int] = []
    # max_new_tokens, then the first end token: what follows either is no part of the text
    for token in tokens[: decoding.room]:
        committed.append(token)
        if decoding.ends(token):
            break
    return Outcome(
        draft.tree,
        acceptance.accepted[: len(committed)],
        tuple(committed),
        verification.answer,
        verification.extra,
        decoding.drafter.root,
    )


def commit(decoding: Decoding, prefix_length: int, draft: Draft, outcome: Outcome) -> None:
    """Appends the committed tokens and keeps their cache rows; all other rows of the pass are dropped."""
    target = decoding.target
    drafter = decoding.drafter
    if drafter.rebuild:  # the paper's way (section 3.5): catch_up runs the committed tokens again
        target.crop(prefix_length)
    else:
        # the bonus token has no row yet: it is the next root
        path = outcome.path[: len(outcome.committed)]
        target.keep(prefix_length, [prefix_length + node for node in path])
    decoding.tokens.extend(outcome.committed)
    decoding.catch_up()
    drafter.commit(outcome)


# Before the first iteration


def start(
    pair: ModelPair,
    strategy: Strategy,
    prompt_ids: Sequence[int],
    settings: SessionSettings,
    process: RowProcessor | None = None,
    target: Target | None = None,
) -> Decoding:
    """Prefills the prompt and commits the first token.

    Args:
        process: transforms the target's logits, instead of the processors of its generation_config.
        target: answers in the place of the pair's own.

    Raises:
        ContextExceededError: prompt and new tokens do not fit the target's context.
    """
    if process is None:
        pair.rules.warn(pair.target.name)
    decoding = _decoding(
        pair, checked(strategy), settings, list(prompt_ids), len(prompt_ids), process, target
    )
    # one pass over the prompt; its last row predicts the first token
    answer = decoding.drafter.prefill(decoding.target, decoding.tokens)
    first = decoding.targets(answer[-1:], [len(prompt_ids)], lambda _: list(prompt_ids))
    decoding.tokens.append(first.choose(0))
    decoding.catch_up()
    return decoding


def resume(
    decoding: Decoding,
    committed: int,
    strategy: Strategy,
    settings: SessionSettings,
    learned: object = None,
) -> Decoding:
    """A separate decoding that continues after the first `committed` tokens of another, which stays
    unchanged.

    Copies the committed cache entries and runs at most one token again.

    Args:
        committed: tokens to share, prompt included.
        learned: the drafter's snapshot at that point, if the new drafter may start from it.
    """
    pair = decoding.pair.fork(committed - 1)  # the newest token is the next root, without a row
    fork = _decoding(pair, strategy, settings, decoding.tokens[:committed], decoding.prompt_length)
    if learned is not None:
        fork.drafter.restore(learned)
    fork.catch_up()
    return fork


def _decoding(
    pair: ModelPair,
    strategy: Strategy,
    settings: SessionSettings,
    tokens: list[int],
    prompt_length: int,
    process: RowProcessor | None = None,
    target: Target | None = None,
) -> Decoding:
    if process is None:
        process = pair.rules.processors(pair.target.model, prompt_length, settings.max_new_tokens)
        pair.target.allow_nonfinite = "remove_invalid_values" in pair.rules.followed
    require(strategy, pair.offer)
    drafter: object = with_node_budget(strategy, pair).drafter(pair)
    if not isinstance(drafter, Drafter):
        name = type(strategy).__name__
        raise SettingsError(
            f"{name}.drafter(pair) returned {drafter!r}: return a Drafter, as in return "
            f"{name}Drafter(self)"
        )
    decoding = Decoding(
        pair, target or pair.target, drafter, settings, tokens, prompt_length, process
    )
    longest = pair.target.context
    new = settings.max_new_tokens
    if longest is not None and prompt_length + new > longest:
        room = longest - prompt_length
        way_out = ""
        if room > 0:
            way_out = f"set max_new_tokens to {room} or less, or "
        raise ContextExceededError(
            f"{prompt_length} prompt tokens and {new} new tokens exceed the context of "
            f"{pair.target.name}, {longest} tokens: {way_out}shorten the prompt"
        )
    return decoding


# State


class Snapshot(NamedTuple):
    """The state between two iterations that `Decoding.restore` needs.

    `tokens`: their number, prompt included. `learned`: the drafter's snapshot. `lengths`: of the
    caches.
    """

    tokens: int
    after_text: Targets | None
    learned: object
    lengths: tuple[int, ...]


@dataclass
class Decoding:
    """The state of one text: `tokens` is the prompt and everything committed since.

    Between iterations the target's cache holds all of `tokens` but the newest, which is the next
    root. With a drafted root it holds all of them, and `after_text`, one row, is the target's
    prediction after them. `process` transforms the target's logits before a token is chosen.
    `topk`: most probable tokens per node to fetch with the pass.
    """

    pair: ModelPair
    target: Target
    drafter: Drafter
    settings: SessionSettings
    tokens: list[int]
    prompt_length: int
    process: RowProcessor | None = None
    after_text: Targets | None = None
    topk: int = 0
    cancel: Flag = field(default_factory=Flag)

    @property
    def room(self) -> int:
        """New tokens that may still be committed."""
        return self.prompt_length + self.settings.max_new_tokens - len(self.tokens)

    @property
    def finished(self) -> str:
        """Why the text has ended; empty if it has not."""
        if self.ends(self.tokens[-1]):
            return "end of text"
        if self.room <= 0:
            return "max_new_tokens"
        return ""

    @property
    def held(self) -> int:
        """Tokens that the target's cache holds between iterations: all, or all but a verified root."""
        if self.drafter.root == "drafted":
            return len(self.tokens)
        return len(self.tokens) - 1

    def ends(self, token: int) -> bool:
        return self.settings.stop_at_eos and token in self.pair.eos_ids

    def context(self) -> Context:
        longest = self.target.context or 1 << 30
        last = longest - 1 - self.target.length
        return Context(list(self.tokens), last, self.check, self.settings)

    def targets(
        self, answer: Answer, positions: Sequence[int], ids: Callable[[int], list[int]]
    ) -> Targets:
        """The target's predictions after the rows of an answer; arguments as in `Targets`."""
        process = self.process
        if answer.rows is None:
            process = None
        return Targets(answer, positions, self.settings, process, ids)

    def catch_up(self) -> None:
        """Runs committed tokens that the target's cache is missing; after a gather there are none."""
        held = self.held
        missing = self.tokens[self.target.length : held]
        if missing:
            answer = self.target.logits(missing)
            self.after_text = self.targets(answer[-1:], [held], lambda _: self.tokens[:held])

    def check(self) -> None:
        """Raises `CancelledError` if the run was cancelled."""
        if self.cancel.is_set():
            raise CancelledError(
                "Stopped before this iteration was committed: step again to continue."
            )

    @property
    def runners(self) -> tuple[Target | DraftSource, ...]:
        """Target, draft if there is one, heads."""
        return (self.target,) + runners(self.pair)[1:]

    @property
    def lengths(self) -> tuple[int, ...]:
        """Entries in the cache of every runner."""
        return tuple(runner.length for runner in self.runners)

    @property
    def calls(self) -> tuple[int, ...]:
        """Passes so far of every runner."""
        return tuple(runner.calls for runner in self.runners)

    def snapshot(self) -> Snapshot:
        learned = self.drafter.snapshot()
        return Snapshot(len(self.tokens), self.after_text, learned, self.lengths)

    def restore(self, snapshot: Snapshot) -> None:
        """Undoes a partial iteration without running a model.

        An iteration only appends to tokens and caches.
        """
        del self.tokens[snapshot.tokens :]
        self.after_text = snapshot.after_text
        self.drafter.restore(snapshot.learned)
        for runner, length in zip(self.runners, snapshot.lengths, strict=True):
            runner.crop(min(length, runner.length))


@dataclass(frozen=True)
class Verification:
    """The target's answer to a tree: `answer`, `n` rows, and `extra`, `m` rows, both unprocessed.

    `targets`: predictions after each node. `root`: with a drafted root, the prediction at its
    position.
    """

    answer: Answer
    extra: Answer
    targets: Targets
    root: Targets | None = None

    @property
    def root_choice(self) -> int | None:
        if self.root is None:
            return None
        return self.root.choose(0)


@dataclass(frozen=True, kw_only=True)
class Iteration:
    """One iteration, with its tensors for the record.

    `strategy`: the settings it drafted with. `lengths`: of the caches before it. `watch`: seconds
    by phase; reading them waits for a CUDA device. `calls`: of every model.
    """

    prefix_length: int
    strategy: Strategy
    lengths: tuple[int, ...]
    draft: Draft
    verification: Verification
    rule: Rule
    acceptance: Acceptance
    outcome: Outcome
    adaptation: Adaptation
    watch: Stopwatch
    calls: tuple[int, ...]

    @property
    def counts(self) -> Counts:
        outcome = self.outcome
        tree = outcome.tree
        committed = len(outcome.committed)
        drafted_root = outcome.root == "drafted"
        roots = 0 if drafted_root else 1  # nodes that are no candidates
        return Counts(
            iterations=1,
            committed=committed,
            drafted=len(tree) - roots,
            accepted=len(outcome.accepted),
            longest_path=int(tree.depth[-1]) + 1 - roots,
            target_calls=self.calls[0],
            draft_calls=sum(self.calls[1:]),
            seconds=self.watch.seconds,
            looked=looked(tree, outcome.accepted, committed, drafted_root),
        )


def runners(pair: ModelPair) -> tuple[DraftSource, ...]:
    """Target, draft if there is one, heads."""
    models: tuple[DraftSource, ...] = tuple(pair.runners.values())
    return models + pair.heads
