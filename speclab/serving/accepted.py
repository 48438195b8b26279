"""What an engine logged of acceptance, as plain data: steps where it wrote steps, else counts, else rates. No torch.

A *step* is one verification pass that drafted, as engines count them: passes without a draft are left out of every
figure here. The bonus token counts in `tokens_per_iteration` and nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import numpy as np
from pydantic import Field

from speclab.errors import SettingsError, named
from speclab.files import write_whole
from speclab.serving.differences import differences
from speclab.trace.codecs import NODES, Many, Named, Natural, Text, adapter
from speclab.trace.records import Trace, Value

if TYPE_CHECKING:
    from speclab.analysis.replay import Replay
    from speclab.drafters.base import Strategy
    from speclab.engine.session import Session
    from speclab.models.pair import ModelPair
    from speclab.prompts import PromptInput

SCHEMA, VERSION = "speclab-acceptance", 1
Long = Annotated[str, Field(max_length=1 << 24)]


@dataclass(frozen=True, slots=True)
class AcceptedStep:
    """One verification pass: how many tokens were drafted for it, and how many of them it accepted, without the bonus.

    `depth`: tokens on the longest drafted path, where that is not all of them (a tree).
    """

    drafted: Natural
    accepted: Natural
    depth: Natural | None = None

    @property
    def deepest(self) -> int:
        """The depth to which tokens were drafted."""
        return self.drafted if self.depth is None else self.depth


@dataclass(frozen=True, slots=True)
class AtDepth:
    """Acceptance at one depth, from 1 on.

    `accepted` of `iterations` accepted at least so many tokens. `tried`: those that accepted all above and had drafted
    so deep. `exact`: whether `tried` was counted; else it takes every draft for as deep as any.
    """

    depth: int
    iterations: int
    tried: int
    accepted: int
    exact: bool = True

    @property
    def share(self) -> float:
        """Of all iterations, those that accepted at least so deep: what vLLM calls the per-position rate. 0…1."""
        return self.accepted / self.iterations if self.iterations else 0.0

    @property
    def conditional(self) -> float | None:
        """α_k: accepted here, of those where a token was tried here. 0…1; None where none was."""
        return self.accepted / self.tried if self.tried else None


@dataclass(frozen=True, slots=True)
class Logged:
    """What a log says of one request, or of one interval in which any number of them ran; None is not said.

    `accepted_at`: iterations that accepted at least 1, 2, … tokens. `tokens_per_iteration`: the bonus included.
    `acceptance_rate`: accepted of drafted tokens, 0…1, as the engine counts them. `seconds`: on the log's clock.
    `estimated`: whether `iterations` and `accepted_at` were worked out from rounded rates.
    """

    scope: Literal["request", "interval"] = "interval"
    steps: tuple[AcceptedStep, ...] = ()
    iterations: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    accepted_at: tuple[int, ...] = ()
    tokens_per_iteration: float | None = None
    acceptance_rate: float | None = None
    seconds: float | None = None
    estimated: bool = False
    name: str = ""
    prompt: str = field(default="", repr=False)
    output: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if self.accepted is not None and self.drafted is not None and self.accepted > self.drafted:
            raise ValueError(f"{self.accepted} tokens are accepted of {self.drafted} drafted")
        if self.tokens_per_iteration is not None and self.tokens_per_iteration < 0.995:
            mean = self.tokens_per_iteration
            raise ValueError(f"the mean acceptance length {mean:g} is below 1, and the bonus counts in it")

    @property
    def tokens(self) -> int | None:
        """Tokens that its iterations gave, and the prefill's; None where not known."""
        return None if self.iterations is None or self.accepted is None else self.iterations + self.accepted + 1

    @classmethod
    def of_steps(cls, steps: Iterable[AcceptedStep], **more: Any) -> Logged:
        """From every step of a request.

        Raises:
            ValueError: a step accepts more than it drafted, or drafted deeper than it drafted tokens, or too many.
        """
        every = tuple(steps)
        for number, one in enumerate(every, start=1):
            if one.drafted > NODES:
                raise ValueError(f"step {number} drafts {one.drafted} tokens, and {NODES} are the most")
            if one.accepted > one.deepest or one.deepest > one.drafted:
                deep = "" if one.depth is None else f" to depth {one.depth}"
                raise ValueError(f"step {number} accepts {one.accepted} of {one.drafted} tokens drafted{deep}")
        drafting = [one for one in every if one.drafted]
        at = _at_least([one.accepted for one in drafting])
        drafted = sum(one.drafted for one in drafting)
        return cls.counted(len(drafting), drafted, at, steps=every, scope="request", **more)

    @classmethod
    def counted(cls, iterations: int, drafted: int | None, accepted_at: Sequence[int], **more: Any) -> Logged:
        """From how many of `iterations` accepted at least 1, 2, … tokens.

        Raises:
            ValueError: more accepted at a depth than above it, or more tokens than were drafted.
        """
        at = (iterations, *accepted_at)
        accepted = sum(accepted_at)
        if any(deep > above or deep < 0 for above, deep in pairwise(at)):
            raise ValueError(f"{', '.join(map(str, accepted_at))} iterations accept at depth 1, 2, … of {iterations}")
        return cls(
            iterations=iterations, drafted=drafted, accepted=accepted, accepted_at=tuple(accepted_at),
            tokens_per_iteration=1 + accepted / iterations if iterations else None,
            acceptance_rate=accepted / drafted if drafted else None, **more,
        )  # fmt: skip

    @classmethod
    def of_rates(
        cls,
        accepted: int | None,
        drafted: int | None,
        mean: float | None,
        rates: Sequence[float] = (),
        rate: float | None = None,
        **more: Any,
    ) -> Logged:
        """From totals and rounded rates: counts by depth are rates × iterations, and these follow from the totals.

        Args:
            mean: tokens per iteration.
            rates: of the iterations that accepted at least 1, 2, … tokens.
            rate: accepted of drafted tokens.

        Raises:
            ValueError: a rate is none, or more tokens are accepted than drafted.
        """
        for one in (*rates, rate or 0.0):
            if not 0 <= one <= 1.0005:
                raise ValueError(f"the rate {one:g} is outside 0 to 1")
        iterations = _iterations(accepted, drafted, mean, rates)
        at = tuple([round(one * iterations) for one in rates]) if iterations else ()
        whole = bool(at) and sum(at) == accepted and drafted == len(at) * (iterations or 0)
        if not mean and accepted is not None and iterations:
            mean = 1 + accepted / iterations
        if rate is None and accepted is not None and drafted:
            rate = accepted / drafted
        return cls(
            iterations=iterations, drafted=drafted, accepted=accepted, accepted_at=at,
            tokens_per_iteration=mean or None, acceptance_rate=rate,
            estimated=iterations is not None and not whole, **more,
        )  # fmt: skip


