"""Clinic: faults that real engines had, injected into a pair, and what finds each of them in a session.

    from speclab import clinic

    session = speclab.Session(clinic.broken(pair, "sibling visible"), strategy, prompt)
    session.run()
    for finding in clinic.check(session):
        print(finding)

A detector looks at what any user has: the steps of a session, its caches and its modules, which it runs anew on the
recorded text. It never asks whether a fault was injected. It fires where the record is what its own fault would have
given, and not what the module gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import torch

from speclab.analysis import detectors, faults
from speclab.engine.session import Session
from speclab.errors import SettingsError
from speclab.models.pair import ModelPair
from speclab.models.runner import Runner

if TYPE_CHECKING:
    from speclab.drafters.base import Strategy
    from speclab.prompts import PromptInput


@dataclass(frozen=True, slots=True)
class Finding:
    """What a detector says of a session. `fired`: whether it found its fault; None where the run cannot tell."""

    fault: str
    fired: bool | None
    evidence: str

    def __str__(self) -> str:
        mark = {True: "✗ found", False: "✓ not found", None: "– cannot tell"}[self.fired]
        return f"{mark:13} {self.fault}: {self.evidence}"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, how it is injected, and what finds it.

    `wrong`: what goes wrong, in one sentence. `looks`: its signature, what to look at. `seen_in`: a public thread on
    such a fault. `inject`: broken runners of a pair, by role. `find`: the detector. `lacks`: what a pair would need.
    """

    name: str
    wrong: str
    looks: str
    seen_in: str
    inject: Callable[[ModelPair], Mapping[str, Runner]]
    find: Callable[[detectors.Examined], detectors.Verdict]
    lacks: Callable[[ModelPair], str] = lambda _: ""


# The faults.


def _target(kind: type[Runner]) -> Callable[[ModelPair], Mapping[str, Runner]]:
    return lambda pair: {"target": faults.as_kind(pair.target, kind)}


def _skip_norm(pair: ModelPair) -> Mapping[str, Runner]:
    assert pair.draft is not None
    return {"draft": faults.skip_draft_norm(pair.draft)}


def _no_draft(pair: ModelPair) -> str:
    whole = pair.draft is not None and bool(faults.final_norm(pair.draft.model))
    return "" if whole else "it needs a draft model with a final norm"


FAULTS: Mapping[str, Fault] = {
    fault.name: fault
    for fault in (
        Fault(
            "sibling visible",
            "In the tree's mask a node sees the siblings before it, which are other guesses for the same place.",
            "Expected against given mask: crosses at earlier siblings; a chain is right.",
            "PaddlePaddle/FastDeploy #3514, Support tree-attention: below the diagonal its kernel had no mask",
            _target(faults.SiblingVisible),
            detectors.find_siblings,
        ),
        Fault(
            "wrong positions",
            "The drafted rows of a pass stand one position too far.",
            "The mask is right, the text is wrong: every row but the root's answers otherwise than its path alone.",
            "sgl-project/sglang #25015, Fix Eagle draft decode positions: there the draft's rows stood one too far",
            _target(faults.WrongPositions),
            detectors.find_positions,
        ),
        Fault(
            "phantom KV rows",
            "After a rejection the row of a rejected token stays in the cache, and all that follows sees it.",
            "Cache checks: more rows than committed tokens, one more after each rejection.",
            "ml-explore/mlx-swift-lm #424, RotatingKVCache becomes untrimmable once the window wraps",
            _target(faults.PhantomRows),
            detectors.find_phantoms,
        ),
        Fault(
            "skipped norm in the draft",
            "The draft's output layer reads the last layer as it is, without the final norm.",
            "The text is the target's own, with fewer tokens per iteration: acceptance falls faster with depth.",
            "vllm-project/vllm #14464, EAGLE output norm bug: there the stand-in for a norm dropped the residual",
            _skip_norm,
            detectors.find_norm,
            _no_draft,
        ),
        Fault(
            "window run as full attention",
            "A target with a sliding window attends to the whole text.",
            "Right up to the window's length, wrong from there on.",
            "ml-explore/mlx-lm #1914, RotatingKVCache._update_concat never evicts when >1 token arrives per call",
            lambda pair: {"target": faults.ignore_window(pair.target)},
            detectors.find_window,
            lambda pair: "" if pair.target.plan.window else "it needs a target with a sliding window",
        ),
        Fault(
            "unverified first token",
            "The first drafted token is committed whatever the target says.",
            "Acceptance at depth 1 is 100 %, each time with a target probability of 1; the text is wrong.",
            "ohdearquant/lattice #243, n-gram speculative decoding is lossy: verify_draft commits draft[0] unverified",
            _target(faults.UnverifiedFirst),
            detectors.find_unverified,
        ),
        Fault(
            "padded positions",
            f"Rows after the prompt stand behind {faults.PADDING} slots of padding that the prompt does not count.",
            "The root's row is wrong in the first iteration already, and the mask and the cache's length are right.",
            "TransformerLensOrg/TransformerLens #1617: the cached step counted pad slots of a left-padded prompt",
            _target(faults.PaddedPositions),
            detectors.find_padding,
        ),
    )
}
"""By name, in the order in which they are listed everywhere."""


