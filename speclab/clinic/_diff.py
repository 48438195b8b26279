"""Two runs of one prompt beside each other, aligned by the text: where they part, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import log
from statistics import mean
from typing import Any, NamedTuple

from speclab.clinic._check import check, checked
from speclab.clinic._report import acceptance
from speclab.engine.session import Session
from speclab.errors import SettingsError
from speclab.pair import ModelPair
from speclab.trace.records import TIE, Finding, Trace

SAME = 5e-3
"""Differences of log-probabilities below this are none: kernels differ in float32, too."""
CLOSE = 0.5
"""Larger differences are not taken for rounding without asking the target."""
IMPROBABLE = 1e-5
"""Less probable tokens are not compared."""
Passes = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Diff:
    """Where two runs part; positions count from 0 in prompt and text, and None means nowhere.

    `text`, `proposals`, `answers`: the first position where they differ. `verdict`: "same", "ties"
    (answers differ by rounding alone), "drafts" (other proposals, the same answers), "acceptance"
    (texts are right, but accepted tokens per pass differ), "fault", or "unknown" (without the
    target); and `sentence`. `side`: the run that is wrong, "a", "b" or "both"; "" if none is.
    `gaps`: (position, largest difference of log-probabilities) where both have answers. `acceptance`:
    of each run, by depth: (accepted, tried); `accepted`: tokens per pass. `passes`: of each run, by
    iteration: the position of its first committed token, and how many tokens were accepted and the
    target's own. `names`: of the runs, for pictures.
    """

    text: int | None
    proposals: int | None
    answers: int | None
    verdict: str
    sentence: str
    side: str
    gaps: tuple[tuple[int, float], ...]
    acceptance: tuple[Mapping[int, tuple[int, int]], Mapping[int, tuple[int, int]]]
    passes: tuple[Passes, Passes]
    accepted: tuple[float, float]
    names: tuple[str, str] = ("a", "b")

    def __str__(self) -> str:
        lines = [self.sentence]
        for name in ("text", "proposals", "answers"):
            position = getattr(self, name)
            where = "do not part" if position is None else f"part at position {position}"
            lines.append(f"  {name}: {where}")
        if self.gaps:
            most = max(self.gaps, key=lambda pair: pair[1])
            lines.append(f"  largest difference of an answer: {most[1]:.2g}, at position {most[0]}")
        lines.append("  accepted per pass: {:.2f}, and {:.2f}".format(*self.accepted))
        for depth in sorted({*self.acceptance[0], *self.acceptance[1]}):
            first, second = [side.get(depth, (0, 0)) for side in self.acceptance]
            lines.append(
                f"  accepted at depth {depth}: {first[0]} of {first[1]}, and {second[0]} of {second[1]}"
            )
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
    """Compare two runs of one prompt up to where their texts part; after that nothing is compared.

    Args:
        pair: decides, where the runs differ, which of them is wrong; by default a session's own.

    Raises:
        SettingsError: they are not two runs of one prompt.
    """
    a, pair = checked(a, pair)
    b, pair = checked(b, pair)
    if a.prompt_ids != b.prompt_ids:
        raise SettingsError("These runs have different prompts: compare two runs of one prompt.")
    texts = [[*run.prompt_ids, *run.token_ids] for run in (a, b)]
    pairs = enumerate(zip(*texts, strict=False))
    text = next((at for at, (one, other) in pairs if one != other), None)
    end = min(map(len, texts)) if text is None else text
    runs = first, second = _Run.of(a, end), _Run.of(b, end)
    gaps = _gaps(first.answers, second.answers)
    both = sorted(first.proposals.keys() & second.proposals.keys())
    proposals = next((at for at in both if first.proposals[at] != second.proposals[at]), None)
    wrong = {name: _wrong(run, pair, close) for name, run in (("a", a), ("b", b))}
    verdict, side, sentence = _judged(text, proposals, gaps, wrong, pair is not None)
    accepted = first.accepted, second.accepted
    stop = end + (len(texts[0]) == len(texts[1]))  # the last pass of a shorter run may be cut
    shared = [[one for one in run.passes if sum(one) < stop] for run in runs]
    if shared[0] != shared[1]:
        rates = [mean([accepted + own for _, accepted, own in run.passes]) for run in runs]
        slower = "Tokens per pass: {:.1f} against {:.1f}, of which {:.1f} and {:.1f} were accepted."
        slower = slower.format(*rates, *accepted)
        verdict = "acceptance" if verdict == "same" else verdict
        sentence = f"{slower} {sentence}" if verdict == "acceptance" else f"{sentence} {slower}"
    return Diff(
        text,
        proposals,
        next((at for at, gap in gaps.items() if gap > SAME), None),
        verdict,
        sentence,
        side,
        tuple(gaps.items()),
        (acceptance(a.steps), acceptance(b.steps)),
        (first.passes, second.passes),
        accepted,
    )


class _Run(NamedTuple):
    """By position: recorded answers (of the token that they decide) and drafted paths (of the token
    after the root); the passes, and what they accepted."""

    answers: Mapping[int, Mapping[int, float]]
    proposals: Mapping[int, frozenset[tuple[int, ...]]]
    passes: Passes
    accepted: float

    @classmethod
    def of(cls, run: Trace, end: int) -> _Run:
        answers: dict[int, Mapping[int, float]] = {}
        proposals = {}
        passes = []
        start = len([*run.prompt_ids, *run.tokens_at(0)])
        for step in run.steps:
            accepted = min(len(step.accepted), len(step.committed))
            passes.append((start, accepted, len(step.committed) - accepted))
            tree = step.tree
            if start <= end:
                paths = [tree.token[list(tree.path(node))].tolist() for node in range(len(tree))]
                proposals[start] = frozenset(map(tuple, paths))
            for at, node in enumerate(step.path, start + (0 in step.drafted)):
                if at <= end and step.nodes[node].target_top:
                    answers.setdefault(at, dict(step.nodes[node].target_top))
            start += len(step.committed)
        return cls(answers, proposals, tuple(passes), mean([one[1] for one in passes]))


def _gaps(
    a: Mapping[int, Mapping[int, float]], b: Mapping[int, Mapping[int, float]]
) -> dict[int, float]:
    """By position: the largest difference of log-probabilities of tokens that both list."""
    gaps = {}
    for at in sorted(a.keys() & b.keys()):
        pairs = [(prob, b[at].get(token, 0.0)) for token, prob in a[at].items()]
        if shared := [abs(log(p / q)) for p, q in pairs if min(p, q) > IMPROBABLE]:
            gaps[at] = max(shared)
    return gaps


def _wrong(run: Trace, pair: ModelPair | None, close: float | None) -> Finding | None:
    """The first finding of the target's side: of a wrong text before one of a right one."""
    found = [one for one in check(run, pair, close=close) if one.kind not in (TIE, "draft")]
    return min(found, key=lambda one: one.text_is_right, default=None)


