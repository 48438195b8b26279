"""Routing between two heads against each head alone and both together, by kind of prompt: counts, the same anywhere.

Beside them what routing goes by: each head's mean confidence, and the share of its nodes that the text followed. In a
mixed text a prompt of prose is decoded, then one of code is added and the text goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import mean

from pydantic import BaseModel, ConfigDict

from speclab.analysis.routing import Part, statistics
from speclab.drafters.base import Strategy
from speclab.drafters.chain import Autoregressive
from speclab.drafters.dual_draft import DualDraft
from speclab.engine.session import Session
from speclab.models.pair import ModelPair

Turns = tuple[str, ...]


class RoutingRow(BaseModel):
    """One kind of prompt; every figure is a mean over its prompts.

    `tokens_per_iteration`: committed tokens / verification passes, by way. `chosen`: share of the iterations in which
    routing by the mean took each head. `confidence`, `share`: of each head's trees, the mean of their mean confidence
    and of the share of nodes that the text followed. `equal`: prompts on which every way gave plain decoding's tokens.
    """

    model_config = ConfigDict(frozen=True)

    kind: str
    prompts: int
    equal: int
    tokens_per_iteration: dict[str, float]
    chosen: dict[str, float]
    confidence: dict[str, float]
    share: dict[str, float]


def ways(**settings: int) -> dict[str, DualDraft]:
    """Each head alone, routing by the paper's statistic and by ours, both trees as one; under one budget."""
    return {
        "first": DualDraft(mode="first", **settings),
        "second": DualDraft(mode="second", **settings),
        "route": DualDraft(**settings),
        "route, recent": DualDraft(confidence="recent", **settings),
        "merge": DualDraft(mode="merge", **settings),
    }


def mixed(prompts: Mapping[str, Sequence[str]]) -> list[Turns]:
    """Texts that change from prose to code midway."""
    return [(prose, f"\n\n{code}") for prose, code in zip(prompts["prose"], prompts["code"], strict=False)]


def routing(
    pair: ModelPair,
    texts: Mapping[str, Sequence[Turns]],
    contenders: Mapping[str, Strategy],
    *,
    max_new_tokens: int = 64,
    done: Callable[[], None] = lambda: None,
) -> Iterator[RoutingRow]:
    """A row for each kind, when it is decoded: greedily, so many new tokens after every turn."""
    for kind, some in texts.items():
        rates: dict[str, list[float]] = {name: [] for name in contenders}
        parts: list[Part] = []
        equal = 0
        for turns in some:
            plain = [session.token_ids for session in _decoded(pair, Autoregressive(), turns, max_new_tokens)]
            same = True
            for name, strategy in contenders.items():
                sessions = _decoded(pair, strategy, turns, max_new_tokens)
                same &= [session.token_ids for session in sessions] == plain
                counts = [session.metrics.counts for session in sessions]
                rates[name].append(sum(c.committed for c in counts) / sum(c.iterations for c in counts))
                if name == "route":
                    found = [statistics(session.trace) for session in sessions]
                    parts += [part for one in found if one is not None for part in one.parts]
                done()
            equal += same
        yield _row(kind, len(some), equal, rates, parts)


def _decoded(pair: ModelPair, strategy: Strategy, turns: Turns, max_new_tokens: int) -> list[Session]:
    """A session for each turn, on all of the text before it."""
    assert pair.tokenizer is not None
    sessions: list[Session] = []
    text: list[int] = []
    for turn in turns:
        text += pair.tokenizer.encode(turn, add_special_tokens=False) if sessions else pair.encode(turn)
        session = Session(pair, strategy, text, max_new_tokens=max_new_tokens)
        session.run()
        text += session.token_ids
        sessions.append(session)
    return sessions


def _row(kind: str, prompts: int, equal: int, rates: Mapping[str, list[float]], parts: Sequence[Part]) -> RoutingRow:
    names = list(dict.fromkeys(part.name for part in parts))
    of = {name: [part for part in parts if part.name == name] for name in names}
    every = sum(part.chosen for part in parts)
    return RoutingRow(
        kind=kind,
        prompts=prompts,
        equal=equal,
        tokens_per_iteration={name: mean(own) for name, own in rates.items()},
        chosen={name: sum(part.chosen for part in own) / every for name, own in of.items()},
        confidence={name: mean(part.confidence for part in own) for name, own in of.items()},
        share={name: mean(part.share for part in own) for name, own in of.items()},
    )
