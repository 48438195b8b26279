"""What a run is asked for: a protocol on prompts, cut to the models' context, and what the cuts were."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from speclab.bench.contenders import Contender
from speclab.bench.protocols import Protocol
from speclab.bench.workloads import Task, Workload
from speclab.errors import MeasurementError
from speclab.models.pair import ModelPair
from speclab.settings import SessionSettings

LEAST_SHARE = 4
"""A prompt may take a quarter of the context, whatever number of new tokens was asked for."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A task as the models read it."""

    task: Task
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """All that decides what is measured.

    `notes`: sentences on what was cut or left out.
    """

    protocol: Protocol
    pair: ModelPair
    workload: Workload
    prompts: tuple[Prompt, ...]
    contenders: tuple[Contender, ...]
    max_new_tokens: int
    repeats: int
    notes: tuple[str, ...]
    arguments: dict[str, Any]

    def call(self, contender: Contender, prompt: Prompt) -> tuple[tuple[int, ...], SessionSettings]:
        """The ids of the prompt and the settings of this contender's call on it."""
        swept = self.protocol.swept
        ids, new = prompt.ids, self.max_new_tokens
        if contender.x is not None and swept == "prompt tokens":
            ids = ids[: int(contender.x)]
        if contender.x is not None and swept == "new tokens":
            new = int(contender.x)
        return ids, SessionSettings(max_new_tokens=new, stop_at_eos=self.protocol.stop_at_eos)

    def takes(self, contender: Contender, prompt: Prompt) -> bool:
        """Whether the prompt is long enough for this contender's swept length."""
        return self.protocol.swept != "prompt tokens" or contender.x is None or len(prompt.ids) >= contender.x


def ask(
    protocol: Protocol,
    pair: ModelPair,
    workload: Workload,
    *,
    max_new_tokens: int | None = None,
    repeats: int = 3,
    arguments: dict[str, Any] | None = None,
) -> Asked:
    """Cuts prompts and lengths to the models' context.

    New tokens come first; but prompts keep a quarter of the context, and then new tokens get what is left.

    Args:
        protocol: what is measured.
        pair: the models.
        workload: prompts, as many as are wanted.
        max_new_tokens: T; by default the protocol's for this workload.
        repeats: rounds that are kept.
        arguments: what `RunInfo.arguments` holds beside the protocol, the prompts and the lengths.

    Raises:
        MeasurementError: nothing is left to measure.
        PromptError: the pair has no tokenizer.
    """
    wanted = max_new_tokens or protocol.limits.get(workload.name, protocol.max_new_tokens)
    prompts, notes = _prompts(pair, workload, protocol.prompt_tokens, wanted)
    new = wanted if pair.context is None else min(wanted, pair.context - max(len(prompt.ids) for prompt in prompts))
    if new < wanted:
        notes.append(f"T is {new} instead of {wanted}: {pair.name} reads {pair.context} tokens, prompt included.")
    contenders = _contenders(protocol, new, prompts, notes)
    known = {
        "protocol": protocol.name, "workload": workload.name, "prompts": workload.digest, "pair": pair.name,
        "max_new_tokens": wanted, "repeats": repeats, **(arguments or {}),
    }  # fmt: skip
    every = (*workload.notes, *notes)
    return Asked(protocol, pair, workload, tuple(prompts), contenders, new, repeats, every, known)


def _prompts(pair: ModelPair, workload: Workload, most: int | None, new: int) -> tuple[list[Prompt], list[str]]:
    prompts = [Prompt(task, tuple(pair.encode(task.text))) for task in workload.tasks]
    bounds = [] if most is None else [most]
    if pair.context is not None:
        bounds.append(max(pair.context - new, pair.context // LEAST_SHARE))
    bound = min(bounds, default=None)
    cut = [prompt for prompt in prompts if bound is not None and len(prompt.ids) > bound]
    notes = [f"{len(cut)} of {len(prompts)} prompts are cut to their first {bound} tokens."] if cut else []
    return [replace(prompt, ids=prompt.ids[:bound]) for prompt in prompts], notes


def _contenders(protocol: Protocol, new: int, prompts: Sequence[Prompt], notes: list[str]) -> tuple[Contender, ...]:
    """Those whose swept length can be had: more new tokens than fit are cut, a longer prompt than any is left out."""
    if protocol.swept == "a setting":
        return protocol.contenders
    every = protocol.contenders
    if protocol.swept == "new tokens":
        beyond = _listed(every, lambda x: x > new)
        if beyond:
            notes.append(
                f"{protocol.x_name} of {beyond} cut to {new}, the most that context and --max-new-tokens allow."
            )
        cut = [one.at(min(one.x, new)) if one.x is not None else one for one in every]
        return tuple({(one.name, one.x): one for one in cut}.values())
    lengths = [len(prompt.ids) for prompt in prompts]
    beyond = _listed(every, lambda x: x > max(lengths))
    if beyond:
        notes.append(f"{protocol.x_name} of {beyond} left out: the longest prompt has {max(lengths)}.")
    kept = tuple(one for one in every if one.x is None or one.x <= max(lengths))
    if not any(one.x is not None for one in kept):
        raise MeasurementError(f"No prompt is long enough for {protocol.name}: name a workload of longer ones.")
    short = _listed(kept, lambda x: x > min(lengths))
    if short:
        notes.append(f"{protocol.x_name} of {short}: without the prompts that are shorter.")
    return kept


def _listed(contenders: Sequence[Contender], where: Callable[[float], bool]) -> str:
    values = {one.x for one in contenders if one.x is not None and where(one.x)}
    return ", ".join(f"{x:g}" for x in sorted(values))


def same(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    """The first argument in which two runs differ, as a clause; None where they do not."""
    for name in dict.fromkeys([*before, *now]):
        if before.get(name) != now.get(name):
            return f"{name} was {before.get(name)!r} and is {now.get(name)!r}"
    return None


def keys(asked: Asked) -> Sequence[tuple[Prompt, Contender, int]]:
    """Every call that is to be kept."""
    return [
        (prompt, contender, repeat)
        for prompt in asked.prompts
        for repeat in range(asked.repeats)
        for contender in asked.contenders
        if asked.takes(contender, prompt)
    ]
