"""A measurement: what is asked for, every method on every prompt in turn, and the folder that keeps it.

Rounds on a prompt follow a warm-up, and their order turns; each call becomes a `Result` as soon as it is done.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

import speclab
from speclab.bench.call import call
from speclab.bench.protocol import Method, Protocol
from speclab.bench.result import (
    RESULTS,
    RUN,
    Key,
    Result,
    RunInfo,
    Writer,
    read_results,
    write_run,
)
from speclab.bench.workloads import Task, Workload
from speclab.drafters.chain import Autoregressive
from speclab.engine.exactness import TOLERANCE
from speclab.engine.generate import generate
from speclab.errors import MeasurementError, SpeclabError
from speclab.host import machine, versions
from speclab.models.pair import ModelPair
from speclab.prompts import as_messages
from speclab.settings import SessionSettings

MIN_PROMPT_SHARE = 4
"""A prompt may take a quarter of the context, whatever number of new tokens was asked for."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A task as the models read it."""

    task: Task
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Measurement:
    """All that decides what is measured: a protocol on prompts, cut to the models' context.

    `notes`: sentences on what was cut or left out.
    """

    protocol: Protocol
    pair: ModelPair
    workload: Workload
    prompts: tuple[Prompt, ...]
    max_new_tokens: int
    repeats: int
    notes: tuple[str, ...]
    arguments: dict[str, Any]
    command: str = ""
    """What measures the same again, less the folder; "" where no command did."""

    @property
    def settings(self) -> SessionSettings:
        """Of every call."""
        return SessionSettings(max_new_tokens=self.max_new_tokens, stop_at_eos=self.protocol.stop_at_eos)

    @property
    def calls(self) -> int:
        """Calls that are to be kept."""
        return self.repeats * len(self.prompts) * len(self.protocol.methods)


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
        PromptError: the pair has no tokenizer.
    """
    wanted = max_new_tokens or protocol.max_new_tokens
    prompts, notes = _prompts(pair, workload, protocol.prompt_tokens, wanted)
    new = wanted if pair.context is None else min(wanted, pair.context - max(len(prompt.ids) for prompt in prompts))
    if new < wanted:
        notes.append(f"T is {new} instead of {wanted}: {pair.name} reads {pair.context} tokens, prompt included.")
    known = {
        "protocol": protocol.name, "workload": workload.name, "prompts": workload.digest, "pair": pair.name,
        "max_new_tokens": wanted, "repeats": repeats, **(arguments or {}),
    }  # fmt: skip
    every = (*workload.notes, *notes)
    return Measurement(protocol, pair, workload, tuple(prompts), new, repeats, every, known)


def _prompts(pair: ModelPair, workload: Workload, most: int | None, new: int) -> tuple[list[Prompt], list[str]]:
    chat = workload.chat and pair.chats
    texts = [(task, as_messages(task.text) if chat else task.text) for task in workload.tasks]
    prompts = [Prompt(task, tuple(pair.encode(text))) for task, text in texts]
    bounds = [] if most is None else [most]
    if pair.context is not None:
        bounds.append(max(pair.context - new, pair.context // MIN_PROMPT_SHARE))
    bound = min(bounds, default=None)
    cut = [prompt for prompt in prompts if bound is not None and len(prompt.ids) > bound]
    notes = [f"{len(cut)} of {len(prompts)} prompts are cut to their first {bound} tokens."] if cut else []
    return [replace(prompt, ids=prompt.ids[:bound]) for prompt in prompts], notes


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
            turn = enumerate(turned(asked.protocol.methods, place * asked.repeats + repeat))
            rounds.append([one for one in turn if _named(asked, prompt, one[1], repeat).key not in done])
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


def _named(asked: Measurement, prompt: Prompt, method: Method, repeat: int) -> Result:
    """The result of a call, without what it came to."""
    task = prompt.task
    return Result(
        protocol=asked.protocol.name, method=method.name, group=method.group, settings=method.settings,
        workload=asked.workload.name, kind=task.kind, prompt_id=task.id, repeat=repeat,
    )  # fmt: skip


class _OnPrompt:
    """The methods on one prompt: why those failed that did, and the target's own text."""

    def __init__(self, asked: Measurement, prompt: Prompt) -> None:
        self._asked, self._prompt = asked, prompt
        self._failed: dict[str, str] = {}

    def warm_up(self, methods: Iterable[Method]) -> None:
        """One call each that is not kept; a failure is a result."""
        asked = self._asked
        short = asked.settings.changed(max_new_tokens=min(asked.protocol.warm_up, asked.max_new_tokens))
        for method in {method.name: method for method in methods}.values():
            try:
                call(asked.pair, method, self._prompt.ids, short)
            except Exception as error:  # noqa: BLE001  # a method's failure is a result, whatever it raised
                self._failed[method.name] = _sentence(error)

    def result(self, method: Method, repeat: int, order: int) -> Result:
        """One call, measured and compared with the target's own text."""
        ids, settings = self._prompt.ids, self._asked.settings
        fields: dict[str, Any] = {
            "order": order, "prompt_tokens": len(ids), "max_new_tokens": settings.max_new_tokens,
            "failed": self._failed.get(method.name),
        }  # fmt: skip
        if fields["failed"] is None:
            try:
                done = call(self._asked.pair, method, ids, settings)
                fields |= done.figures | self._compared(done.token_ids)
            except Exception as error:  # noqa: BLE001  # as above
                fields["failed"] = _sentence(error)
        return _named(self._asked, self._prompt, method, repeat).model_copy(update=fields)

    def _compared(self, text: list[int]) -> dict[str, Any]:
        own, shorter = self._reference, min(len(text), len(self._reference))
        at = next((i for i in range(shorter) if text[i] != own[i]), shorter)
        equal = text == own
        tie = None if at == shorter else _tie(self._asked.pair, self._prompt.ids, own, text[at], at)
        return {"equal": equal, "first_difference": None if equal else at, "tie": tie, "looping": loops(text)}

    @cached_property
    def _reference(self) -> list[int]:
        """The target's own greedy text."""
        settings = self._asked.settings.model_dump()
        return generate(self._asked.pair, Autoregressive(), self._prompt.ids, **settings).token_ids


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


def run_info(asked: Measurement) -> RunInfo:
    """What `run.json` says of a run that begins now."""
    protocol = asked.protocol
    return RunInfo(
        protocol=protocol.name,
        title=protocol.title,
        arguments=asked.arguments,
        command=asked.command,
        methods=tuple(method.name for method in protocol.methods),
        baseline=protocol.baseline,
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
