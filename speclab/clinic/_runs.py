"""What the clinic examines: the trace of a run, the healthy pair that should have decoded it, and
what was accepted."""

from __future__ import annotations

from speclab.clinic._faults import BrokenPair
from speclab.engine.session import Session
from speclab.errors import SettingsError
from speclab.pair import ModelPair, checked_pair
from speclab.trace.metrics import survival
from speclab.trace.records import Trace, trace_of


def checked(run: Trace | Session, pair: ModelPair | None) -> tuple[Trace, ModelPair | None]:
    """The trace of a run, and the healthy pair to compare it with.

    Raises:
        SettingsError: `run` is not a run, nothing is decoded, or `pair` is not a pair or has another
            vocabulary.
    """
    trace = trace_of(run)
    if isinstance(run, Session) and pair is None:
        pair = run.pair
    if not trace.steps:
        raise SettingsError(
            "No iteration is decoded yet: Step or Run, then check what was decoded."
        )
    if pair is None:
        return trace, None
    pair = checked_pair(pair)
    if isinstance(pair, BrokenPair) and pair.healthy is not None:
        pair = pair.healthy
    if not trace.models.get("text", True):
        return trace, pair
    texts = (token for step in trace.steps for token in step.texts)
    most = max((*trace.prompt_ids, *trace.token_ids, *texts))
    if most >= pair.vocab_size:
        raise SettingsError(
            f"Token {most} is outside the {pair.vocab_size} of {pair.name}: give the pair of this "
            "run."
        )
    return trace, pair


def acceptance(trace: Trace) -> dict[int, tuple[int, int]]:
    """By depth: accepted nodes, and passes in which the target looked at that depth. Their ratio is the
    hazard, which does not depend on how many tokens are drafted."""
    rows = survival([step.counts for step in trace.steps])
    return {row.depth: (row.accepted, row.looked) for row in rows}
