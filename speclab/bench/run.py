"""A measurement: what is asked for, every method on every prompt in turn, and the folder that keeps it.

Rounds on a prompt follow a warm-up, and their order turns; each call becomes a `Result` as soon as it is done.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import speclab
from speclab.analysis.attribution import attribution, source_rates, spine_bound
from speclab.analysis.routing import statistics
from speclab.bench.call import call
from speclab.bench.protocol import Method, Protocol
from speclab.bench.result import (
    RESULTS,
    RUN,
    Bound,
    Key,
    Result,
    RunInfo,
    Writer,
    read_results,
    write_parquet,
    write_run,
)
from speclab.bench.workloads import Workload
from speclab.drafters.chain import Autoregressive
from speclab.engine.exactness import TOLERANCE
from speclab.engine.generate import generate
from speclab.engine.session import Session
from speclab.errors import MeasurementError, SpeclabError
from speclab.host import machine, versions
from speclab.models.pair import ModelPair
from speclab.prompts import Prompt
from speclab.settings import SessionSettings
from speclab.theory import best_isotropic
from speclab.trace.records import Step

MIN_PROMPT_SHARE = 4
"""A prompt may take a quarter of the context, whatever number of new tokens was asked for."""
SPINE = "context"
"""The source of copied tokens."""


@dataclass(frozen=True, slots=True)
class Read:
    """A prompt as the models read it."""

    prompt: Prompt
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Measurement:
    """All that decides what is measured: a protocol on prompts, cut to the models' context.

    `notes`: sentences on what was cut or left out.
    """

    protocol: Protocol
    pair: ModelPair
    workload: Workload
    prompts: tuple[Read, ...]
    methods: tuple[Method, ...]
    max_new_tokens: int
    repeats: int
    notes: tuple[str, ...]
    arguments: dict[str, Any]
    command: str = ""
    """What measures the same again, less the folder; "" where no command did."""

    def inputs(self, method: Method, prompt: Read) -> tuple[tuple[int, ...], SessionSettings]:
        """The ids of the prompt and the settings of this method's call on it."""
        ids, new = prompt.ids, self.max_new_tokens
        if method.x is not None and self.protocol.swept == "prompt tokens":
            ids = ids[: int(method.x)]
        if method.x is not None and self.protocol.swept == "new tokens":
            new = int(method.x)
        return ids, SessionSettings(max_new_tokens=new, stop_at_eos=self.protocol.stop_at_eos)

    def applies(self, method: Method, prompt: Read) -> bool:
        """Whether the prompt is long enough for this method's swept length."""
        return self.protocol.swept != "prompt tokens" or method.x is None or len(prompt.ids) >= method.x

    @property
    def calls(self) -> int:
        """Calls that are to be kept."""
        return self.repeats * sum(self.applies(method, prompt) for prompt in self.prompts for method in self.methods)


def plan(
    protocol: Protocol,
    pair: ModelPair,
    workload: Workload,
    *,
    max_new_tokens: int | None = None,
    repeats: int = 3,
    arguments: dict[str, Any] | None = None,
) -> Measurement:
    """Cuts prompts and lengths to the models' context.

    New tokens come first; but prompts keep a quarter of the context, and then new tokens get what is left.

    Args:
        max_new_tokens: T; by default the protocol's.
        repeats: rounds that are kept.
        arguments: what `RunInfo.arguments` holds beside the protocol, the prompts and the lengths.

    Raises:
        MeasurementError: nothing is left to measure.
        PromptError: the pair has no tokenizer.
    """
    wanted = max_new_tokens or protocol.max_new_tokens
    prompts, notes = _prompts(pair, workload, protocol.prompt_tokens, wanted)
    new = wanted if pair.context is None else min(wanted, pair.context - max(len(prompt.ids) for prompt in prompts))
    if new < wanted:
        notes.append(f"T is {new} instead of {wanted}: {pair.name} reads {pair.context} tokens, prompt included.")
    methods = _methods(protocol, new, prompts, notes)
    known = {
        "protocol": protocol.name, "workload": workload.name, "prompts": workload.digest, "pair": pair.name,
        "max_new_tokens": wanted, "repeats": repeats, **(arguments or {}),
    }  # fmt: skip
    every = (*workload.notes, *notes)
    return Measurement(protocol, pair, workload, tuple(prompts), methods, new, repeats, every, known)


