"""`generate`: the decoding loop at full speed, without records."""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from speclab.drafters import cost
from speclab.drafters.base import Strategy, checked
from speclab.engine.decode import Decoding, iterate, start
from speclab.engine.exactness import Checker
from speclab.models.pair import ModelPair, checked_pair
from speclab.prompts import PromptInput
from speclab.settings import SessionSettings
from speclab.trace.metrics import Counts, Metrics


@dataclass(frozen=True, slots=True)
class Generation:
    """What was generated: ids without the prompt, their text, the figures, and why it ended."""

    token_ids: list[int]
    text: str
    metrics: Metrics
    finished: str


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during `generate`; `result` holds what was decoded until then."""

    def __init__(self, result: Generation) -> None:
        super().__init__(f"interrupted after {len(result.token_ids)} tokens; they are in .result")
        self.result = result


def generate(pair: ModelPair, strategy: Strategy, prompt: PromptInput, **settings: Any) -> Generation:
    """Decodes `prompt` (text, token ids or messages) with `strategy`; settings are those of a `Session`.

    Raises:
        SpeclabError: the prompt, a setting or the pair does not fit; the message names the way out.
        Interrupted: Ctrl-C; what was decoded is in its `result`.
    """
    chosen = SessionSettings(**settings)
    cost.prepare(checked(strategy), checked_pair(pair))
    began = perf_counter()
    own = pair.fresh()
    decoding = start(own, strategy, pair.encode(prompt), chosen)
    prefill = Metrics(Counts(), perf_counter() - began, own.target.calls)
    done = decoding.snapshot(), Counts()  # of whole iterations: one assignment, so that tokens and figures agree
    try:
        checker = Checker(decoding) if chosen.check else None
        if checker is not None:
            checker.compare(decoding.prompt_length)
        while not decoding.finished:
            iteration = iterate(decoding)
            if checker is not None:
                checker.compare(done[0].tokens, iteration.rule)
            done = decoding.snapshot(), done[1] + iteration.counts
        return _result(decoding, replace(prefill, counts=done[1]), decoding.finished)
    except KeyboardInterrupt:
        decoding.restore(done[0])
        raise Interrupted(_result(decoding, replace(prefill, counts=done[1]), "interrupted")) from None


def _result(decoding: Decoding, metrics: Metrics, finished: str) -> Generation:
    ids = decoding.tokens[decoding.prompt_length :]
    return Generation(ids, decoding.pair.decode(ids), metrics, finished)