@dataclass(frozen=True)
class AcceptanceLog:
    """A log of acceptance, of an engine or of speclab itself.

    `engine`: "vllm", "sglang", "llama.cpp" or "speclab". `entries`: its requests or intervals, in their order.
    `source`: the file, or what else the log is of. `settings`: of the strategy, where they are known. `notes`:
    sentences on what these figures do not say.
    """

    engine: str
    entries: tuple[Logged, ...] = field(repr=False)
    source: str = ""
    settings: Mapping[str, Value] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, *runs: Session | Trace | Replay, source: str = "") -> AcceptanceLog:
        """What our own runs accepted, one request each; prompt and output are kept where their text is known.

        Raises:
            SettingsError: there are none, or one of them is no run.
        """
        if not runs:
            raise SettingsError("A log needs a run: give a session, a trace or a replay, or several of them.")
        entries, settings = [], {}
        for run in runs:
            found: Trace | Replay = getattr(run, "trace", run)  # type: ignore[arg-type]  # a session has one
            if isinstance(found, Trace):
                counts: Sequence[Any] = [step.counts for step in found.steps]
                settings = dict(found.settings)
                words = {"prompt": _text(found, found.prompt_ids), "output": _text(found, found.token_ids())}
            elif not hasattr(found, "passes"):  # no replay, whose module need not be loaded to tell
                raise SettingsError(f"{named(run)} is no run: give a session, a trace or a replay.")
            else:
                counts, settings, words = found.passes, found.strategy.describe(), {}
            depths = [None if one.longest_path == one.drafted else one.longest_path for one in counts]
            steps = [AcceptedStep(one.drafted, one.accepted, depth) for one, depth in zip(counts, depths, strict=True)]
            entries.append(Logged.of_steps(steps, **words))
        return cls("speclab", tuple(entries), source or str(settings.get("strategy") or ""), settings)

    def __repr__(self) -> str:
        """What it comes to, in words."""
        about, figures = "", []
        if self.iterations is not None:
            iterations = f"{self.iterations:,} iteration{'s' * (self.iterations != 1)}"
            about = f", {'about ' * self.estimated}{iterations} that drafted"
        if self.tokens_per_iteration is not None:
            figures.append(f"{self.tokens_per_iteration:.2f} tokens per iteration, the bonus included")
        if self.acceptance_rate is not None:
            figures.append(f"{self.acceptance_rate:.0%} of the drafted tokens accepted")
        entries = f"{len(self.entries):,} {self.entries[0].scope}{'s' * (len(self.entries) != 1)}"
        return f"{self.name}: {entries}{about}: {' and '.join(figures) or 'no figures'}."

    @property
    def name(self) -> str:
        """The engine, and what the log is of."""
        return f"{self.engine} · {self.source}" if self.source else self.engine

    @cached_property
    def steps(self) -> tuple[AcceptedStep, ...]:
        """Every step of every request; empty where the log has none."""
        return tuple(step for entry in self.entries for step in entry.steps)

    @property
    def iterations(self) -> int | None:
        """Verification passes that drafted; None where it is not known of every entry."""
        return total([entry.iterations for entry in self.entries])

    @property
    def drafted(self) -> int | None:
        """Drafted tokens; None where not known of every entry."""
        return total([entry.drafted for entry in self.entries])

    @property
    def accepted(self) -> int | None:
        """Accepted tokens, without the bonus; None where not known of every entry."""
        return total([entry.accepted for entry in self.entries])

    @property
    def tokens_per_iteration(self) -> float | None:
        """1 + accepted / iterations, over the whole log; of rates alone their plain mean. None where nothing says it.

        "Mean acceptance length" in vLLM and llama.cpp, "accept len" in SGLang.
        """
        if self.iterations and self.accepted is not None:
            return 1 + self.accepted / self.iterations
        return mean_of([entry.tokens_per_iteration for entry in self.entries])

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted / drafted tokens over the whole log; of rates alone their plain mean. None where nothing says it."""
        if self.drafted and self.accepted is not None:
            return self.accepted / self.drafted
        return mean_of([entry.acceptance_rate for entry in self.entries])

    @property
    def estimated(self) -> bool:
        """Whether counts were worked out from rounded rates."""
        return any(entry.estimated for entry in self.entries)

    @property
    def tokens(self) -> int | None:
        """Tokens that these iterations gave, and the prefill's of each request; None where not known."""
        return total([entry.tokens for entry in self.entries])

    @cached_property
    def acceptance_by_depth(self) -> tuple[AtDepth, ...]:
        """Acceptance at depth 1, 2, …; empty where the log has totals or rates alone."""
        held = [one for one in self.entries if one.iterations and (one.accepted_at or one.steps or not one.accepted)]
        if len(held) < len(self.entries) and not any(one.accepted_at for one in held):
            return ()
        iterations = sum(one.iterations or 0 for one in held)
        at = [sum(column) for column in zip_longest(*[one.accepted_at for one in held], fillvalue=0)]
        exact = bool(held) and all(one.steps for one in held)
        tried = [iterations, *at]
        if exact:
            tried = _at_least([min(step.deepest, step.accepted + 1) for one in held for step in one.steps])
        pairs = list(zip_longest(tried, at, fillvalue=0))[: len(tried) if exact else len(at)]
        return tuple([AtDepth(depth, iterations, *pair, exact) for depth, pair in enumerate(pairs, start=1)])

    def compare(
        self,
        ours: ModelPair | Session | Trace | Replay | AcceptanceLog,
        strategy: Strategy | None = None,
        *,
        prompt: PromptInput = "",
        output: str = "",
    ) -> LogComparison:
        """This log beside ours: acceptance by depth, and sentences on what differs.

        Args:
            ours: a run, replay or log; or the pair of models that the engine served, to replay `strategy` on the text
                of each request.
            strategy: what the engine does, such as `LinearSpeculation(draft_tokens=5)`.
            prompt, output: what was asked and written, where the log does not hold it; of one request. Without an
                output the pair decodes its own, greedily.

        Raises:
            SettingsError: there is a pair and no strategy.
            SpeclabError: there is no prompt, or the strategy does not fit the pair.
        """
        if not hasattr(ours, "target"):  # no pair of models, whose module need not be loaded to tell
            other = ours if isinstance(ours, AcceptanceLog) else AcceptanceLog.of(cast("Trace", ours))
            return LogComparison(self, other, differences(self, other))
        if strategy is None:
            raise SettingsError("a pair needs the strategy that the engine ran: give it, as in compare(pair, strategy)")
        from speclab.serving.on_text import on_text

        pair, known = cast("ModelPair", ours), () if prompt else tuple([one for one in self.entries if one.prompt])
        runs = [on_text(pair, strategy, one.prompt, one.output, one.tokens) for one in known]
        runs = runs or [on_text(pair, strategy, prompt, output, self.tokens)]
        other = AcceptanceLog.of(*[run for run, _ in runs])
        theirs = replace(self, entries=known) if known else self
        return LogComparison(theirs, other, (*[said for _, said in runs], *differences(theirs, other)))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes it as JSON by the documented schema, whole or not at all; returns the path.

        Raises:
            SettingsError: it has rates or totals, and not every step.
            TraceError: the folder is missing, read-only or full.
        """
        if not all(one.steps or one.iterations == 0 for one in self.entries):
            raise SettingsError(
                f"{self.name} holds rates or totals, and the schema {SCHEMA} every step: keep the engine's own file"
            )
        requests = tuple([SavedRequest(one.steps, one.prompt, one.output, one.name) for one in self.entries])
        saved = SavedLog(SCHEMA, VERSION, self.engine, requests, self.settings, self.source)
        return write_whole(path, adapter(SavedLog).dump_json(saved, exclude_defaults=True))


@dataclass(frozen=True, slots=True)
class LogComparison:
    """An engine's log beside ours. `differences`: sentences, those on the text first."""

    theirs: AcceptanceLog
    ours: AcceptanceLog
    differences: tuple[str, ...]

    def __repr__(self) -> str:
        """Both, and what differs, a line each."""
        return "\n".join([repr(self.theirs), repr(self.ours), *self.differences])


