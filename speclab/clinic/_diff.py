"""Two runs of one prompt beside each other, aligned by the text: where they part, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import log
from operator import attrgetter
from typing import Any

from speclab.clinic._check import checked, examine
from speclab.clinic._plain import Progress
from speclab.clinic._record import from_link
from speclab.clinic._report import Report, by_depth
from speclab.engine.session import Session
from speclab.errors import SettingsError
from speclab.pair import ModelPair
from speclab.trace.records import TIE, Trace

SAME = 5e-3
"""Differences of log-probabilities below this are none: kernels differ in float32, too."""
CLOSE = 0.5
"""Larger differences are not taken for rounding without the target: bfloat16 changes less."""
IMPROBABLE = 1e-5
"""Less probable tokens are not compared."""
EQUAL = "Texts, proposals and answers are the same."
DRAFTS = "Only the drafts differ, first at position {}: texts and answers are the same."
APART = "The texts part at position {}; nothing is compared after it"
TOGETHER = "The texts do not part"
ROUNDING = "Answers differ by up to {:.2g}; the target finds both right, so this is rounding."
UNDECIDED = "Answers differ by up to {:.2g}; give the target to decide whether one is wrong."
SLOWER = " Tokens per pass: {:.1f} against {:.1f}, of which {:.1f} and {:.1f} were accepted."
Pass = tuple[int, int, int]
"""The position of its first committed token, its accepted tokens, and the target's own."""


@dataclass(frozen=True)
class Diff:
    """Where two runs part; positions count from 0 in prompt and text, and None means nowhere.

    `text`, `proposals`, `answers`: the first position where they differ. `verdict`: "same", "ties"
    (answers differ by rounding alone), "drafts" (other proposals, the same answers), "acceptance"
    (texts are right, but accepted tokens per pass differ), "fault", or "unknown" (without the
    target); and `sentence`. `side`: the run that is wrong, "a", "b" or "both"; "" if none is.
    `gaps`: (position, largest difference of log-probabilities) where both have answers.
    `acceptance`: of each run, by depth: (accepted, tried); `accepted`: tokens per pass. `passes`:
    of each run, by iteration: the position of its first committed token, and how many tokens were
    accepted and the target's own. `names`: of the runs, for pictures.
    """

    text: int | None
    proposals: int | None
    answers: int | None
    verdict: str
    sentence: str
    side: str
    gaps: tuple[tuple[int, float], ...]
    acceptance: tuple[Mapping[int, tuple[int, int]], Mapping[int, tuple[int, int]]]
    passes: tuple[tuple[Pass, ...], tuple[Pass, ...]]
    accepted: tuple[float, float]
    names: tuple[str, str] = ("a", "b")

    def __str__(self) -> str:
        lines = [self.sentence]
        for name in ("text", "proposals", "answers"):
            position = getattr(self, name)
            where = "do not part"
            if position is not None:
                where = f"part at position {position}"
            lines.append(f"  {name}: {where}")
        if self.gaps:
            position, most = max(self.gaps, key=lambda pair: pair[1])
            lines.append(f"  largest difference of an answer: {most:.2g}, at position {position}")
        for name, accepted, acceptance in zip("ab", self.accepted, self.acceptance, strict=True):
            lines.append(f"  {name}: {accepted:.2f} accepted per pass; {by_depth(acceptance)}")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def diff(
    a: Trace | Session,
    b: Trace | Session,
    pair: ModelPair | None = None,
    progress: Progress | None = None,
    *,
    close: float | None = None,
) -> Diff:
    """Compare two runs of one prompt up to where their texts part; after that nothing is compared.

    Args:
        pair: decides, where the runs differ, which of them is wrong; by default a session's own.
        progress, close: as `check`.

    Raises:
        SettingsError: they are not two runs of one prompt, or one of them is of a link.
    """
    a, pair = checked(a, pair)
    b, pair = checked(b, pair)
    _refuse_others(a, b)

    # Where texts, proposals and answers part
    along_a = aligned(a)
    along_b = aligned(b)
    end = min(len(along_a.text), len(along_b.text))
    text = _parting(along_a.text, along_b.text, end)
    if text is not None:
        end = text
    proposals = _parting(along_a.proposals, along_b.proposals, end)
    gaps = _gaps(along_a, along_b, end)
    answers = [position for position, gap in gaps.items() if gap > SAME]

    # Which of them is wrong, and whether one commits less
    report_a = examine(a, pair, progress, close)
    report_b = examine(b, pair, progress, close)
    reports = {"a": report_a, "b": report_b}
    most = max(gaps.values(), default=0.0)
    verdict, sentence, side = _judged((text, proposals), most, reports, decided=pair is not None)
    if len(along_a.text) == len(along_b.text):  # the last pass of a shorter run may be cut
        end += 1
    if along_a.until(end) != along_b.until(end):
        if verdict == "same":
            verdict = "acceptance"
        committed_a = a.metrics.tokens_per_iteration
        committed_b = b.metrics.tokens_per_iteration
        sentence += SLOWER.format(committed_a, committed_b, report_a.accepted, report_b.accepted)
    return Diff(
        text=text,
        proposals=proposals,
        answers=min(answers, default=None),
        verdict=verdict,
        sentence=sentence,
        side=side,
        gaps=tuple(gaps.items()),
        acceptance=(report_a.acceptance, report_b.acceptance),
        passes=(tuple(along_a.passes), tuple(along_b.passes)),
        accepted=(report_a.accepted, report_b.accepted),
    )


