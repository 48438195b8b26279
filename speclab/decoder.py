"""The decoding loop. One iteration: draft a tree, verify it in one target pass, accept a path, commit it, adapt.

Every strategy runs through `iterate`; it differs only in its drafter. `generate` is this loop without records, a
`Session` is this loop with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event as Flag

from torch import Tensor

from speclab.acceptance import walk
from speclab.drafters.base import Context, Draft, Drafter, Outcome, Strategy, checked
from speclab.errors import CancelledError, ContextExceededError
from speclab.metrics import Counts
from speclab.models.pair import ModelPair
from speclab.models.runner import Runner
from speclab.sampling import Choice, chooser
from speclab.settings import SessionSettings
from speclab.timing import Stopwatch
from speclab.trace import Adaptation
from speclab.tree import DraftTree


@dataclass
class Decoding:
    """The state of one text being decoded: `tokens` is the prompt and everything committed since.

    Between iterations the target's cache holds all of `tokens` but the newest, which is the next root; with a drafted
    root it holds them all, and `next_logits` `[V]` are what the target makes of them.
    """

    pair: ModelPair
    drafter: Drafter
    settings: SessionSettings
    tokens: list[int]
    prompt_length: int
    next_logits: Tensor | None = None
    cancel: Flag = field(default_factory=Flag)

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

    def check(self) -> None:
        """Raises where the run was cancelled."""
        if self.cancel.is_set():
            raise CancelledError("stopped before this iteration was committed: step again to go on")


@dataclass(frozen=True, slots=True)
class Verification:
    """What the target makes of a tree: `logits` `[n, V]` and its choice after each node.

    With a drafted root also `root_logits` `[V]` and `root_choice` for the root's own place.
    """

    logits: Tensor
    choose: Choice
    root_logits: Tensor | None = None
    root_choice: int | None = None


@dataclass(frozen=True, slots=True)
class Iteration:
    """One iteration, with the tensors still at hand for whoever records it. `lengths`: of the caches before it."""

    prefix_length: int
    strategy: Strategy
    draft: Draft
    verification: Verification
    outcome: Outcome
    adaptation: Adaptation
    lengths: tuple[int, ...]
    seconds: dict[str, float]
    counts: Counts


def start(pair: ModelPair, strategy: Strategy, prompt_ids: Sequence[int], settings: SessionSettings) -> Decoding:
    """Prefills the prompt and commits the first token.

    Raises:
        ContextExceededError: prompt and new tokens do not fit the models' context.
    """
    _check_context(pair, len(prompt_ids), settings.max_new_tokens)
    decoding = Decoding(pair, checked(strategy).drafter(pair), settings, list(prompt_ids), len(prompt_ids))
    logits = decoding.drafter.prefill(pair.target, decoding.tokens)
    decoding.tokens.append(chooser(logits[None], [len(prompt_ids)], settings)(0))
    catch_up(decoding)
    return decoding


def resume(
    decoding: Decoding, committed: int, strategy: Strategy, settings: SessionSettings, learned: object = None
) -> Decoding:
    """A decoding of its own that goes on after the first `committed` tokens of another; the other stays as it is.

    Committed entries are a prefix of the caches, so they are copied and no more than one token is run again.

    Args:
        committed: tokens to share, prompt included.
        learned: a drafter's snapshot from that point, if it is to go on from what it had learned.
    """
    _check_context(decoding.pair, decoding.prompt_length, settings.max_new_tokens)
    pair = decoding.pair.fork(committed - 1)
    twin = Decoding(pair, strategy.drafter(pair), settings, decoding.tokens[:committed], decoding.prompt_length)
    if learned is not None:
        twin.drafter.restore(learned)
    catch_up(twin)
    return twin


def iterate(decoding: Decoding) -> Iteration:
    """One iteration. Where it fails or is cancelled, everything is as it was before it."""
    drafter, prefix_length, strategy = (
        decoding.drafter,
        decoding.pair.target.length,
        decoding.drafter.settings,
    )
    lengths, calls = _lengths(decoding.pair), _calls(decoding.pair)
    watch = Stopwatch(decoding.pair.target.device)
    with undone_on_failure(decoding):
        draft = drafter.draft(Context(decoding.tokens, _deepest(decoding), decoding.check))
        decoding.check()
        watch.lap("draft")
        verification = verify(decoding, draft.tree)
        watch.lap("verify")
        outcome = accept(decoding, draft.tree, verification)
        watch.lap("accept")
        commit(decoding, outcome)
        watch.lap("commit")
        adaptation = drafter.learn(outcome)
        watch.lap("adapt")
    spent = [after - before for after, before in zip(_calls(decoding.pair), calls, strict=True)]
    counts = _counts(drafter, outcome, spent, sum(watch.laps.values()))
    return Iteration(prefix_length, strategy, draft, verification, outcome, adaptation, lengths, watch.laps, counts)


def verify(decoding: Decoding, tree: DraftTree) -> Verification:
    """One target pass over all nodes; each sees the prefix and its ancestors (DynaTree, section 3.4)."""
    target = decoding.pair.target
    positions = [target.length + depth for depth in tree.depth.tolist()]
    logits = target.forward(tree.token.tolist(), positions, tree.ancestor_mask())
    choose = chooser(logits, [position + 1 for position in positions], decoding.settings)
    if decoding.drafter.root == "verified":
        return Verification(logits, choose)
    assert decoding.next_logits is not None
    root_choice = chooser(decoding.next_logits[None], [len(decoding.tokens)], decoding.settings)(0)
    return Verification(logits, choose, decoding.next_logits, root_choice)


def accept(decoding: Decoding, tree: DraftTree, verification: Verification) -> Outcome:
    """The path that the target's choices take, and the bonus token, cut where the text ends."""
    path = walk(tree, verification.choose, verification.root_choice)
    tokens = [*(int(tree.token[node]) for node in path.accepted), path.bonus][: decoding.room]
    last = next((place for place, token in enumerate(tokens) if decoding.ends(token)), len(tokens) - 1)
    committed = tuple(tokens[: last + 1])
    return Outcome(tree, path.accepted[: len(committed)], committed, verification.logits)


