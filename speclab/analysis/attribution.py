"""The sources of accepted tokens (GOOSE, sections 4.2, 5.4), and the acceptance rate of each source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

from speclab.theory import spine_yield
from speclab.trace.records import Step
from speclab.tree import DraftTree


@dataclass(frozen=True, slots=True)
class Attribution:
    """Accepted tokens by the kind of their path.

    `spine_only`: on paths of copied tokens only; `spine_continuation`: on paths that leave the spine and continue in a
    branch; `branch_only`: on paths without a copied token. `continued`: the tokens of `spine_continuation` after the
    spine, which neither source alone would have provided.
    """

    spine_only: int = 0
    spine_continuation: int = 0
    branch_only: int = 0
    continued: int = 0

    @property
    def accepted(self) -> int:
        return self.spine_only + self.spine_continuation + self.branch_only


def attribution(steps: Iterable[Step], spine: str = "context") -> Attribution:
    """Count the accepted tokens of `steps` by the sources of their path; `spine` is the source of copied tokens."""
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
    return Attribution(only, continuation, branch, continued)


def synergy(tokens_per_iteration: float, baselines: Sequence[float]) -> float:
    """Tokens per iteration divided by the best baseline's (GOOSE, section 5.4); above 1 the combination is better.

    Raises:
        ValueError: there is no baseline.
    """
    if not baselines:
        raise ValueError("synergy needs the tokens per iteration of at least one baseline")
    return tokens_per_iteration / max(baselines)


@dataclass(frozen=True, slots=True)
class SourceRate:
    """Three acceptance rates of one source, which differ widely.

    `drafted`: its tokens in all trees. `tried`: those whose parent was accepted. `places`: accepted nodes with such
    children. `accepted`: its accepted tokens; `first`: those that were first among their siblings of this source.
    """

    drafted: int = 0
    tried: int = 0
    places: int = 0
    accepted: int = 0
    first: int = 0

    def __add__(self, other: SourceRate) -> SourceRate:
        return SourceRate(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    @property
    def share(self) -> float:
        """Accepted / drafted, 0…1: the "empirical acceptance" of GOOSE, section 3, which also depends on the tree."""
        return self.accepted / self.drafted if self.drafted else 0.0

    @property
    def rate(self) -> float:
        """Accepted / tried, 0…1: p_s and p_t of Proposition 1, given an accepted parent."""
        return self.accepted / self.tried if self.tried else 0.0

    @property
    def first_rate(self) -> float:
        """Acceptance of the first child alone, 0…1: compares the sources with one guess each."""
        return self.first / self.places if self.places else 0.0


def source_rates(steps: Iterable[Step], spine: str = "context") -> dict[str, SourceRate]:
    """The `SourceRate` of each source; `spine` is the source of copied tokens.

    Copied tokens are tried first (GOOSE, appendix B.3), so siblings of an accepted copy do not count as tried: p_t is
    the rate of branches where the spine breaks or does not exist.
    """
    rates: dict[str, SourceRate] = {}
    for step in steps:
        tree, verdict = step.tree, [node.verdict for node in step.nodes]
        for children in tree.children:
            for source in dict.fromkeys(tree.source[child] for child in children):
                own = [child for child in children if tree.source[child] == source]
                tried = [child for child in own if verdict[child] in {"accepted", "rejected"}]
                copies = [child for child in children if tree.source[child] == spine and source != spine]
                rate = SourceRate(drafted=len(own))
                if tried and not any(verdict[child] == "accepted" for child in copies):
                    accepted = [verdict[child] == "accepted" for child in tried]
                    rate = SourceRate(len(own), len(tried), 1, sum(accepted), int(accepted[0]))
                rates[source] = rates.get(source, SourceRate()) + rate
    return rates


def spine_widths(tree: DraftTree, spine: str = "context") -> tuple[int, ...]:
    """Branches at each spine node but the last: k_i, i = 0…L−1 (GOOSE, section 3); empty without a spine."""
    widths, node = [], 0
    while copied := [child for child in tree.children[node] if tree.source[child] == spine]:
        widths.append(len(tree.children[node]) - len(copied))
        node = copied[0]
    return tuple(widths)


def spine_bound(
    steps: Iterable[Step], spine_acceptance: float, branch_acceptance: float, spine: str = "context"
) -> float:
    """Lower bound of tokens per iteration from Proposition 1 of GOOSE for the trees of `steps` (appendix E.4).

    The mean of `theory.spine_yield` over the trees, each with its own spine, widths and deepest branch (D); a tree
    without a spine counts 1. Compare it with the mean committed tokens of the same iterations, except those that the
    end of the text cut short (`bonus` is None).

    Args:
        spine_acceptance: p_s, 0…1. With the `share` of each source (p_s ≥ p_t) the bound never exceeds what was
            measured. With their `rate` it can: the proposition takes tokens as independent, but copies are mostly right
            or wrong together.
        branch_acceptance: p_t, 0…1.

    Raises:
        SettingsError: a rate is outside 0…1.
    """
    bounds = []
    for step in steps:
        tree, length = step.tree, [0] * len(step.tree)  # of the branch that ends at each node
        for node, parent in enumerate(tree.parent.tolist()):
            if node and tree.source[node] != spine:
                length[node] = length[parent] + 1
        widths = spine_widths(tree, spine)
        bounds.append(spine_yield(spine_acceptance, branch_acceptance, widths, max(1, *length)))
    return sum(bounds) / len(bounds) if bounds else 1.0