def _refuse_others(a: Trace, b: Trace) -> None:
    """Refuse what are not two runs of one prompt, as far as is known."""
    if from_link(a) or from_link(b):
        raise SettingsError(
            "A link does not carry the prompt's tokens, so runs cannot be aligned: compare the saved "
            "runs (trace.save)."
        )
    if a.prompt_ids != b.prompt_ids:
        raise SettingsError("These runs have different prompts: compare two runs of one prompt.")


def _parting(a: Mapping[int, object], b: Mapping[int, object], end: int) -> int | None:
    """The first position up to an end where both have something, and not the same."""
    for position in sorted(a.keys() & b.keys()):
        if position <= end and a[position] != b[position]:
            return position
    return None


def _judged(
    parts: tuple[int | None, int | None],
    most: float,
    reports: Mapping[str, Report],
    *,
    decided: bool,
) -> tuple[str, str, str]:
    """The verdict, a sentence, and the run that is wrong.

    Args:
        parts: where texts and proposals part.
        most: the largest difference of answers. decided: the target was asked.
    """
    text, proposals = parts
    where = TOGETHER
    if text is not None:
        where = APART.format(text)
    verdict = "acceptance"
    faults = []
    side = ""
    for name, report in reports.items():
        findings = [one for one in report.findings if one.kind not in (TIE, "draft")]
        if findings:
            # a wrong text before a right one
            worst = min(findings, key=attrgetter("text_is_right"))
            faults.append(f"{name} in iteration {worst.iteration + 1} ({worst.kind})")
            side += name
            if not worst.text_is_right:
                verdict = "fault"
    if faults:
        who = "The target finds" if decided else "The record shows"
        sentence = f"{where}. {who} a fault: {', '.join(faults)}."
        return verdict, sentence, side.replace("ab", "both")
    if text is None and most <= SAME:
        if proposals is None:
            return "same", EQUAL, ""
        return "drafts", DRAFTS.format(proposals), ""
    if decided:
        return "ties", f"{where}. {ROUNDING.format(most)}", ""
    verdict = "ties" if text is None and most < CLOSE else "unknown"
    return verdict, f"{where}. {UNDECIDED.format(most)}", ""


@dataclass
class Aligned:
    """A run by position: its tokens; the recorded answers (of the token that they decide) and the
    drafted paths (of the token after the root) of each pass; and the passes."""

    text: dict[int, int]
    answers: dict[int, Mapping[int, float]] = field(default_factory=dict)
    proposals: dict[int, set[tuple[int, ...]]] = field(default_factory=dict)
    passes: list[Pass] = field(default_factory=list)

    def until(self, stop: int) -> list[Pass]:
        """The passes that end before a position."""
        return [each for each in self.passes if sum(each) < stop]


def aligned(run: Trace) -> Aligned:
    result = Aligned(dict(enumerate(list(run.prompt_ids) + run.token_ids)))
    start = len(run.prompt_ids) + len(run.tokens_at(0))
    for step in run.steps:
        accepted = min(len(step.accepted), len(step.committed))
        result.passes.append((start, accepted, len(step.committed) - accepted))
        paths = set()
        for node in range(len(step.tree)):
            path = step.tree.token[list(step.tree.path(node))]
            paths.add(tuple(path.tolist()))
        result.proposals[start] = paths
        # after a drafted root, the path begins one token later
        after = start + 1 if 0 in step.drafted else start
        for position, node in enumerate(step.path, after):
            top = step.nodes[node].target_top
            if top:
                result.answers.setdefault(position, dict(top))
        start += len(step.committed)
    return result


def _gaps(a: Aligned, b: Aligned, end: int) -> dict[int, float]:
    """By position: the largest difference of log-probabilities of tokens that both list."""
    gaps = {}
    for position in sorted(a.answers.keys() & b.answers.keys()):
        if position > end:
            break  # the texts are not the same
        other = b.answers[position]
        differences = []
        for token, probability in a.answers[position].items():
            if min(probability, other.get(token, 0.0)) > IMPROBABLE:
                differences.append(abs(log(probability / other[token])))
        if differences:
            gaps[position] = max(differences)
    return gaps
