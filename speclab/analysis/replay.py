"""Replay: what any strategy and setting would have done on the whole of a text that is known, without its target.

Greedy text does not depend on the strategy, nor does text whose random numbers are tied to positions, as long as
candidates are chosen beforehand. So once a text is there, the loop of `speclab.engine.decode` runs on stand-ins for the
models (`speclab.analysis.recall`, `.said`): its true iterations in their true order, histories and tables included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from speclab.analysis.recall import KnownTarget, Text
from speclab.analysis.said import PART, KnownDraft, KnownHead, SaidByHead, SaidByModel
from speclab.drafters import cost
from speclab.drafters.base import Strategy, checked
from speclab.engine.acceptance import Rule
from speclab.engine.decode import Decoding, Iteration, cache_lengths, iterate, runners, start
from speclab.engine.sampling import chooser
from speclab.engine.session import KnownText, Session
from speclab.errors import NotRecordedError, SettingsError, named
from speclab.models.answer import KEPT, Answer, TopTokens
from speclab.models.heads import HeadRunner
from speclab.models.pair import ModelPair
from speclab.models.runner import Runner
from speclab.settings import SessionSettings
from speclab.trace.records import Trace

Check = Callable[[], None]
"""Raises where a replay was cancelled."""


@dataclass(frozen=True)
class Replay:
    """What a strategy would have done on a text: `passes` are its iterations.

    `text_passes`: target passes over the text, for what was not kept when it was decoded; later replays of the text
    need them no more. `inexact`: why a real run may have gone otherwise; empty where it goes just so.
    """

    strategy: Strategy
    passes: tuple[Passes, ...] = field(repr=False)
    curves: Curves = field(repr=False, compare=False)
    text_passes: int = 0
    inexact: str = ""

    @property
    def iterations(self) -> int:
        """Passes of the target that a run would have made after the prefill."""
        return len(self.passes)

    @property
    def committed(self) -> tuple[tuple[int, ...], ...]:
        """Of each iteration the tokens."""
        return tuple(one.committed for one in self.passes)

    @property
    def tokens_per_iteration(self) -> float:
        """Committed tokens by iteration."""
        return sum(map(len, self.committed)) / max(1, self.iterations)

    @property
    def draft_calls(self) -> int:
        """Passes of draft models and heads that a run would have made."""
        return sum(one.draft_calls for one in self.passes)

    @property
    def target_calls(self) -> int:
        """Passes of the target that the replay made to decode: none."""
        return 0

    @property
    def seconds(self) -> float:
        """Modelled: the measured costs of all passes (`drafters.cost`). A drafter's own work is not in it."""
        return sum(map(self.curves, self.passes))

    @property
    def tokens_per_second(self) -> float:
        """Modelled, as `seconds`; the prefill and its token are not counted."""
        return sum(map(len, self.committed)) / self.seconds if self.passes else 0.0


@dataclass(frozen=True, slots=True)
class Passes:
    """The passes of one iteration: `nodes` rows of the target's, and of each draft its calls and all their rows.

    `accepted`: drafted nodes that were. `others`: rows of the target's further passes, of a strategy that runs the
    committed tokens again. `drafted`, `longest_path`: as in `speclab.trace.metrics.Counts`.
    """

    prefix_length: int
    nodes: int
    accepted: int
    committed: tuple[int, ...]
    drafts: tuple[tuple[int, int], ...]
    others: int
    drafted: int
    longest_path: int

    @property
    def draft_calls(self) -> int:
        """Calls of all drafts."""
        return sum(calls for calls, _ in self.drafts)


@dataclass(frozen=True)
class Curves:
    """The measured costs of a pair's models; each is measured when it is first asked for."""

    pair: ModelPair

    def __call__(self, one: Passes) -> float:
        """Modelled seconds of an iteration; the passes of one draft count as equally long."""
        target, *drafts = runners(self.pair)
        seconds = sum(cost.seconds(target, rows) for rows in (one.nodes, one.others) if rows)
        for runner, (calls, rows) in zip(drafts, one.drafts, strict=True):
            if calls:
                seconds += calls * cost.seconds(runner, max(1, round(rows / calls)))
        return seconds


def replay(
    run: Session | Trace | KnownText, strategy: Strategy, *, pair: ModelPair | None = None, ask_target: bool = False
) -> Replay:
    """What `strategy` would have done on the whole text of a run; for many of one text use one `Replayer`.

    `run`, `pair`, `ask_target`: as of `Replayer`.

    Raises:
        NotRecordedError: it does not follow from what is kept; the message says what is missing.
        SpeclabError: the strategy does not fit the pair.
    """
    return Replayer(run, pair, ask_target=ask_target).replay(strategy)


