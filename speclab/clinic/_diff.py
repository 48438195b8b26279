"""Two runs of one prompt beside each other, aligned by the text: where they part, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import log
from typing import Any

from speclab.clinic._measure import measure
from speclab.clinic._oracle import Oracle
from speclab.clinic._runs import checked
from speclab.engine.session import Session
from speclab.errors import SettingsError
from speclab.pair import ModelPair
from speclab.trace.records import Step, Trace

SAME = 5e-3
"""Differences of log-probabilities below this are none: kernels differ in float32, too."""
Decided = dict[int, tuple[tuple[int, float], ...]]
Passes = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Diff:
    """Where two runs part; positions count from 0 in prompt and text, and None means nowhere.

    `text`, `proposals`, `answers`: the first position where they differ. `verdict`: "same", "ties"
    (answers differ by rounding alone), "drafts" (other proposals, the same answers), "fault"; and
    `sentence`. `side`: the run that is wrong, "a", "b" or "both", as the target decides, "" if it was
    not asked or nothing is. `gaps`: (position, largest difference of log-probabilities) where both have answers.
    `acceptance`: of each run, by depth: (accepted, tried). `passes`: of each run, by iteration: the
    position of its first committed token, and how many tokens were accepted and the target's own.
    `names`: of the runs, for pictures.
    """

    text: int | None
    proposals: int | None
    answers: int | None
    verdict: str
    sentence: str
    side: str = ""
    gaps: tuple[tuple[int, float], ...] = ()
    acceptance: tuple[Mapping[int, tuple[int, int]], Mapping[int, tuple[int, int]]] = ({}, {})
    passes: tuple[Passes, Passes] = ((), ())
    names: tuple[str, str] = ("a", "b")

    def __str__(self) -> str:
        lines = [self.sentence]
        for name, position in (
            ("text", self.text),
            ("proposals", self.proposals),
            ("answers", self.answers),
        ):
            where = "do not part" if position is None else f"part at position {position}"
            lines.append(f"  {name}: {where}")
        if self.gaps:
            most = max(self.gaps, key=lambda pair: pair[1])
            lines.append(f"  largest difference of an answer: {most[1]:.2g}, at position {most[0]}")
        for depth in sorted({*self.acceptance[0], *self.acceptance[1]}):
            a, b = [side.get(depth, (0, 0)) for side in self.acceptance]
            lines.append(f"  accepted at depth {depth}: {a[0]} of {a[1]}, and {b[0]} of {b[1]}")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def diff(
    a: Trace | Session,
    b: Trace | Session,
    pair: ModelPair | None = None,
    *,
    close: float | None = None,
) -> Diff:
    """Compares two runs of one prompt up to where their texts part; after that nothing is compared.

    Args:
        pair: decides, where the runs differ, which of them is wrong; by default a session's own.

    Raises:
        SettingsError: they are not two runs of one prompt.
    """
    a, pair = checked(a, pair)
    b, pair = checked(b, pair)
    prompt = len(_prompt(a))
    if _prompt(a) != _prompt(b):
        raise SettingsError("These runs have different prompts: compare two runs of one prompt.")
    texts = [(*run.prompt_ids, *run.token_ids) for run in (a, b)]
    shared = min(map(len, texts))
    text = next((at for at in range(prompt, shared) if texts[0][at] != texts[1][at]), None)
    end = shared if text is None else text
    found = [_answers(run, end) for run in (a, b)]
    gaps = {}
    for at in sorted(found[0].keys() & found[1].keys()):
        gap = _difference(found[0][at], found[1][at])
        if gap is not None:
            gaps[at] = gap
    answers = next((at for at, gap in gaps.items() if gap > SAME), None)
    drafts = [_proposals(run, end) for run in (a, b)]
    both = sorted(drafts[0].keys() & drafts[1].keys())
    proposals = next((at for at in both if drafts[0][at] != drafts[1][at]), None)
    verdict, side, sentence = _judged(a, b, pair, text, proposals, gaps, close)
    return Diff(
        text, proposals, answers, verdict, sentence, side,
        tuple(gaps.items()), (_acceptance(a), _acceptance(b)), (_passes(a), _passes(b)),
    )  # fmt: skip


def _prompt(run: Trace) -> tuple[int, ...]:
    return (*run.prompt_ids, run.first_token)


def _committed(run: Trace) -> list[tuple[Step, int]]:
    """Each step, with the position of its first committed token."""
    start = len(run.prompt_ids) + 1
    starts = []
    for step in run.steps:
        starts.append((step, start))
        start += len(step.committed)
    return starts


def _passes(run: Trace) -> Passes:
    passes = []
    for step, start in _committed(run):
        accepted = min(len(step.accepted), len(step.committed))
        passes.append((start, accepted, len(step.committed) - accepted))
    return tuple(passes)


def _answers(run: Trace, end: int) -> Decided:
    """The recorded answers by the position that they decide, up to `end`."""
    found: Decided = {}
    for step, start in _committed(run):
        nodes = ([] if step.root_choice is not None else [0]) + list(step.accepted)
        for offset, node in enumerate(nodes):
            at = start + offset + (step.root_choice is not None)
            if at <= end and step.nodes[node].target_top:
                found.setdefault(at, step.nodes[node].target_top)
    return found


def _difference(a: Any, b: Any) -> float | None:
    """The largest difference of log-probabilities of tokens that both list."""
    first, second = dict(a), dict(b)
    shared = [
        token for token in first if token in second and min(first[token], second[token]) > 1e-5
    ]
    return max((abs(log(first[token]) - log(second[token])) for token in shared), default=None)


def _proposals(run: Trace, end: int) -> dict[int, tuple[tuple[int, ...], ...]]:
    """The drafted paths of each step, by the position of its root."""
    found = {}
    for step, start in _committed(run):
        tree = step.tree
        if start <= end:
            paths = [tuple(tree.token[list(tree.path(node))].tolist()) for node in range(len(tree))]
            found[start] = tuple(sorted(paths))
    return found


def _acceptance(run: Trace) -> dict[int, tuple[int, int]]:
    """By depth: accepted nodes, and steps that had any node whose parent was accepted."""
    counts: dict[int, tuple[int, int]] = {}
    for step in run.steps:
        tried = {
            int(step.tree.depth[node.index])
            for node in step.nodes
            if node.verdict in ("accepted", "rejected")
        }
        accepted = {int(step.tree.depth[node]) for node in step.accepted}
        for depth in tried:
            hits, tries = counts.get(depth, (0, 0))
            counts[depth] = hits + (depth in accepted), tries + 1
    return counts


def _judged(
    a: Trace,
    b: Trace,
    pair: ModelPair | None,
    text: int | None,
    proposals: int | None,
    gaps: Mapping[int, float],
    close: float | None,
) -> tuple[str, str, str]:
    """The verdict, the wrong side, and a sentence."""
    most = max(gaps.values(), default=0.0)
    if text is None and most <= SAME:
        if proposals is None:
            return "same", "", "The runs are the same."
        where = f"Only the drafts differ, first at position {proposals}"
        return "drafts", "", f"{where}: texts and answers are the same."
    where = "The texts do not part"
    if text is not None:
        where = f"The texts part at position {text}; nothing is compared after it"
    differ = f"differ by up to {most:.2g}"
    if pair is None:
        kind = "ties" if text is None and most < 0.5 else "unknown"
        way = "give the target to decide whether one is wrong"
        return kind, "", f"{where}. Answers {differ}; {way}."
    indices = {"a": _first_wrong(a, pair, close), "b": _first_wrong(b, pair, close)}
    wrong = {side: index + 1 for side, index in indices.items() if index is not None}
    if not wrong:
        return "ties", "", f"{where}. The target finds both right: they {differ} by rounding."
    which = ", ".join([f"{side} in iteration {number}" for side, number in wrong.items()])
    side = "both" if len(wrong) == 2 else next(iter(wrong))
    return "fault", side, f"{where}. The target finds a fault: {which}."


def _first_wrong(run: Trace, pair: ModelPair, close: float | None) -> int | None:
    measured = measure(Oracle(run, pair, close=close))
    return next((one.step.index for one in measured if one.wrong or one.misses), None)
