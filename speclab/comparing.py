"""Runs several strategies on one prompt, one after another, with records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from speclab.drafters.base import Strategy
from speclab.errors import SpeclabError
from speclab.models.pair import ModelPair
from speclab.session import Session
from speclab.settings import SessionSettings
from speclab.side_by_side import Entry, SideBySide
from speclab.trace import Step

Watch = Callable[[str, Session], bool]


def compare(
    pair: ModelPair,
    strategies: Mapping[str, Strategy],
    prompt: str | Sequence[int],
    *,
    watch: Watch | None = None,
    **settings: Any,
) -> SideBySide:
    """Decodes the prompt with each strategy, to the end of its text.

    None takes over what another has carried from prompt to prompt. A strategy that these models cannot run becomes an
    entry with its problem, and the others go on.

    Args:
        pair: the models; every run takes caches of its own, and gives them back.
        strategies: by the name its row gets.
        prompt: text or token ids.
        watch: called with a run's name and session before its first iteration and after each; True ends everything,
            what was decoded stays.
        settings: of the sessions, as of `Session`.

    Raises:
        SpeclabError: the prompt or a setting fits none of them.
    """
    SessionSettings(**settings)
    prompt_ids = pair.encode(prompt)
    entries: list[Entry] = []
    for name, strategy in strategies.items():
        entry, ended = _ran(replace(pair, carried={}), name, strategy, prompt_ids, watch or _on, settings)
        entries.append(entry)
        if ended:
            return SideBySide(tuple(entries), stopped=True)
    return SideBySide(tuple(entries))


def _on(_name: str, _session: Session) -> bool:
    return False


def _ran(
    pair: ModelPair, name: str, strategy: Strategy, prompt_ids: list[int], watch: Watch, settings: dict[str, Any]
) -> tuple[Entry, bool]:
    try:
        session = Session(pair, strategy, prompt_ids, **settings)
    except SpeclabError as error:
        return Entry(name, None, str(error)), False
    ended = watch(name, session)

    def each(_: Step) -> bool:
        nonlocal ended
        ended = watch(name, session)
        return ended

    problem = ""
    try:
        if not ended:
            session.run(until=each)
    except SpeclabError as error:
        problem = str(error)
    ended = ended or (not problem and not session.finished)  # cancelled inside an iteration
    return Entry(name, session.trace, "stopped before its end" if ended and not session.finished else problem), ended
