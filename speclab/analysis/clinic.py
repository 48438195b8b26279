"""Clinic: what is wrong with a run, from its records and from its models run plainly on the same text.

    session = speclab.Session(clinic.broken(pair, "sibling visible"), strategy, prompt)
    session.run()
    for finding in clinic.check(session):
        print(finding)

A check takes records, so it examines a run of speclab, a run with an injected fault, and a run that another decoder
wrote down. It never asks whether a fault was injected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import TYPE_CHECKING, Any

import pandas as pd

from speclab.analysis.detectors import DETECTORS, Before
from speclab.analysis.faults import FAULTS, BrokenPair, Fault, broken
from speclab.analysis.oracle import Oracle, explain_answers, explain_draft
from speclab.engine.session import Session
from speclab.errors import SettingsError, named
from speclab.models.pair import ModelPair
from speclab.trace.records import Trace

if TYPE_CHECKING:
    from speclab.drafters.base import Strategy
    from speclab.prompts import PromptInput

__all__ = ["FAULTS", "Fault", "Finding", "broken", "check", "matrix"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong at `node` (None: the whole pass) of `iteration`, counted from 0.

    `kind`: order, mask, prefix, slot, path, choice, commit, text or end, from the record alone; choice, position,
    window, norm or answer, by the models. `fault`: the name in `FAULTS` whose signature it is; empty for any other.
    """

    iteration: int
    node: int | None
    kind: str
    sentence: str
    fault: str = ""

    def __str__(self) -> str:
        return f"iteration {self.iteration + 1}, {self.kind}: {self.sentence}"


def check(run: Trace | Session, pair: ModelPair | None = None) -> tuple[Finding, ...]:
    """What is wrong with a run, the first wrong iteration first; empty if nothing is.

    One fault may spoil all that follows: findings are of the kinds of the first wrong iteration, and answers are
    compared up to it.

    Args:
        pair: the models that should have decoded it; by default a session's own. Without, a trace's record alone tells.

    Raises:
        SettingsError: `run` is not a run, or nothing is decoded yet.
    """
    if isinstance(run, Session) and pair is None:
        pair = run.pair
    trace = run.trace if isinstance(run, Session) else run
    if not isinstance(trace, Trace):
        raise SettingsError(f"Expected a session or a trace, got {named(run)}.")
    if not trace.steps:
        raise SettingsError("No iteration is decoded yet: Step or Run, then check what was decoded.")
    if isinstance(pair, BrokenPair) and pair.healthy is not None:
        pair = pair.healthy
    findings = list(_on_records(trace, pair))
    if findings:
        kinds = {finding.kind for finding in findings if finding.iteration == findings[0].iteration}
        findings = [finding for finding in findings if finding.kind in kinds]
    if pair is None:
        return tuple(findings)
    oracle, steps = Oracle(trace, pair), trace.steps[: findings[0].iteration if findings else None]
    by_draft = [Finding(iteration, *explanation) for iteration, explanation in explain_draft(oracle, steps)]
    explained = ((step, explanation) for step in steps for explanation in explain_answers(oracle, step))
    answers = [Finding(step.index, *explanation) for step, explanation in islice(explained, 1)]
    return (*answers, *by_draft, *findings)


def _on_records(trace: Trace, pair: ModelPair | None) -> Iterator[Finding]:
    """What each detector finds in each step."""
    text, room = (*trace.prompt_ids, trace.first_token), int(trace.settings.get("max_new_tokens") or 1 << 30) - 1
    eos_ids = pair.eos_ids if pair is not None and trace.settings.get("stop_at_eos", True) else frozenset()
    faults = {"mask": "sibling visible", "slot": "phantom KV rows"}
    for step in trace.steps:
        before = Before(text, room, eos_ids)
        for kind, detector in DETECTORS.items():
            for node, sentence in detector(step, before):
                yield Finding(step.index, node, kind, sentence, faults.get(kind, ""))
        text, room = text + step.committed, room - len(step.committed)


def matrix(
    pair: ModelPair, strategies: Sequence[Strategy], prompts: Sequence[PromptInput], **settings: Any
) -> pd.DataFrame:
    """A row per injected fault, "healthy" first: in how many of the `runs` each fault was found, or anything else."""
    rows = {}
    for injected in ("healthy", *FAULTS):
        rows[injected] = dict.fromkeys((*FAULTS, "other", "runs"), 0)
        if injected != "healthy" and FAULTS[injected].lacks(pair):
            continue
        models = pair if injected == "healthy" else broken(pair, injected)
        for strategy, prompt in product(strategies, prompts):
            session = Session(models, strategy, prompt, **settings)
            session.run()
            rows[injected]["runs"] += 1
            for fault in {finding.fault or "other" for finding in check(session)}:
                rows[injected][fault] += 1
    return pd.DataFrame.from_dict(rows, orient="index")