def _prompts(pair: ModelPair, workload: Workload, most: int | None, new: int) -> tuple[list[Read], list[str]]:
    read = workload if pair.chats else replace(workload, chat=False)
    prompts = [Read(task, tuple(pair.encode(asked))) for task, asked in zip(read.tasks, read.inputs, strict=True)]
    bounds = [] if most is None else [most]
    if pair.context is not None:
        bounds.append(max(pair.context - new, pair.context // MIN_PROMPT_SHARE))
    bound = min(bounds, default=None)
    cut = [prompt for prompt in prompts if bound is not None and len(prompt.ids) > bound]
    notes = [f"{len(cut)} of {len(prompts)} prompts are cut to their first {bound} tokens."] if cut else []
    return [replace(prompt, ids=prompt.ids[:bound]) for prompt in prompts], notes


def _methods(protocol: Protocol, new: int, prompts: Sequence[Read], notes: list[str]) -> tuple[Method, ...]:
    """Those whose swept length can be had: more new tokens than fit are cut, a longer prompt than any is left out."""
    every, what = protocol.methods, protocol.x_name
    if protocol.swept == "a setting":
        return every
    if protocol.swept == "new tokens":
        beyond = _listed(every, lambda x: x > new)
        if beyond:
            notes.append(f"{what} of {beyond} cut to {new}, the most that context and --max-new-tokens allow.")
        cut = [one.at(min(one.x, new)) if one.x is not None else one for one in every]
        return tuple({(one.name, one.x): one for one in cut}.values())
    lengths = [len(prompt.ids) for prompt in prompts]
    beyond = _listed(every, lambda x: x > max(lengths))
    if beyond:
        notes.append(f"{what} of {beyond} left out: the longest prompt has {max(lengths)}.")
    kept = tuple(one for one in every if one.x is None or one.x <= max(lengths))
    if not any(one.x is not None for one in kept):
        raise MeasurementError(f"No prompt is long enough for {protocol.name}: name a workload of longer ones.")
    short = _listed(kept, lambda x: x > min(lengths))
    if short:
        notes.append(f"{what} of {short}: without the prompts that are shorter.")
    return kept


def _listed(methods: Sequence[Method], where: Callable[[float], bool]) -> str:
    values = {one.x for one in methods if one.x is not None and where(one.x)}
    return ", ".join(f"{x:g}" for x in sorted(values))


def measure(
    asked: Measurement, done: Collection[Key] = (), doing: Callable[[str], None] = lambda _: None
) -> Iterator[Result]:
    """Results in the order they are measured: for each prompt a warm-up, then its rounds.

    Args:
        done: calls that are there already (`Result.key`); they are left out.
        doing: hears the method's name before each call that is kept.
    """
    for place, prompt in enumerate(asked.prompts):
        rounds = []
        for repeat in range(asked.repeats):
            turn = turned(asked.methods, place * asked.repeats + repeat)
            wanted = [(order, method) for order, method in enumerate(turn) if asked.applies(method, prompt)]
            rounds.append([one for one in wanted if _named(asked, prompt, one[1], repeat).key not in done])
        on_prompt = _OnPrompt(asked, prompt)
        on_prompt.warm_up([method for round_ in rounds for _, method in round_])
        for repeat, round_ in enumerate(rounds):
            for order, method in round_:
                doing(method.name)
                yield on_prompt.result(method, repeat, order)


def turned(methods: Sequence[Method], round_: int) -> list[Method]:
    """The order of a round: it starts one further each time, and every other round goes backwards."""
    start = round_ % len(methods)
    order = [*methods[start:], *methods[:start]]
    return order[::-1] if round_ % 2 else order


def _named(asked: Measurement, read: Read, method: Method, repeat: int) -> Result:
    """The result of a call, without what it came to."""
    prompt = read.prompt
    return Result(
        protocol=asked.protocol.name, method=method.name, group=method.group, settings=method.settings, x=method.x,
        x2=method.x2, workload=asked.workload.name, kind=prompt.kind, prompt_id=prompt.name, repeat=repeat,
    )  # fmt: skip


class _OnPrompt:
    """The methods on one prompt: what is known of each beside the clock, and the target's own texts."""

    def __init__(self, asked: Measurement, prompt: Read) -> None:
        self._asked, self._prompt = asked, prompt
        self._found: dict[int, dict[str, Any]] = {}
        self._references: dict[tuple[int, ...], list[int]] = {}

    def warm_up(self, methods: Sequence[Method]) -> None:
        """One call each that is not kept, and the records of those that have any; a failure is a result."""
        for method in {id(method): method for method in methods}.values():
            ids, settings = self._asked.inputs(method, self._prompt)
            short = settings.changed(max_new_tokens=min(self._asked.protocol.warm_up, settings.max_new_tokens))
            found: dict[str, Any] = {}
            try:
                call(self._asked.pair, method, ids, short)
                if self._asked.protocol.recorded and method.strategy is not None:
                    session = Session(self._asked.pair, method.strategy, ids, **settings.model_dump())
                    session.run()
                    found = recorded(session)
            except Exception as error:  # noqa: BLE001  # a method's failure is a result, whatever it raised
                found = {"failed": _sentence(error)}
            self._found[id(method)] = found

    def result(self, method: Method, repeat: int, order: int) -> Result:
        """One call, measured and compared with the target's own text."""
        ids, settings = self._asked.inputs(method, self._prompt)
        fields: dict[str, Any] = {
            "order": order, "prompt_tokens": len(ids), "max_new_tokens": settings.max_new_tokens,
            **self._found[id(method)],
        }  # fmt: skip
        if "failed" not in fields:
            try:
                done = call(self._asked.pair, method, ids, settings)
                fields |= done.figures | self._compared(ids, settings.max_new_tokens, done.token_ids)
            except Exception as error:  # noqa: BLE001  # as above
                fields["failed"] = _sentence(error)
        return _named(self._asked, self._prompt, method, repeat).model_copy(update=fields)

    def _compared(self, ids: tuple[int, ...], most: int, text: list[int]) -> dict[str, Any]:
        own = self._reference(ids)[:most]
        at = next((i for i, (a, b) in enumerate(zip(text, own, strict=False)) if a != b), min(len(text), len(own)))
        equal = text == own
        tie = None if equal or at >= min(len(text), len(own)) else _tie(self._asked.pair, ids, own, text[at], at)
        return {"equal": equal, "first_difference": None if equal else at, "tie": tie, "looping": loops(text)}

    def _reference(self, ids: tuple[int, ...]) -> list[int]:
        """The target's own greedy text, as long as any method's."""
        if ids not in self._references:
            inputs = [self._asked.inputs(one, self._prompt) for one in self._asked.methods]
            longest = max(settings.max_new_tokens for own, settings in inputs if own == ids)
            settings = inputs[0][1].changed(max_new_tokens=longest)
            made = generate(self._asked.pair, Autoregressive(), ids, **settings.model_dump())
            self._references[ids] = made.token_ids
        return self._references[ids]


def _tie(pair: ModelPair, ids: Sequence[int], own: Sequence[int], other: int, at: int) -> bool | None:
    """Whether the two choices lie within the tolerance of half precision; None in float32, where there is none."""
    bound = TOLERANCE.get(pair.target.dtype)
    if bound is None:
        return None
    before, processors = [*ids, *own[:at]], pair.rules.processors(pair.target.model, len(ids), len(own))
    logits = pair.fresh().target.extend(before)
    if processors is not None:
        logits = processors(logits[None], before)[0]
    return abs(float(logits[own[at]] - logits[other])) <= bound


def _sentence(error: Exception) -> str:
    first = str(error).strip().splitlines()
    text = first[0] if first else "it says nothing more"
    return text if isinstance(error, SpeclabError) else f"{type(error).__name__}: {text}"


def recorded(session: Session) -> dict[str, Any]:
    """The fields of a `Result` that only the records of a run tell."""
    routing = statistics(session.trace)
    return {
        "sources": source_rates(session.steps),
        "paths": attribution(session.steps),
        "bound": _bound(session.steps),
        "heads": routing.parts if routing else None,
    }


def _bound(steps: Sequence[Step]) -> Bound | None:
    """Over the iterations that the end of the text did not cut; None where no branch or no copy was drafted."""
    whole = [step for step in steps if step.bonus is not None]
    rates = source_rates(whole)
    branches = [rate for name, rate in rates.items() if name != SPINE]
    if not whole or SPINE not in rates or not branches:
        return None
    spine, branch = rates[SPINE], sum(branches[1:], branches[0])
    nodes = max(len(step.tree) for step in whole) - 1
    return Bound(
        iterations=len(whole),
        expected=spine_bound(whole, spine.share, branch.share),
        by_rate=spine_bound(whole, spine.rate, branch.rate),
        isotropic=best_isotropic(branch.share, nodes).expected_tokens,
        measured=sum(len(step.committed) for step in whole) / len(whole),
    )


def run_info(asked: Measurement) -> RunInfo:
    """What `run.json` says of a run that begins now."""
    protocol = asked.protocol
    return RunInfo(
        protocol=protocol.name,
        title=protocol.title,
        arguments=asked.arguments,
        command=asked.command,
        methods=tuple(dict.fromkeys(method.name for method in asked.methods)),
        baseline=protocol.baseline,
        x_name=protocol.x_name,
        x2_name=protocol.x2_name,
        pair=asked.pair.describe(),
        machine=machine(asked.pair.target.device),
        versions={
            "python": platform.python_version(),
            "speclab": speclab.__version__,
            **versions("torch", "transformers", "tokenizers", "safetensors", "numpy"),
        },
        threads=torch.get_num_threads(),
        started=datetime.now(UTC),
        notes=asked.notes,
    )


def open_run(asked: Measurement, folder: Path, *, resume: bool) -> tuple[RunInfo, tuple[Result, ...]]:
    """Makes the folder ready, and gives what it holds already.

    Raises:
        MeasurementError: it holds results and `resume` is not set, or they are of other arguments, or it cannot be
            written.
    """
    if not (folder / RUN).exists():
        if (folder / RESULTS).exists():
            raise MeasurementError(f"{folder} holds {RESULTS} without {RUN}: choose another folder.")
        run = run_info(asked)
        write_run(folder, run)
        return run, ()
    stored = read_results(folder)
    if not resume:
        raise MeasurementError(
            f"{folder} holds {len(stored.results)} results of {stored.run.protocol}: add --resume to go on, "
            "or choose another folder."
        )
    before, now = stored.run.arguments, asked.arguments
    for name in dict.fromkeys([*before, *now]):
        if before.get(name) != now.get(name):
            raise MeasurementError(
                f"{folder} was measured with other arguments ({name} was {before.get(name)!r} and is "
                f"{now.get(name)!r}): give the same, or choose another folder."
            )
    return stored.run, stored.results


def run(
    asked: Measurement,
    folder: Path,
    info: RunInfo,
    before: Sequence[Result] = (),
    doing: Callable[[str], None] = lambda _: None,
) -> Iterator[Result]:
    """Measures what is missing; each result is on the disk before it is handed out.

    Raises:
        MeasurementError: the disk is full; what is done is kept.
    """
    with Writer(folder) as writer:
        for result in measure(asked, {result.key for result in before}, doing):
            writer.add(result)
            yield result
    write_run(folder, info.model_copy(update={"ended": datetime.now(UTC)}))


def finish(folder: Path) -> Iterator[str]:
    """Writes parquet and report from the results of a folder; a sentence on each, or on why it could not be."""
    from speclab.bench.report import write_report

    makers: dict[str, Callable[[], Path]] = {
        "table": lambda: write_parquet(folder, read_results(folder).results),
        "report": lambda: write_report(folder),
    }
    for name, make in makers.items():
        try:
            yield f"{name}: {make()}"
        except MeasurementError as error:
            yield str(error)


NGRAM = 4
TAIL = 64
LONGEST_PERIOD = 24
PERIODIC_TAIL = 48


def repeated(tokens: Sequence[int], before: int = 1) -> list[bool]:
    """For every token whether the 4-gram that ends with it occurred at least `before` times earlier in `tokens`."""
    seen: Counter[tuple[int, ...]] = Counter()
    marks = [False] * len(tokens)
    for end in range(NGRAM, len(tokens) + 1):
        gram = tuple(tokens[end - NGRAM : end])
        marks[end - 1] = seen[gram] >= before
        seen[gram] += 1
    return marks


def loops(tokens: Sequence[int]) -> bool:
    """Whether a continuation loops: more than half of its last 64 tokens end a 4-gram that it held before.

    This counts exact loops of any period, loops that begin late, and near-loops that change a word each
    time. A continuation shorter than 64 tokens, cut short by the end-of-text token, does not loop.
    """
    return len(tokens) >= TAIL and sum(repeated(tokens)[-TAIL:]) > TAIL / 2


def periodic(tokens: Sequence[int]) -> bool:
    """A narrower count beside `loops`: the last 48 tokens repeat exactly, with a period of 24 or less."""
    tail = list(tokens[-PERIODIC_TAIL:])
    if len(tail) < PERIODIC_TAIL:
        return False
    return any(tail[period:] == tail[:-period] for period in range(1, LONGEST_PERIOD + 1))
