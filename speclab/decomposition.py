"""Where accepted tokens came from (GOOSE, sections 4.2 and 5.4): from records alone, needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from speclab.trace import Step


@dataclass(frozen=True, slots=True)
class Decomposition:
    """Accepted tokens by the kind of path they lie on; iterations that accepted none are in no kind.

    `spine_only`: tokens of paths that were copied from the context to their end; `spine_continuation`: of paths that
    leave the spine and go on in a branch; `branch_only`: of paths without a copied token. `continued`: those tokens of
    `spine_continuation` that came after the spine was left, which neither source alone would have given.
    """

    spine_only: int = 0
    spine_continuation: int = 0
    branch_only: int = 0
    continued: int = 0

    @property
    def accepted(self) -> int:
        """All accepted drafted tokens."""
        return self.spine_only + self.spine_continuation + self.branch_only


def decomposition(steps: Iterable[Step], spine: str = "context") -> Decomposition:
    """Sorts the accepted tokens of `steps` by the sources of their path; `spine` is the source of copied tokens."""
    only = continuation = branch = continued = 0
    for step in steps:
        copied = [step.tree.source[node] == spine for node in step.accepted]
        if not any(copied):
            branch += len(copied)
        elif all(copied):
            only += len(copied)
        else:
            continuation += len(copied)
            continued += copied.count(False)
    return Decomposition(only, continuation, branch, continued)


def synergy(tokens_per_iteration: float, baselines: Sequence[float]) -> float:
    """Tokens per iteration over those of the best baseline (GOOSE, section 5.4); above 1 the combination pays.

    Raises:
        ValueError: there is no baseline.
    """
    if not baselines:
        raise ValueError("synergy needs the tokens per iteration of at least one baseline")
    return tokens_per_iteration / max(baselines)
