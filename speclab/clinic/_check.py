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
from speclab.clinic._gaps import SAMPLE, Measured, measure
from speclab.clinic._plain import Oracle, Progress
from speclab.clinic._record import contradictions, from_link, name, unusual, word
from speclab.clinic._report import Report
from speclab.clinic._sampled import SampledRun
from speclab.clinic.steps_file import load_steps
from speclab.engine.session import Session
from speclab.errors import SettingsError
from speclab.loading.presets import PRESETS
from speclab.pair import ModelPair, checked_pair, load_pair
from speclab.trace.records import TIE, Finding, Step, Trace, trace_of

REFERENCES = 64
"""Iterations of a report whose reference is measured: its tables have quantiles by depth and width, and a
deep node is in few trees."""
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
    """With the most probable tokens after the path of each node, run plainly."""
    asked = oracle.steps[step.index]
    probs = oracle.log_probs(asked, oracle.answers(asked)).exp()  # [n, V]
    plain = []
    named: set[int] = set()
    for node, row in zip(step.nodes, probs, strict=True):
        tokens = dict.fromkeys(row.topk(min(TOP, len(row))).indices.tolist())
        tokens.update(dict.fromkeys(dict(node.target_top)))
        plain.append(tuple([(token, float(row[token])) for token in tokens]))
        named.update(tokens)
    texts = oracle.pair.token_texts(sorted(named - step.texts.keys()))
    return replace(step, plain=tuple(plain), texts={**step.texts, **texts})


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
    pair = load_target(target)
    wrong = []
    for finding in check(load_steps(path, pair), pair, close=close):
        if finding.kind not in (TIE, "draft") and not finding.text_is_right:
            wrong.append(str(finding))
    if wrong:
        raise AssertionError("\n".join(wrong))


def load_target(target: str | ModelPair, **options: Any) -> ModelPair:
    """A pair as it is or by its name, or a target by its hub id, folder or file.

    Raises:
        SettingsError: there is no name.
    """
    if isinstance(target, ModelPair):
        return target
    if not target:
        raise SettingsError("The target is empty: give a pair, its name, a hub id or a folder.")
    if target in PRESETS:
        return load_pair(target, **options)
    return load_pair(target=target, **options)


def checked(run: Trace | Session, pair: ModelPair | None) -> tuple[Trace, ModelPair | None]:
    """The trace of a run, and the healthy pair that should have decoded it; None for a link, which has
    too little to run it again.

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
    if from_link(trace):
        return trace, None
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
    records = contradictions(trace, pair)
    notes = unusual(trace)
    sampled = SampledRun(trace)
    claims = sampled.wrong_claims()
    if pair is None:
        if claims is not None:
            records.append(claims)
        return _reported(trace, records, notes, None, ())

    # The plain answers, and the gaps of the recorded ones
    oracle = Oracle(trace, pair, progress, close)
    run = measure(oracle, references, sampled.add if sampled.tested else None)
    first = _first_wrong(run)

    # The cause of the first wrong answers; if all are right, the draws
    causes = []
    if first < len(run):
        cause = explain_answers(oracle, run, first).finding
        causes.append(_joined(cause, records))
    elif claims is None and (draws := sampled.finding()):
        records.append(draws)

    # The draft's side; proposals that are not drawn from what is recorded are explained
    side = DraftSide(claims)
    if claims is None:
        side = explain_draft(trace, pair, progress, first)
    if side.finding is not None:
        causes.append(side.finding)
    if side.note:
        notes.append(side.note)

    # The report
    findings = sorted(causes + records, key=lambda finding: finding.iteration)
    for measured in run[:first]:
        findings += _ties(measured)
    return _reported(trace, findings, notes, causes[0] if causes else None, run)


def _first_wrong(run: Sequence[Measured]) -> int:
    """The first iteration with wrong answers; the number of iterations if there is none."""
    for index, measured in enumerate(run):
        if measured.wrong or measured.misses:
            return index
    return len(run)


def _joined(cause: Finding, records: list[Finding]) -> Finding:
    """One fault, one finding: takes what the record says of the cause out of the list."""
    for record in records:
        if (record.kind, record.iteration) == (cause.kind, cause.iteration):
            records.remove(record)
            also = record.sentence[:1].upper() + record.sentence[1:]
            return replace(cause, sentence=f"{cause.sentence} {also}")
    return cause


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
    notes: Sequence[str],
    cause: Finding | None,
    run: Sequence[Measured],
) -> Report:
    """With findings and gaps in the steps of the run."""
    gaps = {measured.step.index: measured.compared for measured in run}
    steps = []
    for step in trace.steps:
        own = tuple([finding for finding in findings if finding.iteration == step.index])
        steps.append(replace(step, findings=own, plain=(), gaps=gaps.get(step.index, ())))
    return Report(replace(trace, steps=tuple(steps)), tuple(findings), tuple(notes), cause)