def broken(pair: ModelPair, fault: str) -> ModelPair:
    """A copy of the pair with the fault injected, for sessions; the pair given stays healthy.

    Raises:
        SettingsError: there is no such fault, or the pair lacks what it needs.
    """
    if fault not in FAULTS:
        raise SettingsError(f"There is no fault {fault!r}: choose one of {', '.join(FAULTS)}.")
    if lacks := FAULTS[fault].lacks(pair):
        raise SettingsError(f"The fault {fault!r} cannot be injected into {pair.name}: {lacks}.")
    return faults.with_fault(pair, fault, FAULTS[fault].inject(pair))


def findings(session: Session) -> Iterator[Finding]:
    """What each detector says, one after the other: each may run the models over the text.

    Raises:
        SettingsError: nothing is decoded yet.
    """
    seen = detectors.Examined(session)
    for fault in FAULTS.values():
        with torch.inference_mode():
            fired, evidence = fault.find(seen)
        yield Finding(fault.name, fired, evidence)


def check(session: Session) -> tuple[Finding, ...]:
    """`findings`, all of them."""
    return tuple(findings(session))


# Faults against detectors.

HEALTHY = "healthy"


@dataclass(frozen=True, slots=True)
class Cell:
    """Of `runs` sessions with one fault: in how many a detector could tell, and in how many it fired."""

    fired: int
    told: int
    runs: int


@dataclass(frozen=True, slots=True)
class Matrix:
    """`cells`: by injected fault ("healthy" first), then by detector. Printed, it is a table."""

    cells: Mapping[str, Mapping[str, Cell]]

    def __str__(self) -> str:
        names = list(FAULTS)
        numbers = [f"({i})" for i in range(1, len(names) + 1)]
        lines = [f"{'injected':32} {'runs':>5} " + " ".join(f"{number:>7}" for number in numbers)]
        for injected, row in self.cells.items():
            counts = " ".join(f"{cell.fired:>3}/{cell.told:<3}" for cell in row.values())
            runs = next(cell.runs for cell in row.values())
            number = f" {numbers[names.index(injected)]}" if injected in FAULTS else ""
            lines.append(f"{injected + number:32} {runs:5} {counts}")
        lines.append("Each cell: fired / could tell. The columns are the detectors, numbered as the rows.")
        return "\n".join(lines)


def matrix(
    pairs: ModelPair | Sequence[ModelPair],
    strategies: Sequence[Strategy],
    prompts: Sequence[PromptInput],
    **settings: Any,
) -> Matrix:
    """Every fault in every pair that can have it, with every strategy on every prompt, checked by all detectors.

    `settings`: of the sessions, as `max_new_tokens`.
    """
    pairs = [pairs] if isinstance(pairs, ModelPair) else list(pairs)
    cells: dict[str, dict[str, Cell]] = {}
    for injected in (HEALTHY, *FAULTS):
        own = pairs
        if injected != HEALTHY:
            own = [broken(one, injected) for one in pairs if not FAULTS[injected].lacks(one)]
        found: list[tuple[Finding, ...]] = []
        for pair, strategy, prompt in product(own, strategies, prompts):
            session = Session(pair, strategy, prompt, **settings)
            session.run()
            found.append(check(session))
        columns = {name: [one[place].fired for one in found] for place, name in enumerate(FAULTS)}
        cells[injected] = {
            name: Cell(fired.count(True), len(fired) - fired.count(None), len(fired)) for name, fired in columns.items()
        }
    return Matrix(cells)