class Replayer:
    """Replays one text under any strategies; what the drafts say of it is asked of them once.

    Its caches are its own: a session may decode on meanwhile, and this text then ends where it was.

    Args:
        run: a session; a trace, with the `pair` that wrote it; or a text of any origin, such as another engine's, of
            which an accepted token is one that stands in it (`others` says where the target would have chosen another).
        ask_target: a table of transitions learns from rejected rows too, and of those that were in no tree when the
            text was decoded nothing is kept. By default it does without them, and the replay says so (`inexact`); True
            runs the target for them, each row once.

    Raises:
        NotRecordedError: the text cannot be replayed: it is a trace without models, or of another target; no iteration
            was decoded; or it depends on what was drafted.
    """

    others: tuple[int, ...] = ()
    """Of a text of any origin: the generated tokens, counted from 1, for which the target chooses another."""

    def __init__(
        self, run: Session | Trace | KnownText, pair: ModelPair | None = None, *, ask_target: bool = False
    ) -> None:
        if isinstance(run, Trace):
            if pair is None:
                raise NotRecordedError(
                    "a trace holds no models: give the pair that wrote it, as in replay(trace, strategy, "
                    "pair=speclab.load_pair())"
                )
            known, rows = _of_trace(run, pair)
        elif isinstance(run, KnownText):
            _check(run)
            known = run
            rows, strays = _answers(run)
            self.others = tuple([place for place, _ in strays])
        elif pair is not None:
            raise SettingsError("a session has its own models: leave pair= out, or replay its trace")
        elif not isinstance(run, Session):
            raise SettingsError(f"{named(run)} is no run: give a session, or a trace with its pair.")
        else:
            known, rows = run.known, None
            _check(known)
        self._text, self._reported = Text(known, ask_target), 0
        if rows is not None:
            self._text.learn(rows)
            self._text.passes = -(-len(rows) // PART)
        self._said = [self._said_by(one) for one in runners(known.pair)[1:]]

    def replay(self, strategy: Strategy, check: Check = lambda: None) -> Replay:
        """What this strategy would have done; `check` is called often, and what it raises ends the replay.

        Raises:
            NotRecordedError: it needs what was not kept of the text.
            SpeclabError: the strategy does not fit the pair.
        """
        text, strategy = self._text, checked(strategy)
        known, text.missed = text.known, 0
        pair = self._stand_ins()
        new = len(known.tokens) - known.prompt_length
        settings = known.settings.changed(max_new_tokens=new, check=False)
        decoding = start(pair, strategy, known.tokens[: known.prompt_length], settings)
        passes = []
        while not decoding.finished:
            check()
            lengths = cache_lengths(pair)
            calls = [runner.calls for runner in runners(pair)]
            iteration = iterate(decoding)
            passes.append(_passes(decoding, iteration, lengths, calls))
        assert tuple(decoding.tokens) == known.tokens
        new_passes, self._reported = text.passes - self._reported, text.passes
        return Replay(strategy, tuple(passes), Curves(known.pair), new_passes, _doubt(text, pair))

    def _said_by(self, draft: Runner | HeadRunner) -> SaidByModel | SaidByHead | None:
        """What a draft says; None in half precision, where that depends on the rows beside it, so it is run again."""
        if draft.dtype.itemsize < 4:
            return None
        return SaidByHead(self._text, draft) if isinstance(draft, HeadRunner) else SaidByModel(self._text, draft)

    def _stand_ins(self) -> ModelPair:
        """A pair of stand-ins, with empty caches."""
        pair = self._text.known.pair
        target = KnownTarget(self._text)
        drafts: list[Runner | HeadRunner] = []
        for runner, said in zip(runners(pair)[1:], self._said, strict=True):
            if isinstance(runner, HeadRunner):
                drafts.append(KnownHead(said, runner) if isinstance(said, SaidByHead) else runner.fork(0, pair.target))
            else:
                drafts.append(KnownDraft(said, runner) if isinstance(said, SaidByModel) else runner.fork())
        draft = drafts.pop(0) if pair.draft is not None else None
        assert not isinstance(draft, HeadRunner)
        return replace(pair, target=target, draft=draft, heads=tuple(drafts), shared_state={})


def _passes(decoding: Decoding, iteration: Iteration, lengths: Sequence[int], calls: Sequence[int]) -> Passes:
    pair, outcome = decoding.pair, iteration.outcome
    made = [runner.calls - before for runner, before in zip(runners(pair), calls, strict=True)]
    written = [runner.kept.before - before for runner, before in zip(runners(pair), lengths, strict=True)]
    return Passes(
        prefix_length=iteration.prefix_length,
        nodes=len(outcome.tree) + len(iteration.draft.extra.token),
        accepted=len(outcome.accepted),
        committed=outcome.committed,
        drafts=tuple(zip(made[1:], written[1:], strict=True)),
        others=len(outcome.committed) if made[0] > 1 else 0,
        drafted=iteration.counts.drafted,
        longest_path=iteration.counts.longest_path,
    )


def _doubt(text: Text, pair: ModelPair) -> str:
    if text.missed:
        return (
            f"it learns from what the target makes of rejected tokens too, and of {text.missed} of these rows that is "
            "not kept: they were in no tree of the decoded run"
        )
    if pair.shared_state:
        return "what it would have carried over from the prompts before is not kept: it begins as on a first prompt"
    return ""


def _check(known: KnownText) -> None:
    if not known.steps and not len(known.tokens) - known.prompt_length > 1:
        raise NotRecordedError("there is no text to replay yet: decode an iteration at least, or the whole text")
    if any(step.counts.lossy and Rule(step.rule).follows_the_target for step in known.steps):
        raise NotRecordedError(
            "a token or a mask of this text was put in by hand, so it is not the target's own: replay a text that it "
            "wrote itself, such as the run that this one was forked from"
        )
    if fault := known.pair.describe().get("fault"):
        raise NotRecordedError(
            f"the fault {fault!r} is in this pair, so its text depends on the tree: replay a run without it"
        )
    rules = {step.rule for step in known.steps if step.rule}
    if any(not Rule(rule).follows_the_target for rule in rules):
        raise NotRecordedError(
            "this text depends on what was drafted, since its candidates or its acceptance were drawn by the draft's "
            "probabilities: replay a greedy text, or one sampled with candidates='top' and acceptance='exact'"
        )


def _of_trace(trace: Trace, pair: ModelPair) -> tuple[KnownText, TopTokens]:
    """The text of a trace, which this pair's target must write itself, and what it makes of each place.

    Raises:
        NotRecordedError: the target chooses another token somewhere.
    """
    settings = SessionSettings(
        **{name: value for name, value in trace.settings.items() if name in SessionSettings.model_fields}
    )
    tokens = (*pair.encode(trace.prompt_ids), *pair.encode(trace.token_ids()))
    known = KnownText(pair, tokens, len(trace.prompt_ids), settings, trace.steps, ())
    _check(known)  # first: of a text that was drawn otherwise, its own target would be called another
    answers, strays = _answers(known)
    for place, choice in strays:
        chosen, its = (pair.token_text(token) for token in (choice, tokens[len(trace.prompt_ids) + place - 1]))
        raise NotRecordedError(
            f"another target wrote this text: as generated token {place} it has {its!r}, and "
            f"{pair.target.name} chooses {chosen!r}; load the pair that wrote it"
        )
    return known, answers


def _answers(known: KnownText) -> tuple[TopTokens, list[tuple[int, int]]]:
    """What the target makes of each place of a text, and the generated tokens for which it chooses which others."""
    pair, tokens, begin, settings = known.pair, known.tokens, known.prompt_length, known.settings
    target = pair.target.fork()
    processors = pair.rules.processors(pair.target.model, begin, settings.max_new_tokens)
    answers: list[TopTokens] = []
    strays: list[tuple[int, int]] = []
    for first in range(0, len(tokens) - 1, PART):
        part = range(first, min(first + PART, len(tokens) - 1))
        logits = target.logits(tokens[part.start : part.stop], part, np.tri(len(part), dtype=np.bool_))
        if processors is not None:
            logits = Answer(processors(logits.logits, tokens[:first], [tokens[first : at + 1] for at in part]))
        choose = chooser(logits, [at + 1 for at in part], settings)
        chosen = {at: choose(at - first) for at in part if at + 1 >= begin}
        strays += [(at + 2 - begin, token) for at, token in chosen.items() if token != tokens[at + 1]]
        answers.append(logits.topk(KEPT))
    return (np.concatenate([ids for ids, _ in answers]), np.concatenate([found for _, found in answers])), strays
