"""Clinic: what is wrong with a run, from its records and from its models run plainly on the same
text.

    session = speclab.Session(clinic.broken(pair, "sibling visible"), strategy, prompt)
    session.run()
    for finding in clinic.check(session):
        print(finding)

A check takes records, so it examines a run of speclab, a run with an injected fault, and a run that
another decoder wrote down. It never asks whether a fault was injected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import pandas as pd

from speclab.analysis.detectors import DETECTORS, Before
from speclab.analysis.explain import explain_answers
from speclab.analysis.faults import FAULTS, BrokenPair, Fault, broken
from speclab.analysis.oracle import Oracle, Progress, explain_draft
from speclab.engine.session import Session
from speclab.errors import SettingsError, named
from speclab.pair import ModelPair
from speclab.trace.records import TIE, Finding, Step, Trace

if TYPE_CHECKING:
    from speclab.drafters.base import Strategy
    from speclab.prompts import PromptInput

__all__ = ["FAULTS", "TIE", "Fault", "Finding", "broken", "check", "explain", "marked", "matrix"]
TOP = 8
"""Tokens of a plain pass that are kept beside those recorded."""


def check(
    run: Trace | Session, pair: ModelPair | None = None, progress: Progress | None = None
) -> tuple[Finding, ...]:
    """What is wrong with a run, the first wrong iteration first; empty if nothing is.

    One fault may spoil all that follows: findings are of the kinds of the first wrong iteration,
    and answers are compared up to it.

    Args:
        pair: the models that should have decoded it; by default a session's own. Without, a trace's
            record alone tells.
        progress: called before each pass with the iterations compared and their number; what it
            raises ends the check.

    Raises:
        SettingsError: `run` is not a run, or nothing is decoded yet.
    """
    trace, pair = _checked(run, pair)
    findings = list(_on_records(trace, pair))
    if findings:
        kinds = {finding.kind for finding in findings if finding.iteration == findings[0].iteration}
        findings = [finding for finding in findings if finding.kind in kinds]
    if pair is None:
        return tuple(findings)
    oracle = Oracle(trace, pair, progress)
    steps = oracle.steps[: findings[0].iteration if findings else None]
    by_draft = [
        Finding(iteration, *explanation) for iteration, explanation in explain_draft(oracle, steps)
    ]
    answers = list(_answers(oracle, steps))
    wrong = [finding for finding in answers if finding.kind != TIE]
    return (*wrong, *by_draft, *findings, *[finding for finding in answers if finding.kind == TIE])


def marked(trace: Trace, pair: ModelPair | None = None, progress: Progress | None = None) -> Trace:
    """Check a run and write the findings into its steps, for views, the lab and files.

    With a pair, the first wrong iteration also gets the probabilities of its paths, run plainly.
    """
    steps = [
        replace(step, findings=(), plain=()) if step.findings else step for step in trace.steps
    ]
    findings = check(trace, pair, progress)
    (_, models) = _checked(trace, pair)
    for finding in findings:
        step = steps[finding.iteration]
        steps[finding.iteration] = replace(step, findings=(*step.findings, finding))
    if models is not None and findings and findings[0].kind != TIE:
        wrong = findings[0].iteration
        steps[wrong] = _with_plain(Oracle(trace, models, progress), steps[wrong])
    return replace(trace, steps=tuple(steps))


def _with_plain(oracle: Oracle, step: Step) -> Step:
    asked = oracle.steps[step.index]
    rows = oracle.log_probs(asked, oracle.answers(asked)).exp()
    plain = []
    for node, row in zip(step.nodes, rows, strict=True):
        best = row.topk(min(TOP, len(row))).indices.tolist()
        tokens = dict.fromkeys((*best, *(token for token, _ in node.target_top)))
        plain.append(tuple([(token, float(row[token])) for token in tokens]))
    named = {token for tops in plain for token, _ in tops} - step.texts.keys()
    return replace(
        step, plain=tuple(plain), texts={**step.texts, **oracle.pair.token_texts(sorted(named))}
    )


def explain(trace: Trace, pair: ModelPair) -> Finding | None:
    """Which single fault reproduces the first answer that is wrong; None if every recorded answer
    is right.

    Each hypothesis is one changed pass. Its `kind`: position, mask, prefix, order (rows that were
    kept), token, answer (another row's, or none that was tried), norm, scale, window, temperature
    or choice.

    Raises:
        SettingsError: nothing is decoded yet, or the pair has another vocabulary.
    """
    checked, models = _checked(trace, pair)
    assert models is not None
    oracle = Oracle(checked, models)
    return next(
        (finding for finding in _answers(oracle, oracle.steps) if finding.kind != TIE), None
    )


def _answers(oracle: Oracle, steps: Sequence[Step]) -> Iterator[Finding]:
    """Ties, and the first answer that is wrong."""
    for step, before in zip(steps, (None, *steps), strict=False):
        right = oracle.answers(step)
        if wrong := explain_answers(oracle, step, before, right):
            yield Finding(step.index, *wrong)
            return
        yield from [
            Finding(step.index, *tie) for tie in oracle.ties(step, oracle.log_probs(step, right))
        ]


def _checked(run: Trace | Session, pair: ModelPair | None) -> tuple[Trace, ModelPair | None]:
    if isinstance(run, Session) and pair is None:
        pair = run.pair
    trace = run.trace if isinstance(run, Session) else run
    if not isinstance(trace, Trace):
        raise SettingsError(f"Expected a session or a trace, got {named(run)}.")
    if not trace.steps:
        raise SettingsError(
            "No iteration is decoded yet: Step or Run, then check what was decoded."
        )
    if isinstance(pair, BrokenPair) and pair.healthy is not None:
        pair = pair.healthy
    most = max(
        (
            *trace.prompt_ids,
            *trace.token_ids(),
            *(token for step in trace.steps for token in step.texts),
        )
    )
    if pair is not None and most >= pair.vocab_size:
        raise SettingsError(
            f"Token {most} is outside the {pair.vocab_size} of {pair.name}: give the pair of this "
            "run."
        )
    return trace, pair


def _on_records(trace: Trace, pair: ModelPair | None) -> Iterator[Finding]:
    text = (*trace.prompt_ids, trace.first_token)
    room = int(trace.settings.get("max_new_tokens") or 1 << 30) - 1
    eos_ids = (
        pair.eos_ids
        if pair is not None and trace.settings.get("stop_at_eos", True)
        else frozenset()
    )
    faults = {"mask": "sibling visible", "slot": "phantom KV rows"}
    for step in trace.steps:
        before = Before(text, room, eos_ids)
        for kind, detector in DETECTORS.items():
            for node, sentence in detector(step, before):
                yield Finding(step.index, node, kind, sentence, faults.get(kind, ""))
        text = text + step.committed
        room = room - len(step.committed)


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
            for fault in {
                finding.fault or "other" for finding in check(session) if finding.kind != TIE
            }:
                rows[injected][fault] += 1
    return pd.DataFrame.from_dict(rows, orient="index")