@dataclass(frozen=True, slots=True)
class SavedRequest:
    """A request in a file of ours."""

    steps: Many[AcceptedStep]
    prompt: Long = ""
    output: Long = ""
    name: Text = ""


@dataclass(frozen=True, slots=True)
class SavedLog:
    """A file of ours: docs/engines.md says what each field means."""

    schema: Text
    version: Natural
    engine: Text
    requests: Many[SavedRequest]
    settings: Named[Value] = field(default_factory=dict)
    source: Text = ""


def _iterations(accepted: int | None, drafted: int | None, mean: float | None, rates: Sequence[float]) -> int | None:
    """How many follow from these; None where none do."""
    if accepted == 0 and rates and drafted:
        return drafted // len(rates)
    if accepted and sum(rates):
        return round(accepted / sum(rates))
    return round(accepted / (mean - 1)) if accepted and mean is not None and mean > 1.005 else None


def _at_least(values: Sequence[int]) -> list[int]:
    """How many are at least 1, 2, … and so on to the largest."""
    counts: list[int] = np.bincount(np.asarray(values, np.int64), minlength=1)[::-1].cumsum()[::-1].tolist()
    return counts[1:]


def total(counts: Iterable[int | None]) -> int | None:
    """The sum; None where one of them is not known."""
    every = list(counts)
    known = [count for count in every if count is not None]
    return sum(known) if len(known) == len(every) else None


def mean_of(values: Iterable[float | None]) -> float | None:
    """The mean of those that are known; None where none is."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _text(trace: Trace, tokens: Sequence[int]) -> str:
    """The text of tokens; "" where a token is a part of a character, whose text cannot be put together from these."""
    texts = [trace.texts.get(token, "") for token in tokens]
    return "" if any(not text or text.startswith(("<0x", "#")) for text in texts) else "".join(texts)
