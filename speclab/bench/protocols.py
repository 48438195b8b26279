"""What is measured against what: the tables and figures of the papers, and our own, as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from speclab.bench.contenders import Contender
from speclab.errors import MeasurementError

Swept = Literal["a setting", "new tokens", "prompt tokens"]


@dataclass(frozen=True, slots=True)
class Protocol:
    """A measurement: its contenders decode the same prompts, in turn, in one run.

    Args:
        name: what `--protocol` calls it.
        title: what it shows.
        source: the table or figure that it stands for; "ours" where no paper has one.
        contenders: in the order of the table.
        baseline: the contender that speedups are ratios to.
        swept: what `x` of a contender is; then it sets that for the call.
        x_name, x2_name: what the swept values are called.
        workload: prompts by name, where none are given.
        limit: prompts a kind, where no number is given.
        max_new_tokens: T, where none is given; a shorter context cuts it.
        limits: T by the name of a workload that has one of its own.
        prompt_tokens: L_max, the most tokens of a prompt; None takes all of it.
        recorded: every strategy of ours decodes each prompt once more with records, off the clock, for what only
            they tell: sources, paths, bounds, heads.
        stop_at_eos: an end-of-text token ends the text; else T tokens are decoded whatever they are.
    """

    name: str
    title: str
    source: str
    contenders: tuple[Contender, ...]
    baseline: str = "plain"
    swept: Swept = "a setting"
    x_name: str | None = None
    x2_name: str | None = None
    workload: str = "shipped"
    limit: int = 3
    max_new_tokens: int = 128
    limits: Mapping[str, int] = field(default_factory=dict)
    prompt_tokens: int | None = None
    recorded: bool = False
    stop_at_eos: bool = True


@cache
def protocols() -> dict[str, Protocol]:
    """Every protocol by name."""
    from speclab.bench import protocols_cost, protocols_dynatree, protocols_goose, protocols_ours

    rooms: Iterable[tuple[Protocol, ...]] = (
        protocols_ours.PROTOCOLS,
        protocols_cost.PROTOCOLS,
        protocols_dynatree.PROTOCOLS,
        protocols_goose.PROTOCOLS,
    )
    return {protocol.name: protocol for room in rooms for protocol in room}


def find(name: str) -> Protocol:
    """The protocol of this name.

    Raises:
        MeasurementError: there is none; the message lists what there is.
    """
    known = protocols()
    if name not in known:
        raise MeasurementError(f"There is no protocol {name!r}: choose one of {', '.join(known)}.")
    return known[name]