def _judged(
    text: int | None,
    proposals: int | None,
    gaps: Mapping[int, float],
    wrong: Mapping[str, Finding | None],
    decided: bool,
) -> tuple[str, str, str]:
    """The verdict, the wrong side, and a sentence. `decided`: the target was asked."""
    where = "The texts do not part"
    if text is not None:
        where = f"The texts part at position {text}; nothing is compared after it"
    found = {name: one for name, one in wrong.items() if one is not None}
    if found:
        side = "both" if len(found) == 2 else next(iter(found))
        which = [
            f"{name} in iteration {one.iteration + 1} ({one.kind})" for name, one in found.items()
        ]
        who = "The target finds" if decided else "The record shows"
        verdict = "acceptance" if all(one.text_is_right for one in found.values()) else "fault"
        return verdict, side, f"{where}. {who} a fault: {', '.join(which)}."
    most = max(gaps.values(), default=0.0)
    if text is None and most <= SAME:
        if proposals is None:
            return "same", "", "Texts, proposals and answers are the same."
        where = f"Only the drafts differ, first at position {proposals}"
        return "drafts", "", f"{where}: texts and answers are the same."
    where += f". Answers differ by up to {most:.2g}"
    if decided:
        return "ties", "", f"{where}; the target finds both right, so this is rounding."
    verdict = "ties" if text is None and most < CLOSE else "unknown"
    return verdict, "", f"{where}; give the target to decide whether one is wrong."
