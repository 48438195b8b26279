"""What the target still had to draw from where a sampled walk stopped, as plain data. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

from speclab.packing import Many, Natural, Probability


@dataclass(frozen=True, slots=True)
class Share:
    """One token at the node where a sampled walk stopped: its probability for the target, and for the draft.

    `residual`: what acceptance left of `target`, the probability with which the target then drew it. `draft`: in the
    law that the candidates were drawn from; None where none were drawn.
    """

    token: Natural
    residual: Probability
    target: Probability
    draft: Probability | None


@dataclass(frozen=True, slots=True)
class Try:
    """A candidate that was put to the test and did not stand, a child of the node where the walk stopped.

    `target`: its probability in what was left of the target's law, `against`: in what was left of the draft's, or the
    threshold of typical acceptance. The first of a node meets both laws whole.
    """

    node: Natural
    target: Probability
    against: Probability


@dataclass(frozen=True, slots=True)
class Residual:
    """The law of the target's own token after `node` (None: before a drafted root), the likeliest of it first.

    `tries`: in their order; none where the target drew once, and no candidate carries what it drew.
    """

    node: Natural | None
    shares: Many[Share]
    tries: Many[Try] = ()
