"""What a person can ask of the runs of a lab: another one, one beside, one gone; strategies compared."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from speclab.analysis.compare import Comparison
from speclab.errors import SettingsError
from speclab.lab.choices import Choices
from speclab.lab.comparer import CURRENT, Comparer, named
from speclab.lab.player import Player
from speclab.lab.runs import cache_bytes
from speclab.lab.state import LabState
from speclab.views.cache import size
from speclab.views.fork_tree import Fork

if TYPE_CHECKING:
    from speclab.engine.session import Session


class Ask(Protocol):
    """Queues work; `Commands.ask`."""

    def __call__(self, work: Callable[[], Any], name: str = "", key: str = "", *, yields: bool = False) -> Future[Any]:
        """Its result is None where it failed."""


class RunCommands:
    """As `Commands`, for whole runs.

    Args:
        state, player, comparer: what is shown, what talks to sessions, what runs strategies side by side.
        ask: queues work.
        choices: reads the pickers.
        follow: writes them, where another run is switched to.
    """

    def __init__(
        self,
        state: LabState,
        player: Player,
        comparer: Comparer,
        ask: Ask,
        choices: Callable[[], Choices],
        follow: Callable[[Choices], None],
    ) -> None:
        self._state, self._player, self._comparer = state, player, comparer
        self._ask, self._choices, self._follow = ask, choices, follow

    @property
    def forks(self) -> tuple[Fork, ...]:
        """Every run of the lab, as it stands."""
        return self._player.runs.told()

    @property
    def comparison(self) -> Comparison:
        """Every run on the prompt of the one shown, to be compared."""
        return self._player.runs.comparison()

    def switch(self, number: int) -> Future[Any]:
        """Goes on with another run."""
        return self._ask(lambda: self._switch(number), key="switch")

    def beside(self, number: int) -> Future[Any]:
        """Keeps a whole run beside the one shown, at the same cursor; once more lets it go."""
        return self._ask(lambda: self._beside(number))

    def drop(self, number: int) -> Future[Any]:
        """Lets a run go that is not shown."""
        return self._ask(lambda: self._drop(number))

    def compare(self, strategies: Sequence[Any], **settings: Any) -> Future[Any]:
        """Several strategies on the prompt of the pickers, one after another; `settings` change the session's."""
        return self._ask(lambda: self._compare(strategies, settings), "comparing", yields=True)

    def save_comparison(self, path: str | os.PathLike[str]) -> Future[Any]:
        """Writes the newest comparison as comma-separated values."""
        return self._ask(lambda: self._save(path), "saving")

    def _switch(self, number: int) -> Session:
        self._follow(self._player.runs.find(number).applied)
        return self._player.switch(number)

    def _beside(self, number: int) -> None:
        beside, runs = self._state.frame.beside, self._player.runs
        again = beside is not None and beside.number == number
        self._state.show(beside=None if again else runs.beside(number))

    def _drop(self, number: int) -> None:
        dropped = self._player.runs.drop(number)
        beside = self._state.frame.beside
        if beside is not None and beside.number == number:
            self._state.show(beside=None)
        self._state.forks = self.forks
        freed = size(cache_bytes(dropped.session.pair))
        self._state.status = f"Dropped run {number}, {dropped.name}: {freed} of KV caches."

    def _compare(self, strategies: Sequence[Any], settings: dict[str, Any]) -> Comparison:
        choices = self._choices()
        given = [choices.strategy if one == CURRENT else one for one in strategies]
        return self._comparer.compare(named(given), choices, **settings)

    def _save(self, path: str | os.PathLike[str]) -> Path:
        if self._state.compared is None:
            raise SettingsError("Nothing is compared yet: Compare runs the strategies, then their table can be saved.")
        if not str(path):
            raise SettingsError("No path is named: write one, such as comparison.csv.")
        written: Path = self._state.compared.save(path)
        self._state.status = f"Saved {written}."
        return written
