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
from itertools import groupby
from typing import Any, NamedTuple

import pandas as pd

from speclab.clinic._causes import explain_answers
from speclab.clinic._detectors import DETECTORS, Before, name
from speclab.clinic._draft_side import explain_draft
from speclab.clinic._plain import FLOOR, SAMPLE, Measured, Oracle, Progress, measure
from speclab.clinic._report import COLUMNS, Report
from speclab.clinic._runs import acceptance, checked
from speclab.clinic._sampled import SampledRun
from speclab.clinic.steps_file import load_steps
from speclab.engine.session import Session
from speclab.errors import SettingsError
from speclab.loading.presets import PRESETS
from speclab.pair import ModelPair, load_pair
from speclab.trace.records import TIE, Finding, Step, Trace

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
        SettingsError: `run` is not a run, or nothing is decoded yet.
    """
    trace, pair = checked(run, pair)
    return examine(trace, pair, progress, close).findings


def marked(trace: Trace, pair: ModelPair | None = None, progress: Progress | None = None) -> Trace:
    """Check a run and write the findings into its steps, for views, the lab and files.

    With a pair, all steps also get their gaps beside the reference, and the first wrong iteration
    the probabilities of its paths, run plainly.
    """
    trace, pair = checked(trace, pair)
    steps = list(trace.steps)
    result = examine(trace, pair, progress, references=REFERENCES)
    gaps = {one.step.index: _gaps(one) for one in result.measured}
    for index, step in enumerate(steps):
        own = tuple([finding for finding in result.findings if finding.iteration == index])
        steps[index] = replace(step, findings=own, plain=(), gaps=gaps.get(index, ()))
    if pair is not None and result.findings and result.findings[0].kind != TIE:
        wrong = result.findings[0].iteration
        # a fresh oracle: the first one has read past this iteration
        steps[wrong] = _with_plain(Oracle(trace, pair, progress), steps[wrong])
    return replace(trace, steps=tuple(steps))


def _gaps(one: Measured) -> tuple[tuple[float, float | None] | None, ...]:
    """The gap of each node and that of the reference, as `Step.gaps`."""
    reference = one.reference or [None] * len(one.gaps)
    return tuple(
        [
            (min(gap, -FLOOR), other) if node.target_top else None
            for node, gap, other in zip(one.step.nodes, one.gaps, reference, strict=True)
        ]
    )


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


def explain(
    run: Trace | Session, pair: ModelPair | None = None, *, close: float | None = None
) -> Finding | None:
    """The cause of the first wrong answers, measured; None if every recorded answer is right.

    Its `kind`: position, mask, prefix, order (rows that were kept), cache, commit, token, choice,
    answer (another row's, or no cause won), stale_logits, temperature, window, norm or precision.

    Raises:
        SettingsError: nothing is decoded yet, or the pair has another vocabulary.
    """
    oracle = Oracle(*_with_models(run, pair), close=close)
    return next(iter(on_answers(oracle, measure(oracle))[0]), None)


def report(
    run: Trace | Session,
    pair: ModelPair | None = None,
    progress: Progress | None = None,
    *,
    close: float | None = None,
) -> Report:
    """The gaps of every recorded answer to the plain pass, beside those of the pair's own pass in the
    recorded precision; with what `check` finds, and notes.

    Raises:
        SettingsError: as `check`; or no pair was given.
    """
    return examined(*_with_models(run, pair), progress, close=close, measured=True)


def examined(
    trace: Trace,
    pair: ModelPair | None,
    progress: Progress | None = None,
    *,
    close: float | None = None,
    measured: bool = False,
) -> Report:
    """What the command line shows: a check with notes, and with tables of gaps if `measured`."""
    trace, pair = checked(trace, pair)
    result = examine(trace, pair, progress, close, REFERENCES if measured else SAMPLE)
    rows = [
        (one.step.index, node, int(depth), len(one.gaps), "drafted" if node else "root", *gaps)
        for one in result.measured
        for node, (depth, gaps) in enumerate(zip(one.step.tree.depth, _gaps(one), strict=True))
        if gaps is not None
    ]
    return Report(
        pd.DataFrame(rows, columns=COLUMNS).astype({"gap": float, "reference": float}),
        sum(len(step.nodes) for step in trace.steps),
        len(trace.steps),
        str(trace.models.get("target_dtype") or ""),
        result.findings,
        (*notes(trace), *result.notes),
        measured,
        acceptance(trace),
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
    findings = check(load_steps(path, pair), pair, close=close)
    wrong = [
        str(finding)
        for finding in findings
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
        raise SettingsError(
            f"Expected the target of a run, got {target!r}: give a pair, its name, a hub id or a "
            "folder."
        )
    if target in PRESETS:
        return load_pair(target, **options)
    return load_pair(target=target, **options)


def _with_models(run: Trace | Session, pair: ModelPair | None) -> tuple[Trace, ModelPair]:
    trace, models = checked(run, pair)
    if models is None:
        raise SettingsError("Answers are compared with models: pass the pair of this run.")
    return trace, models


class Examined(NamedTuple):
    """The measured iterations, all findings, and notes on the draft."""

    measured: list[Measured]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()


def examine(
    trace: Trace,
    pair: ModelPair | None,
    progress: Progress | None = None,
    close: float | None = None,
    references: int = SAMPLE,
) -> Examined:
    """One check: the record, then answers and draws beside the plain run, then the draft's side."""
    if pair is None or not trace.models.get("text", True):  # or the text is not recorded
        return Examined([], on_records(trace, pair))
    oracle = Oracle(trace, pair, progress, close)
    drawn = (
        oracle.outside and trace.settings.get("temperature") and not trace.models.get("processed")
    )
    sampled = SampledRun(trace) if drawn else None
    measured = measure(oracle, references, sampled.add if sampled else None)
    answers, ties = on_answers(oracle, measured)
    drawn_wrong = sampled.finding() if sampled and not answers else None
    first = answers[0].iteration if answers else len(trace.steps)
    drafts, said = explain_draft(trace, pair, progress, first)
    found = [*answers, *drafts, *on_records(trace, pair)]
    found += [drawn_wrong] if drawn_wrong else []
    found.sort(key=lambda finding: finding.iteration)
    return Examined(measured, (*found, *ties), tuple(said))


def on_answers(
    oracle: Oracle, measured: Sequence[Measured]
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """The first iteration with wrong answers, explained; and the ties before it."""
    ties = [
        Finding(
            one.step.index,
            row,
            TIE,
            f"A tie: {name(one.step, row)} has the choice {one.step.nodes[row].target_choice}, which is "
            f"{one.choices[row]:.2g} below the best in the logarithm.",
        )
        for one in measured
        for row in one.ties
    ]
    first = next((one.step.index for one in measured if one.wrong or one.misses), None)
    if first is None:
        return (), tuple(ties)
    wrong, _ = explain_answers(oracle, measured[first], measured[:first][-1:])
    return (wrong,), tuple([tie for tie in ties if tie.iteration < first])


def on_records(trace: Trace, pair: ModelPair | None) -> tuple[Finding, ...]:
    """Contradictions in the record, of the kinds found in the first wrong iteration; one for each kind
    and iteration."""
    findings = []
    for _, group in groupby(_contradictions(trace, pair), lambda one: (one.iteration, one.kind)):
        first, *more = group
        if more:
            sentence = f"{first.sentence[:-1]}; {len(more)} more in this iteration."
            first = replace(first, sentence=sentence, count=len(more) + 1)
        findings.append(first)
    kinds = {finding.kind for finding in findings if finding.iteration == findings[0].iteration}
    return tuple([finding for finding in findings if finding.kind in kinds])


def _contradictions(trace: Trace, pair: ModelPair | None) -> Iterator[Finding]:
    text = (*trace.prompt_ids, trace.first_token)
    room = int(trace.settings.get("max_new_tokens") or 1 << 30) - 1
    faults = {"mask": "sibling visible", "slot": "phantom KV rows"}
    processed = bool(trace.models.get("processed"))
    offset = position_offset(trace)
    for step in trace.steps:
        last = step.index == len(trace.steps) - 1
        before = Before(text, room, _eos_ids(trace, pair), offset, processed, last)
        for kind, detector in DETECTORS.items():
            for node, sentence, *right in detector(step, before):
                fault = faults.get(kind, "")
                yield Finding(
                    step.index, node, kind, sentence, fault, text_is_right=right == [True]
                )
        text = text + step.committed
        room = room - len(step.committed)


def _eos_ids(trace: Trace, pair: ModelPair | None) -> frozenset[int]:
    if not trace.settings.get("stop_at_eos", True):
        return frozenset()
    if given := str(trace.models.get("eos_ids") or ""):
        return frozenset(map(int, given.split()))
    return pair.eos_ids if pair is not None else frozenset()


def position_offset(trace: Trace) -> int:
    """The offset of every position: from the header, else the one that all rows share."""
    if given := int(trace.models.get("position_offset") or 0):
        return given
    offsets = {
        place - step.prefix_length - depth
        for step in trace.steps
        for place, depth in zip(step.position, step.tree.depth.tolist(), strict=False)
    }
    return offsets.pop() if len(offsets) == 1 else 0


def notes(trace: Trace) -> tuple[str, ...]:
    """What is unusual in a record and no fault."""
    found = []
    if note := trace.models.get("note"):
        found.append(str(note))
    if offset := position_offset(trace):
        found.append(f"All positions are {offset:+d} off the text's, from the first pass on.")
    if trace.models.get("processed"):
        found.append("Choices were made after logits processors, so answers are compared by top-k.")
    return tuple(found)
