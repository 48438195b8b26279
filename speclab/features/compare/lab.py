"""The comparison of strategies in the lab."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speclab.drafters import strategies
from speclab.errors import SettingsError
from speclab.features.compare import Comparison, compare
from speclab.lab._commands import command
from speclab.lab._form import CURRENT
from speclab.lab._messages import Record, ToPage
from speclab.lab._parts import Part

if TYPE_CHECKING:
    from speclab.engine.session import Session


class Compared(ToPage):
    """A row for each strategy that was compared."""

    rows: list[Record]


class ComparePart(Part):
    """Decodes the prompt of the form with several strategies."""

    @command("Comparing", where="compare")
    def on_compare(self, names: list[str]) -> Comparison:
        """Decode the prompt with several strategies, one after another."""
        config = self.runs.ready_setup()
        if not names:
            raise SettingsError("No strategy is chosen: choose at least one of the list.")
        chosen = {}
        for name in names:
            if name == CURRENT:
                chosen[name] = config.strategy
            else:
                chosen[name] = strategies()[name]()
        pair = self.runs.load(config.models)

        def watch(name: str, session: Session) -> bool:
            self.runs.working = session
            if self.worker.due():
                share = len(session.token_ids) / config.settings.max_new_tokens
                done = (names.index(name) + share) / len(names)
                self.worker.report(f"Comparing: {name}", done)
            return self.worker.cancelled.is_set()

        settings = config.settings.model_dump()
        try:
            result = compare(pair, chosen, config.prompt, watch=watch, **settings)
        finally:
            self.runs.working = None
        self.state.show("compared", rows=rows_of(result))
        return result


PARTS = (ComparePart,)


def rows_of(result: Comparison) -> list[Record]:
    """A comparison for the page: its metrics, and where a text differs."""
    rows = []
    for run in result.runs:
        row: Record = {}
        if run.trace:
            row |= run.trace.metrics.as_dict()
        row["name"] = run.name
        row["problem"] = run.problem
        row["differs_at"] = result.differs_at(run)
        row["tokens"] = len(run.token_ids)
        rows.append(row)
    return rows
