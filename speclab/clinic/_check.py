"""Clinic: what is wrong with a run, from its records and from its models run plainly on the same
text.

    session = speclab.Session(clinic.broken(pair, "sibling visible"), strategy, prompt)
    session.run()
    for finding in clinic.check(session):
        print(finding)

A check takes records, so it examines a run of speclab, a run with an injected fault, and a run that
another decoder wrote down. It never asks whether a fault was injected. One check is one way:
trace → plain answers → gaps → findings → cause → report (`examine`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from speclab.clinic._cause import explain_answers
from speclab.clinic._draft_side import DraftSide, explain_draft
from speclab.clinic._faults import BrokenPair
from speclab.clinic._plain import SAMPLE, Measured, Oracle, Progress, measure
from speclab.clinic._record import contradictions, name, position_offset, word
from speclab.clinic._report import Report
from speclab.clinic._sampled import SampledRun, wrong_claims
from speclab.clinic.steps_file import load_steps
from speclab.engine.session import Session
from speclab.errors import SettingsError
from speclab.loading.presets import PRESETS
from speclab.pair import ModelPair, checked_pair, load_pair
from speclab.trace.records import TIE, Finding, Step, Trace, trace_of

REFERENCES = 64
"""Iterations of a report whose reference is measured."""
TOP = 8
"""Tokens of a plain pass that are kept beside those recorded."""


def check(
    run: Trace | Session,
    pair: ModelPair | None = None,
    progress: Progress | None = None,
    *,
    close: float | None = None,
) -> tuple[Finding, ...]:
    """What is wrong with a run, the first wrong iteration first; empty if nothing is.

    Later findings are often consequences, so only the kinds of the first wrong iteration are
    reported. Answers are compared in all iterations.

    Args:
        pair: the models that should have decoded it; by default a session's own. Without a pair,
            only the record is checked.
        progress: called before each pass with the iterations compared and their number; what it
            raises ends the check.
        close: the largest difference of log-probabilities that counts as rounding; by default it is
            measured.

    Raises:
        SettingsError: `run` is not a run, or nothing is decoded yet; or the pair has another
            vocabulary.
    """
    return report(run, pair, progress, close=close, tables=False).findings


def explain(
    run: Trace | Session, pair: ModelPair | None = None, *, close: float | None = None
) -> Finding | None:
    """The cause of the first wrong answers, else of the draft's first wrong proposals, measured; None if
    all are right, or there are no models.

    Its `kind`: position, mask, prefix, order (rows that were kept), cache, commit, token, choice,
    ids, answer (another row's, or no cause won), stale_logits, temperature, window, norm or precision;
    draft for a draft's.
    Arguments and errors as `check`.
    """
    return report(run, pair, close=close, tables=False).cause


def report(
    run: Trace | Session,
    pair: ModelPair | None = None,
    progress: Progress | None = None,
    *,
    close: float | None = None,
    tables: bool = True,
) -> Report:
    """What `check` finds, with acceptance, notes, and the gaps of every recorded answer to the plain
    pass, beside those of the pair's own pass in the recorded precision.

    Args:
        tables: show the gaps in tables, and measure more of the reference. Other arguments and
            errors as `check`.
    """
    result = examine(*checked(run, pair), progress, close, REFERENCES if tables else SAMPLE)
    return replace(result, with_tables=tables)


def marked(trace: Trace, pair: ModelPair | None = None, progress: Progress | None = None) -> Trace:
    """Check a run and write the findings into its steps, for views, the lab and files.

    With a pair, all steps also get their gaps beside the reference, and the first wrong iteration
    the probabilities of its paths, run plainly.
    """
    trace, pair = checked(trace, pair)
    result = examine(trace, pair, progress, references=REFERENCES)
    steps = list(result.trace.steps)
    if pair is not None and result.findings and result.findings[0].kind != TIE:
        wrong = result.findings[0].iteration
        # a fresh oracle: the first one has read past this iteration
        steps[wrong] = _with_plain(Oracle(trace, pair, progress), steps[wrong])
    return replace(result.trace, steps=tuple(steps))


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


def assert_lossless(
    path: str | os.PathLike[str], target: str | ModelPair, *, close: float | None = None
) -> None:
    """For tests of an engine: fails if a recorded run is not what its target gives.

    Drafts that are worse than they should be, and paths shorter than the target allows, leave the
    text right and do not fail.

    Args:
        path: steps of a decoder.
        target: a pair, its name, a hub id or a folder.

    Raises:
        AssertionError: something is wrong.
    """
    pair = target if isinstance(target, ModelPair) else load_target(target)
    wrong = [
        str(finding)
        for finding in check(load_steps(path, pair), pair, close=close)
        if finding.kind not in (TIE, "draft") and not finding.text_is_right
    ]
    if wrong:
        raise AssertionError("\n".join(wrong))


def load_target(target: str, **options: Any) -> ModelPair:
    """A pair by its name, or a target by its hub id, folder or file.

    Raises:
        SettingsError: there is no name.
    """
    if not target:
        raise SettingsError("The target is empty: give a pair, its name, a hub id or a folder.")
    if target in PRESETS:
        return load_pair(target, **options)
    return load_pair(target=target, **options)


def checked(run: Trace | Session, pair: ModelPair | None) -> tuple[Trace, ModelPair | None]:
    """The trace of a run, and the healthy pair that should have decoded it.

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
    tokens = {*trace.prompt_ids, *trace.token_ids}
    for step in trace.steps:
        tokens.update(step.texts)
    if max(tokens) >= pair.vocab_size:
        raise SettingsError(
            f"Token {max(tokens)} is outside the {pair.vocab_size} of {pair.name}: give the pair of this run."
        )
    return trace, pair


def examine(
    trace: Trace,
    pair: ModelPair | None,
    progress: Progress | None = None,
    close: float | None = None,
    references: int = SAMPLE,
) -> Report:
    """One check, phase by phase."""
    # The record alone
    records = contradictions(trace, pair.eos_ids if pair is not None else frozenset())
    outside = "format" in trace.models
    claims = wrong_claims(trace) if outside else []
    if pair is None:
        return _reported(trace, [*records, *claims], _notes(trace), None, ())

    # The plain answers, and the gaps of the recorded ones
    oracle = Oracle(trace, pair, progress, close)
    sampled: SampledRun | None = None
    if outside and trace.settings.get("temperature") and not trace.models.get("processed"):
        sampled = SampledRun(trace)
    run = measure(oracle, references, sampled.add if sampled else None)
    wrong = [measured.step.index for measured in run if measured.wrong or measured.misses]
    first = min(wrong, default=len(run))

    # The cause of the first wrong answers; if all are right, the draws and the draft's side
    causes = []
    if wrong:
        cause = explain_answers(oracle, run, first).finding
        for record in records:  # one fault, one finding
            if (record.kind, record.iteration) == (cause.kind, cause.iteration):
                cause = replace(cause, sentence=f"{cause.sentence} {record.sentence}")
                records.remove(record)
                break
        causes.append(cause)
    elif sampled is not None and not claims and (draws := sampled.finding()):
        records.append(draws)
    drafts = DraftSide(claims, [])
    if not claims:  # proposals that are not drawn from what is recorded are explained
        drafts = explain_draft(trace, pair, progress, first)

    # The report
    causes += drafts.findings
    findings = sorted([*causes, *records], key=lambda finding: finding.iteration)
    for measured in run[:first]:
        findings += _ties(measured)
    notes = (*_notes(trace), *drafts.notes)
    return _reported(trace, findings, notes, causes[0] if causes else None, run)


def _ties(measured: Measured) -> Iterator[Finding]:
    """Choices that are not the best token, but as close as rounding."""
    step = measured.step
    for row, gap in enumerate(measured.choices):
        if gap and row not in measured.misses:
            chosen = word(step, step.nodes[row].target_choice)
            sentence = (
                f"A tie: {name(step, row)} has the choice {chosen}, which is {gap:.2g} below the best in "
                "the logarithm."
            )
            yield Finding(step.index, row, TIE, sentence)


def _reported(
    trace: Trace,
    findings: Sequence[Finding],
    notes: tuple[str, ...],
    cause: Finding | None,
    run: Sequence[Measured],
) -> Report:
    """With findings and gaps in the steps of the run."""
    gaps = {measured.step.index: measured.compared for measured in run}
    steps = []
    for step in trace.steps:
        own = tuple([finding for finding in findings if finding.iteration == step.index])
        steps.append(replace(step, findings=own, plain=(), gaps=gaps.get(step.index, ())))
    return Report(replace(trace, steps=tuple(steps)), tuple(findings), notes, cause)


def _notes(trace: Trace) -> tuple[str, ...]:
    """What is unusual in a record and no fault."""
    notes = [str(trace.models.get("note") or "")]
    if offset := position_offset(trace):
        notes.append(f"All positions are {offset:+d} off the text's, from the first pass on.")
    if trace.models.get("processed"):
        notes.append("Choices were made after logits processors, so answers are compared by top-k.")
    return tuple(filter(None, notes))
