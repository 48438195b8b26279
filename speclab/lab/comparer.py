"""Runs strategies on the prompt of the pickers, on the worker's thread, and shows in the state how far each came."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any

from speclab.analysis.compare import Comparison
from speclab.errors import SettingsError
from speclab.lab.choices import Choices
from speclab.lab.player import REDRAW_SECONDS, Player
from speclab.lab.state import LabState, Progress
from speclab.lab.written import written_prompt
from speclab.views.compared import text_words

if TYPE_CHECKING:
    from speclab.drafters.base import Strategy
    from speclab.engine.session import Session

CURRENT = "as set above"
"""Stands for the strategy in the pickers, with its settings."""


class Comparer:
    """One comparison at a time; the lab's own session stays as it is."""

    def __init__(self, state: LabState, player: Player, cancelled: Event) -> None:
        self._state, self._player, self._cancelled = state, player, cancelled

    def compare(self, strategies: Mapping[str, Strategy], choices: Choices, **settings: Any) -> Comparison:
        """Every strategy on the same prompt; what had run when it was cancelled is kept.

        Raises:
            SpeclabError: no strategy, or the prompt or a setting fits none.
        """
        from speclab.analysis.compare import compare
        from speclab.settings import SessionSettings

        if not strategies:
            raise SettingsError("No strategy is chosen: mark at least one to run.")
        pair = self._player.models.load(choices.models)
        chosen = SessionSettings(**{**choices.settings, **settings})
        self._tokens, self._drawn = dict.fromkeys(strategies, 0), 0.0
        self._most = chosen.max_new_tokens
        self._state.status = f"Comparing on the prompt above: {', '.join(strategies)}…"
        try:
            found = compare(
                pair, strategies, written_prompt(pair, choices.prompt), watch=self._watch, **chosen.model_dump()
            )
        finally:
            self._player.beside = self._state.progress = None
        self._state.compared = found
        words = f"Compared {sum(entry.complete for entry in found.runs)} of {len(strategies)} strategies"
        self._state.status = f"{words}{', then stopped' if found.stopped else ''}. {text_words(found)}"
        return found

    def _watch(self, name: str, session: Session) -> bool:
        """Shows progress, at the pace of a run; whether to stop."""
        self._player.beside = session
        begins = not self._tokens[name]
        self._tokens[name] = len(session.token_ids)
        if begins or monotonic() - self._drawn > REDRAW_SECONDS:
            self._drawn = monotonic()
            self._state.progress = Progress(dict(self._tokens), self._most, name)
        return self._cancelled.is_set()


def named(strategies: Iterable[Any]) -> dict[str, Strategy]:
    """Strategies, classes of them or their names, by the name each goes by: what it changes of the default included.

    Raises:
        SettingsError: there is no such strategy.
    """
    found: dict[str, Strategy] = {}
    for given in strategies:
        strategy = _strategy(given)
        name = called(strategy)
        twins = sum(other == name or other.startswith(f"{name} (") for other in found)
        found[f"{name} ({twins + 1})" if name in found else name] = strategy
    return found


def called(strategy: Strategy) -> str:
    """`DynaTree`, `DynaTree, node budget 24`: its name, what sets it apart from its default or nearest preset."""
    kind = type(strategy)
    known = {"": kind(), **kind.presets()}
    changes = {name: _changes(settings, strategy) for name, settings in known.items()}
    nearest = min(changes, key=lambda name: len(changes[name]))
    changed = changes[nearest]
    more = [f"{len(changed) - 3} more"] if len(changed) > 3 else []
    return ", ".join([kind.__name__, *([nearest] if nearest else []), *changed[:3], *more])


def _changes(old: Strategy, new: Strategy) -> list[str]:
    before, after = old.model_dump(), new.model_dump()
    return [
        name.replace("_", " ") + ("" if isinstance(value, dict) else f" {value}")
        for name, value in after.items()
        if before[name] != value
    ]


def _strategy(given: Any) -> Strategy:
    from speclab.drafters import strategies
    from speclab.drafters.base import checked

    if isinstance(given, str):
        if given not in strategies():
            raise SettingsError(f"There is no strategy {given!r}: choose of {', '.join(strategies())}.")
        return strategies()[given]()
    return checked(given() if isinstance(given, type) else given)
