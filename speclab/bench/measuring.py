"""Every contender on every prompt, in rounds whose order turns; each call becomes a `Result` as soon as it is done."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from speclab.bench.asked import Asked, Prompt
from speclab.bench.calls import call
from speclab.bench.contenders import Contender
from speclab.bench.recorded import recorded
from speclab.bench.result import Result
from speclab.drafters.chain import Autoregressive
from speclab.engine.exactness import TOLERANCE
from speclab.engine.generate import generate
from speclab.errors import SpeclabError
from speclab.models.pair import ModelPair
from speclab.training.looping import loops

WARM_UP = 64
"""New tokens at most of the call before a contender's first round on a prompt."""

Key = tuple[str, float | None, float | None, str, str, str, int]


def measured(
    asked: Asked, done: Collection[Key] = (), doing: Callable[[str], None] = lambda _: None
) -> Iterator[Result]:
    """Results in the order they are measured: for each prompt a warm-up, then its rounds.

    Args:
        asked: what to measure.
        done: calls that are there already (`Result.key`); they are left out.
        doing: hears the contender's name before each call that is kept.
    """
    for place, prompt in enumerate(asked.prompts):
        rounds = [list(_missing(asked, place, repeat, done)) for repeat in range(asked.repeats)]
        wanted = {id(contender): contender for round_ in rounds for _, contender in round_}
        lane = _Lane(asked, prompt)
        lane.warm_up(wanted.values())
        for repeat, round_ in enumerate(rounds):
            for order, contender in round_:
                doing(contender.name)
                yield lane.result(contender, repeat, order)


def turned(contenders: Sequence[Contender], round_: int) -> list[Contender]:
    """The order of a round: it starts one further each time, and every other round goes backwards."""
    start = round_ % len(contenders)
    order = [*contenders[start:], *contenders[:start]]
    return order[::-1] if round_ % 2 else order


def _missing(asked: Asked, place: int, repeat: int, done: Collection[Key]) -> Iterator[tuple[int, Contender]]:
    prompt = asked.prompts[place]
    for order, contender in enumerate(turned(asked.contenders, place * asked.repeats + repeat)):
        if asked.takes(contender, prompt) and _named(asked, prompt, contender, repeat).key not in done:
            yield order, contender


def _named(asked: Asked, prompt: Prompt, contender: Contender, repeat: int) -> Result:
    """A result without figures."""
    return Result(
        protocol=asked.protocol.name,
        contender=contender.name,
        group=contender.group,
        settings=contender.settings,
        x=contender.x,
        x2=contender.x2,
        workload=asked.workload.name,
        kind=prompt.task.kind,
        prompt_id=prompt.task.id,
        repeat=repeat,
    )


class _Lane:
    """One prompt: its reference texts, what a warm-up found out, its results."""

    def __init__(self, asked: Asked, prompt: Prompt) -> None:
        self._asked, self._prompt = asked, prompt
        self._references: dict[tuple[int, ...], list[int]] = {}
        self._found: dict[int, dict[str, Any]] = {}
        """Fields that are the same in every round, by contender; `failed` among them."""

    def warm_up(self, contenders: Collection[Contender]) -> None:
        """A short call of each; those of ours once more with records, if the protocol asks for them."""
        for contender in contenders:
            ids, settings = self._asked.call(contender, self._prompt)
            short = settings.changed(max_new_tokens=min(WARM_UP, settings.max_new_tokens))
            try:
                call(self._asked.pair, contender, ids, short)
                found: dict[str, Any] = {}
                if self._asked.protocol.recorded and contender.strategy is not None:
                    found = recorded(self._asked.pair, contender.strategy, ids, settings)
            except Exception as error:  # noqa: BLE001  # a contender's failure is a result, whatever it raised
                found = {"failed": _sentence(error)}
            self._found[id(contender)] = found

    def result(self, contender: Contender, repeat: int, order: int) -> Result:
        """One call, measured and compared with the target's own text."""
        ids, settings = self._asked.call(contender, self._prompt)
        fields: dict[str, Any] = {
            "place": order, "prompt_tokens": len(ids), "max_new_tokens": settings.max_new_tokens,
            **self._found[id(contender)],
        }  # fmt: skip
        if "failed" not in fields:
            try:
                done = call(self._asked.pair, contender, ids, settings)
                fields |= done.figures | self._compared(ids, settings.max_new_tokens, done.token_ids)
            except Exception as error:  # noqa: BLE001  # as above
                fields["failed"] = _sentence(error)
        return _named(self._asked, self._prompt, contender, repeat).model_copy(update=fields)

    def _compared(self, ids: tuple[int, ...], most: int, text: list[int]) -> dict[str, Any]:
        own = self._reference(ids)[:most]
        at = next((i for i, (a, b) in enumerate(zip(text, own, strict=False)) if a != b), min(len(text), len(own)))
        equal = text == own
        tie = None if equal or at >= min(len(text), len(own)) else _tie(self._asked.pair, ids, own, text[at], at)
        return {"equal": equal, "first_difference": None if equal else at, "tie": tie, "looping": loops(text)}

    def _reference(self, ids: tuple[int, ...]) -> list[int]:
        """The target's own greedy text, as long as any contender's."""
        if ids not in self._references:
            takers = [self._asked.call(one, self._prompt) for one in self._asked.contenders]
            longest = max(settings.max_new_tokens for own, settings in takers if own == ids)
            settings = takers[0][1].changed(max_new_tokens=longest)
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
