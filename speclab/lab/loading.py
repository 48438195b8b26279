"""Loading models while the lab stays awake: told as it goes, and left behind when Stop is pressed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

from speclab.errors import CancelledError
from speclab.lab.choices import Models

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair

PACE = 0.25
"""Seconds between two lines about a load."""


class Loading:
    """One load, on a thread of its own.

    A library at work cannot be interrupted from outside. A load that is left behind ends at its next report; what it
    still brings is dropped.

    Args:
        models: what to load.
        stopped: set by a Stop, which leaves the load behind.
    """

    def __init__(self, models: Models, stopped: Event) -> None:
        self.name = "/".join(Path(models.target or models.name).parts[-2:])
        self._models, self._said = models, f"Loading {self.name}…"
        self._ended, self._stopped, self._left = Event(), stopped, False
        self._pair: ModelPair | None = None
        self._error: BaseException | None = None

    def pair(self, say: Callable[[str], None]) -> ModelPair:
        """Loads, telling `say` what is being done.

        Raises:
            CancelledError: it was left.
            SpeclabError: as `load_pair` raises.
        """
        say(self._said)
        Thread(target=self._work, name="speclab-loading", daemon=True).start()
        while not self._ended.wait(PACE):
            if self._stopped.is_set():
                self._left = True
                raise CancelledError(
                    f"Stopped loading {self.name}: everything stays as it was, and what cannot be cut short is dropped "
                    "when it ends."
                )
            say(self._said)
        if self._error is not None:
            say(f"{self.name} is not loaded: everything stays as it was.")
            raise self._error
        assert self._pair is not None
        say(f"{self.name} is loaded: Step decodes with it.")
        return self._pair

    def _work(self) -> None:
        try:
            import speclab.engine.session  # noqa: F401  # with all it needs, some seconds the first time: here Stop is heard
            from speclab.models.pair import load_pair

            self._pair = load_pair(**self._models.arguments(), report=self._hear)
        except BaseException as error:  # noqa: BLE001  # whoever waits for the pair gets it
            self._error = error
        finally:
            self._ended.set()

    def _hear(self, sentence: str) -> None:
        if self._left:
            raise CancelledError(f"Nobody waits for {self.name} any more.")
        self._said = sentence


class Loaded:
    """The models of a lab: those it was given, or the newest it loaded. Loads on the worker's thread.

    Args:
        given: the pair that the caller gave.
        stopped: set by a Stop, which leaves a load behind.
        say: hears what a load is doing.
    """

    def __init__(self, given: ModelPair | None, stopped: Event, say: Callable[[str], None]) -> None:
        self.pair, self._given = given, given
        self._choice: Models | None = None
        self._stopped, self._say = stopped, say

    def load(self, models: Models | None) -> ModelPair:
        """The pair of this choice, None for the given one; loaded once. Where it fails, the former stays."""
        if models is None and self._given is not None:
            self.pair, self._choice = self._given, None
        elif self.pair is None or self.pair is self._given or models != self._choice:
            self.pair = Loading(models or Models(), self._stopped).pair(self._say)
            self._choice = models
        assert self.pair is not None
        return self.pair

    def usage(self) -> str:
        """The memory in use where the models are, and which faster way of passes failed; none before there are any."""
        if self.pair is None:
            return ""
        from speclab.models.memory import usage

        left = [
            f"{role} without {feature}: {why}"
            for role, runner in self.pair.runners.items()
            for feature, why in getattr(runner.through, "left", {}).items()
        ]
        return " · ".join(filter(None, [usage(self.pair.target.device), *left]))
