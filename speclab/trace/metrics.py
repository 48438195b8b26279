"""Metrics with one meaning each, counted per iteration and added up."""

from __future__ import annotations

from dataclasses import astuple, dataclass, field

from speclab.trace.codecs import Amount, Natural


@dataclass(frozen=True, slots=True)
class Counts:
    """What one iteration, or a sum of them, did.

    `committed`: tokens added, bonus included. `drafted`: drafted nodes verified (a verified root is
    not drafted). `accepted`: drafted nodes committed. `longest_path`: drafted nodes on the longest
    path. `target_calls`: forward passes of the target. `draft_calls`: those of draft models and
    draft heads together.
    """

    iterations: Natural = 0
    committed: Natural = 0
    drafted: Natural = 0
    accepted: Natural = 0
    longest_path: Natural = 0
    target_calls: Natural = 0
    draft_calls: Natural = 0
    seconds: Amount = field(default=0.0, repr=False)

    def __add__(self, other: Counts) -> Counts:
        return Counts(*map(sum, zip(astuple(self), astuple(other), strict=True)))


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


@dataclass(frozen=True, slots=True)
class Metrics:
    """The figures of a run: `counts` of the iterations; the prefill gave one token after `ttft` seconds."""

    counts: Counts
    ttft: float = field(default=0.0, repr=False)
    """Time from the call to the first token, prefill included, in seconds."""
    prefill_calls: int = 1
    """Target passes before the first iteration: the prefill, and one more if the root is drafted."""

    @property
    def iterations(self) -> int:
        return self.counts.iterations

    @property
    def tokens_per_iteration(self) -> float:
        """Committed tokens / verification passes (tau, block efficiency); plain decoding has 1."""
        return _ratio(self.counts.committed, self.counts.iterations)

    @property
    def acceptance_rate(self) -> float:
        """Accepted drafted tokens / drafted tokens, 0…1."""
        return _ratio(self.counts.accepted, self.counts.drafted)

    @property
    def path_acceptance(self) -> float:
        """Accepted drafted tokens / tokens on the longest drafted path, 0…1."""
        return _ratio(self.counts.accepted, self.counts.longest_path)

    @property
    def paper_acceptance(self) -> float:
        """DynaTree's own figure (Table 3): committed tokens, bonus included, / longest drafted path; may exceed 1."""
        return _ratio(self.counts.committed, self.counts.longest_path)

    @property
    def target_calls(self) -> int:
        """Forward passes of the target, the prefill included."""
        return self.counts.target_calls + self.prefill_calls

    @property
    def draft_calls(self) -> int:
        return self.counts.draft_calls

    @property
    def target_calls_saved(self) -> float:
        """Share of plain decoding's target passes that were saved; negative if there were more."""
        return (
            1.0 - self.counts.target_calls / self.counts.committed if self.counts.committed else 0.0
        )

    @property
    def throughput(self) -> float:
        """Tokens per second of decoding, prefill excluded."""
        return _ratio(self.counts.committed, self.counts.seconds)

    @property
    def tpot(self) -> float:
        return _ratio(self.counts.seconds, self.counts.committed)

    def as_dict(self) -> dict[str, int | float]:
        """Every figure by name, in display order."""
        names = (
            "tokens_per_iteration", "acceptance_rate", "path_acceptance", "paper_acceptance", "iterations",
            "target_calls", "draft_calls", "target_calls_saved", "throughput", "ttft", "tpot",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}
