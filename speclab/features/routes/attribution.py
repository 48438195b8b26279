"""The sources of accepted tokens (GOOSE, sections 4.2, 5.4), and the acceptance rate of each source."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from speclab.trace.metrics import added, ratio
from speclab.trace.records import Step

__all__ = ["Attribution", "SourceRate", "attribution", "source_rates"]

SPINE = "context"
"""The source of copied tokens."""


@dataclass(frozen=True)
class Attribution:
    """Accepted tokens by the kind of their path.

    `spine_only`: on paths of copied tokens only; `spine_continuation`: on paths that leave the
    spine and continue in a branch; `branch_only`: on paths without a copied token. `continued`: the
    tokens of `spine_continuation` after the spine, which neither source alone would have provided.
    """

    spine_only: int = 0
    spine_continuation: int = 0
    branch_only: int = 0
    continued: int = 0

    @property
    def accepted(self) -> int:
        return self.spine_only + self.spine_continuation + self.branch_only


def attribution(steps: Iterable[Step]) -> Attribution:
    """Count the accepted tokens of `steps` by the sources of their path."""
    only = continuation = branch = continued = 0
    for step in steps:
        copied = [step.tree.source[node] == SPINE for node in step.accepted]
        if not any(copied):
            branch += len(copied)
        elif all(copied):
            only += len(copied)
        else:
            continuation += len(copied)
            continued += copied.count(False)
    return Attribution(only, continuation, branch, continued)


@dataclass(frozen=True)
class SourceRate:
    """Three acceptance rates of one source, which differ widely.

    `drafted`: its tokens in all trees. `tried`: those whose parent was accepted. `places`: accepted
    nodes with such children. `accepted`: its accepted tokens; `first`: those that were first among
    their siblings of this source.
    """

    drafted: int = 0
    tried: int = 0
    places: int = 0
    accepted: int = 0
    first: int = 0

    def __add__(self, other: SourceRate) -> SourceRate:
        return added(self, other)

    @property
    def share(self) -> float:
        """Accepted / drafted, 0…1: the "empirical acceptance" of GOOSE, section 3, which also depends on the tree."""
        return ratio(self.accepted, self.drafted)

    @property
    def rate(self) -> float:
        """Accepted / tried, 0…1: p_s and p_t of Proposition 1, given an accepted parent."""
        return ratio(self.accepted, self.tried)

    @property
    def first_rate(self) -> float:
        """Acceptance of the first child alone, 0…1: compares the sources with one guess each."""
        return ratio(self.first, self.places)


def source_rates(steps: Iterable[Step]) -> dict[str, SourceRate]:
    """The `SourceRate` of each source.

    Copied tokens are tried first (GOOSE, appendix B.3), so siblings of an accepted copy do not
    count as tried: p_t is the rate of branches where the spine breaks or does not exist.
    """
    rates: dict[str, SourceRate] = {}
    for step in steps:
        tree = step.tree
        verdict = [node.verdict for node in step.nodes]
        for children in tree.children:
            by_source: dict[str, list[str]] = {}
            for child in children:
                by_source.setdefault(tree.source[child], []).append(verdict[child])
            copied = "accepted" in by_source.get(SPINE, ())
            for source, verdicts in by_source.items():
                tried = [verdict for verdict in verdicts if verdict in {"accepted", "rejected"}]
                rate = SourceRate(drafted=len(verdicts))
                if tried and (source == SPINE or not copied):
                    first = int(tried[0] == "accepted")
                    accepted = tried.count("accepted")
                    rate = SourceRate(len(verdicts), len(tried), 1, accepted, first)
                rates[source] = rates.get(source, SourceRate()) + rate
    return rates


def __dir__() -> list[str]:
    return __all__