def commit(decoding: Decoding, outcome: Outcome) -> None:
    """Appends the committed tokens and brings every cache to them."""
    target, drafter = decoding.pair.target, decoding.drafter
    prefix_length = target.length - len(outcome.tree)
    if drafter.commit == "gather":
        path = outcome.accepted if drafter.root == "drafted" else (0, *outcome.accepted)
        target.keep(prefix_length, [prefix_length + node for node in path[: len(outcome.committed)]])
    else:
        target.crop(prefix_length)
    decoding.tokens.extend(outcome.committed)
    catch_up(decoding)
    drafter.settle(outcome)


def catch_up(decoding: Decoding) -> None:
    """Runs the committed tokens that the target's cache should hold and lacks; after a gather there are none."""
    target = decoding.pair.target
    held = len(decoding.tokens) - (decoding.drafter.root == "verified")
    missing = decoding.tokens[target.length : held]
    if missing:
        decoding.next_logits = target.extend(missing)


@contextmanager
def undone_on_failure(decoding: Decoding) -> Iterator[None]:
    """Puts tokens, caches and what was learned back where they were, whatever goes wrong inside, Ctrl-C included."""
    tokens, logits, learned = len(decoding.tokens), decoding.next_logits, decoding.drafter.snapshot()
    lengths = _lengths(decoding.pair)
    try:
        yield
    except BaseException:
        del decoding.tokens[tokens:]
        decoding.next_logits = logits
        decoding.drafter.restore(learned)
        for runner, length in zip(_runners(decoding.pair), lengths, strict=True):
            runner.crop(min(length, runner.length))
        raise


def _deepest(decoding: Decoding) -> int:
    context = decoding.pair.context
    return context - 1 - decoding.pair.target.length if context is not None else 1 << 30


def _check_context(pair: ModelPair, prompt_length: int, max_new_tokens: int) -> None:
    if pair.context is None or prompt_length + max_new_tokens <= pair.context:
        return
    room = pair.context - prompt_length
    way_out = f"set max_new_tokens to {room} or less, or shorten the prompt" if room > 0 else "shorten the prompt"
    raise ContextExceededError(
        f"{prompt_length} prompt tokens and {max_new_tokens} new ones exceed the context of {pair.name}, "
        f"{pair.context} tokens: {way_out}"
    )


def _counts(drafter: Drafter, outcome: Outcome, calls: Sequence[int], seconds: float) -> Counts:
    rooted = int(drafter.root == "verified")
    return Counts(
        iterations=1,
        committed=len(outcome.committed),
        drafted=len(outcome.tree) - rooted,
        accepted=len(outcome.accepted),
        longest_path=int(outcome.tree.depth[-1]) + 1 - rooted,
        target_calls=calls[0],
        draft_calls=sum(calls[1:]),
        seconds=seconds,
    )


def _runners(pair: ModelPair) -> tuple[Runner, ...]:
    return (pair.target,) if pair.draft is None else (pair.target, pair.draft)


def _lengths(pair: ModelPair) -> tuple[int, ...]:
    return tuple(runner.length for runner in _runners(pair))


def _calls(pair: ModelPair) -> tuple[int, ...]:
    return tuple(runner.calls for runner in _runners(pair))
