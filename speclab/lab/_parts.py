"""The parts that features add to a lab."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from speclab.features import parts_named

if TYPE_CHECKING:
    from speclab.lab._runs import Runs
    from speclab.trace.records import Step


class Part:
    """What a feature adds to a lab, in its `lab.py`.

    Its methods marked with `@command` answer messages of the page, those with `@method` are methods
    of `Lab`. All run on the worker's thread. The methods below say what happens elsewhere in the
    lab.
    """

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self.state = runs.state
        self.worker = runs.worker

    def form_changed(self) -> None:
        """The form was changed."""

    def moved(self) -> None:
        """Another position of the run is shown."""

    def decoded(self) -> None:
        """The run shown has other iterations, or is another run."""

    def decoded_again(self, old: Step) -> None:
        """The iteration shown replaces another one, in a fork."""

    def free(self) -> None:
        """The lab is closed: let go of models and runs."""


def feature_parts() -> list[type[Part]]:
    """The parts of all features, in their order."""
    kinds: list[type[Part]] = []
    for path in parts_named("lab.py"):
        module = import_module(f"speclab.features.{path.parent.name}.lab")
        kinds.extend(module.PARTS)
    return kinds
