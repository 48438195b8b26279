"""What only the records of a run tell: where accepted tokens came from, what theory expects, which head was taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from speclab.analysis.attribution import attribution, source_rates, spine_bound
from speclab.analysis.routing import statistics
from speclab.bench.result import Bound, Head, Paths, SourceCount
from speclab.drafters.base import Strategy
from speclab.engine.session import Session
from speclab.models.pair import ModelPair
from speclab.settings import SessionSettings
from speclab.theory import best_isotropic
from speclab.trace.records import Step

SPINE = "context"
"""The source of copied tokens."""


def recorded(
    pair: ModelPair, strategy: Strategy, prompt_ids: Sequence[int], settings: SessionSettings
) -> dict[str, Any]:
    """Decodes with records, off the clock; the fields of a `Result` that come from them.

    Raises:
        SpeclabError: the strategy cannot decode this.
    """
    session = Session(pair, strategy, prompt_ids, **settings.model_dump())
    session.run()
    steps = session.steps
    sources = {name: SourceCount(**asdict(rate)) for name, rate in source_rates(steps).items()}
    routing = statistics(session.trace)
    return {
        "sources": sources,
        "paths": Paths(**asdict(attribution(steps))),
        "bound": _bound(steps),
        "heads": tuple(Head(**asdict(part)) for part in routing.parts) if routing else None,
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
