"""Tokens per iteration by kind of prompt: counts, the same on any machine, so nothing is timed.

`speclab bench yields`: the strategies without a draft model. `speclab bench routing`: two heads, alone, routed and
merged, with what routing goes by: each head's mean confidence, and the share of its nodes that the text followed. In a
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
from speclab.drafters.goose import Goose
from speclab.drafters.isotropic import IsotropicTree
from speclab.drafters.prompt_lookup import PromptLookup
from speclab.drafters.token_recycling import TokenRecycling
from speclab.engine.session import Session
from speclab.models.pair import ModelPair

Turns = tuple[str | Sequence[int], ...]
"""Pieces of a text: each is added to what was decoded after the one before."""
TRAINING_FREE: dict[str, Strategy] = {
    "Goose": Goose(node_budget=60),
    "IsotropicTree": IsotropicTree(node_budget=60),
    "TokenRecycling": TokenRecycling(node_budget=60),
    "PromptLookup": PromptLookup(),
}
ROUTED = "route"
"""The strategy whose choices `CountRow.chosen` and its neighbours tell of."""


class CountRow(BaseModel):
    """One kind of prompt; every figure is a mean over its prompts.

    `tokens_per_iteration`: committed tokens / verification passes, by strategy. `equal`: prompts on which every
    strategy gave plain decoding's tokens. Of routing by the mean: `chosen`: the share of iterations in which it took
    each head; `confidence`, `share`: of each head's trees, the mean of their mean confidence and of the share of nodes
    that the text followed.
    """

    model_config = ConfigDict(frozen=True)

    kind: str
    prompts: int
    equal: int
    tokens_per_iteration: dict[str, float]
    chosen: dict[str, float] = {}
    confidence: dict[str, float] = {}
    share: dict[str, float] = {}


def routing_strategies(**settings: int) -> dict[str, Strategy]:
    """Each head alone, routing by the paper's statistic and by recent confidence, merged trees; under one budget."""
    return {
        "first": DualDraft(mode="first", **settings),
        "second": DualDraft(mode="second", **settings),
        ROUTED: DualDraft(**settings),
        "route, recent": DualDraft(confidence="recent", **settings),
        "merge": DualDraft(mode="merge", **settings),
    }


def mixed(prompts: Mapping[str, Sequence[str]]) -> list[Turns]:
    """Texts that change from prose to code midway."""
    return [(prose, f"\n\n{code}") for prose, code in zip(prompts["prose"], prompts["code"], strict=False)]


def count(
    pair: ModelPair,
    texts: Mapping[str, Sequence[Turns]],
    strategies: Mapping[str, Strategy],
    *,
    max_new_tokens: int = 64,
    stop_at_eos: bool = True,
    done: Callable[[], None] = lambda: None,
) -> Iterator[CountRow]:
    """A row for each kind, when it is decoded: greedily, `max_new_tokens` after every turn, tables cold.

    Args:
        pair: its target decodes.
        texts: by kind.
        strategies: by the name of their column.
        max_new_tokens: T after each turn.
        stop_at_eos: an end-of-text token ends a turn.
        done: called after each text of each strategy.
    """
    for kind, some in texts.items():
        rates: dict[str, list[float]] = {name: [] for name in strategies}
        parts: list[Part] = []
        equal = 0
        for turns in some:
            plain, same = _decoded(pair, Autoregressive(), turns, max_new_tokens, stop_at_eos), True
            for name, strategy in strategies.items():
                sessions = _decoded(pair, strategy, turns, max_new_tokens, stop_at_eos)
                same &= [one.token_ids for one in sessions] == [one.token_ids for one in plain]
                counts = [session.metrics.counts for session in sessions]
                rates[name].append(sum(c.committed for c in counts) / sum(c.iterations for c in counts))
                if name == ROUTED:
                    parts += [part for one in sessions if (known := statistics(one.trace)) for part in known.parts]
                done()
            equal += same
        own = {name: [part for part in parts if part.name == name] for name in dict.fromkeys(p.name for p in parts)}
        yield CountRow(
            kind=kind,
            prompts=len(some),
            equal=equal,
            tokens_per_iteration={name: mean(each) for name, each in rates.items()},
            chosen={name: sum(p.chosen for p in each) / sum(p.chosen for p in parts) for name, each in own.items()},
            confidence={name: mean(part.confidence for part in each) for name, each in own.items()},
            share={name: mean(part.share for part in each) for name, each in own.items()},
        )


def _decoded(
    pair: ModelPair, strategy: Strategy, turns: Turns, max_new_tokens: int, stop_at_eos: bool
) -> list[Session]:
    """A session for each turn, on all of the text before it."""
    sessions: list[Session] = []
    text: list[int] = []
    for turn in turns:
        if not isinstance(turn, str):
            text += turn
        elif sessions and pair.tokenizer is not None:
            text += pair.tokenizer.encode(turn, add_special_tokens=False)
        else:
            text += pair.encode(turn)
        session = Session(pair, strategy, text, max_new_tokens=max_new_tokens, stop_at_eos=stop_at_eos)
        session.run()
        text += session.token_ids
        sessions.append(session)
    return sessions
