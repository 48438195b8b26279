"""Two runs of one prompt beside each other, aligned by the text: where they part, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import log
from statistics import mean
from typing import Any

from speclab.clinic._check import check, checked
from speclab.clinic._report import acceptance
from speclab.engine.session import Session
from speclab.errors import SettingsError
from speclab.pair import ModelPair
from speclab.trace.records import TIE, Finding, Trace

SAME = 5e-3
"""Differences of log-probabilities below this are none: kernels differ in float32, too."""
CLOSE = 0.5
"""Larger differences are not taken for rounding without asking the target: bfloat16 changes less."""
IMPROBABLE = 1e-5
"""Less probable tokens are not compared."""
SLOWER = "Tokens per pass: {:.1f} against {:.1f}, of which {:.1f} and {:.1f} were accepted."
Passes = tuple[tuple[int, int, int], ...]
ByDepth = Mapping[int, tuple[int, int]]


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
    acceptance: tuple[ByDepth, ByDepth]
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
            position, most = max(self.gaps, key=lambda pair: pair[1])
            lines.append(f"  largest difference of an answer: {most:.2g}, at position {position}")
        lines.append("  accepted per pass: {:.2f}, and {:.2f}".format(*self.accepted))
        for depth in sorted({*self.acceptance[0], *self.acceptance[1]}):
            rates = ["{} of {}".format(*run.get(depth, (0, 0))) for run in self.acceptance]
            lines.append(f"  accepted at depth {depth}: {', and '.join(rates)}")
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

    # Where texts, proposals and answers part
    texts = [[*run.prompt_ids, *run.token_ids] for run in (a, b)]
    end = min(map(len, texts))
    text = next((at for at in range(end) if texts[0][at] != texts[1][at]), None)
    end = end if text is None else text
    first, second = aligned(a, end), aligned(b, end)
    both = sorted(first.proposals.keys() & second.proposals.keys())
    proposals = next((at for at in both if first.proposals[at] != second.proposals[at]), None)
    gaps = _gaps(first, second)

    # Which of them is wrong
    wrong = {}
    for name, run in (("a", a), ("b", b)):
        findings = [one for one in check(run, pair, close=close) if one.kind not in (TIE, "draft")]
        if findings:  # a wrong text before a right one
            wrong[name] = min(findings, key=lambda finding: finding.text_is_right)
    most = max(gaps.values(), default=0.0)
    verdict, sentence = _judged((text, proposals), most, wrong, decided=pair is not None)

    # Whether one commits less
    accepted = first.accepted, second.accepted
    stop = end
    if len(texts[0]) == len(texts[1]):  # the last pass of a shorter run may be cut
        stop += 1
    if first.until(stop) != second.until(stop):
        slower = SLOWER.format(first.committed, second.committed, *accepted)
        verdict = "acceptance" if verdict == "same" else verdict
        sentence = f"{slower} {sentence}" if verdict == "acceptance" else f"{sentence} {slower}"
    return Diff(
        text=text,
        proposals=proposals,
        answers=next((at for at, gap in gaps.items() if gap > SAME), None),
        verdict=verdict,
        sentence=sentence,
        side="both" if len(wrong) == 2 else "".join(wrong),
        gaps=tuple(gaps.items()),
        acceptance=(acceptance(a.steps), acceptance(b.steps)),
        passes=(tuple(first.passes), tuple(second.passes)),
        accepted=accepted,
    )


def _judged(
    parts: tuple[int | None, int | None],
    most: float,
    wrong: Mapping[str, Finding],
    *,
    decided: bool,
) -> tuple[str, str]:
    """The verdict, and a sentence.

    Args:
        parts: where texts and proposals part.
        most: the largest difference of answers. decided: the target was asked.
    """
    text, proposals = parts
    where = "The texts do not part"
    if text is not None:
        where = f"The texts part at position {text}; nothing is compared after it"
    if wrong:
        right = all(finding.text_is_right for finding in wrong.values())
        which = [
            f"{run} in iteration {one.iteration + 1} ({one.kind})" for run, one in wrong.items()
        ]
        who = "The target finds" if decided else "The record shows"
        verdict = "acceptance" if right else "fault"
        return verdict, f"{where}. {who} a fault: {', '.join(which)}."
    if text is None and most <= SAME:
        if proposals is None:
            return "same", "Texts, proposals and answers are the same."
        where = f"Only the drafts differ, first at position {proposals}"
        return "drafts", f"{where}: texts and answers are the same."
    where += f". Answers differ by up to {most:.2g}"
    if decided:
        return "ties", f"{where}; the target finds both right, so this is rounding."
    verdict = "ties" if text is None and most < CLOSE else "unknown"
    return verdict, f"{where}; give the target to decide whether one is wrong."


def _gaps(first: Aligned, second: Aligned) -> dict[int, float]:
    """By position: the largest difference of log-probabilities of tokens that both list."""
    gaps = {}
    for at in sorted(first.answers.keys() & second.answers.keys()):
        shared = []
        for token, p in first.answers[at].items():
            q = second.answers[at].get(token, 0.0)
            if min(p, q) > IMPROBABLE:
                shared.append(abs(log(p / q)))
        if shared:
            gaps[at] = max(shared)
    return gaps


@dataclass
class Aligned:
    """A run by position: recorded answers (of the token that they decide) and drafted paths (of the token
    after the root); and the passes."""

    answers: dict[int, Mapping[int, float]] = field(default_factory=dict)
    proposals: dict[int, frozenset[tuple[int, ...]]] = field(default_factory=dict)
    passes: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def accepted(self) -> float:
        return mean([accepted for _, accepted, _ in self.passes])

    @property
    def committed(self) -> float:
        return mean([accepted + own for _, accepted, own in self.passes])

    def until(self, stop: int) -> list[tuple[int, int, int]]:
        """The passes that end before a position."""
        return [each for each in self.passes if sum(each) < stop]


def aligned(run: Trace, end: int) -> Aligned:
    """A run up to a position."""
    result = Aligned()
    start = len([*run.prompt_ids, *run.tokens_at(0)])
    for step in run.steps:
        accepted = min(len(step.accepted), len(step.committed))
        result.passes.append((start, accepted, len(step.committed) - accepted))
        if start <= end:
            paths = [step.tree.token[list(step.tree.path(node))] for node in range(len(step.tree))]
            result.proposals[start] = frozenset([tuple(path.tolist()) for path in paths])
        # after a drafted root, the path begins one token later
        after = start + 1 if 0 in step.drafted else start
        for at, node in enumerate(step.path, after):
            if at <= end and step.nodes[node].target_top:
                result.answers.setdefault(at, dict(step.nodes[node].target_top))
        start += len(step.committed)
    return result
