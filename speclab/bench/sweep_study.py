"""The trials of a sweep, in an Optuna study: what was tried, what came of it, what is left to try.

`DIR/study.db` is written by the process that was started and by no other, which a lock on the folder makes sure of. A
trial is done when its row is stored there. So a sweep that was killed at any moment goes on: rows that are stored
stand, and a trial without one is tried again under its own number. (Optuna's heartbeat would wait for minutes before it
called such a trial lost, and give it another number; the lock says at once that nobody works on it.)
"""

from __future__ import annotations

import io
import json
import math
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import optuna
import sqlalchemy.exc
from filelock import FileLock, Timeout
from optuna.exceptions import OptunaError
from optuna.trial import TrialState

from speclab.bench.sweep_settings import Distribution, Value, contains, suggest
from speclab.drafters import to_str
from speclab.drafters.base import Strategy
from speclab.errors import MeasurementError, SettingsError
from speclab.files import write_whole

if TYPE_CHECKING:
    import pyarrow

STUDY, TABLE = "study.db", "trials.parquet"
TABLE_SECONDS = 10
"""At most so often is the table written while a sweep runs."""


@dataclass(frozen=True)
class Row:
    """One trial. Trial 0 is the strategy with its defaults.

    Attributes:
        settings: the values of the fields swept over.
        code: the strategy as it is written in Python.
        objective: the figure swept for; None where there is none.
        figures: every figure of the run, of so many `prompts`.
        text: a digest of the tokens decoded: the same where the texts are.
        seconds: on the worker, which loads the models in its first trial.
        worker: its machine and process.
        failed: one sentence that says why there is no figure.
        pruned: whether it was not measured because its settings contradict each other.
    """

    trial: int
    strategy: str
    settings: dict[str, Value]
    code: str = ""
    objective: float | None = None
    figures: dict[str, float] = field(default_factory=dict)
    prompts: int = 0
    text: str = ""
    seconds: float = 0.0
    worker: str = ""
    failed: str | None = None
    pruned: bool = False

    def built(self, kind: type[Strategy]) -> Strategy:
        """The strategy of this trial."""
        return kind(**self.settings) if self.trial else kind()


@dataclass
class Ledger:
    """The trials of one folder.

    Attributes:
        points: the settings of a grid; None lets the study's sampler propose them.
        total: trials when all is done, the default included.
        rows: of the trials that are done, as they came.
    """

    folder: Path
    kind: type[Strategy]
    over: Mapping[str, Distribution]
    study: optuna.Study
    points: Sequence[Mapping[str, Value]] | None
    total: int
    rows: list[Row] = field(default_factory=list)
    _again: list[optuna.Trial] = field(default_factory=list)
    _taken: dict[int, optuna.Trial] = field(default_factory=dict)
    _begun: int = 0
    _table_written: float = -math.inf

    def resume(self) -> None:
        """Reads what is stored; trials without a row are to be tried again."""
        with storing(self.folder):
            trials = self.study.get_trials()
            for trial in trials:
                if (row := _stored(trial)) is not None:
                    self.rows.append(row)
                    self._tell(row)
                elif trial.state == TrialState.WAITING:  # killed between planning and asking
                    self._again.append(self.study.ask())
                else:
                    self._again.append(optuna.Trial(self.study, trial._trial_id))
        self._begun = len(trials)

    def take(self) -> Row | None:
        """The row of the next trial, as far as it is known; None where there is none left to begin."""
        default = self.kind().model_dump(include=set(self.over))
        inside = {name: value for name, value in default.items() if contains(self.over[name], value)}
        with storing(self.folder):
            if self._again:
                trial = self._again.pop(0)
            elif self._begun < self.total:
                number = self._begun
                points = [{}] * self.total if self.points is None else self.points
                self.study.enqueue_trial(dict(points[number - 1] if number else inside))
                trial = self.study.ask()
                self._begun += 1
            else:
                return None
            settings = {name: suggest(trial, name, self.over[name]) for name in (self.over if trial.number else inside)}
        self._taken[trial.number] = trial
        row = Row(trial.number, self.kind.__name__, settings if trial.number else default)
        try:
            return replace(row, code=f"speclab.{to_str(row.built(self.kind))}")
        except SettingsError as error:
            return replace(row, failed=str(error), pruned=True)

    def put(self, row: Row) -> None:
        """Stores what came of a trial: from here on it is done."""
        with storing(self.folder):
            self._taken.pop(row.trial).set_user_attr("row", json.dumps(asdict(row)))
            self._tell(row)
        self.rows.append(row)
        if monotonic() - self._table_written > TABLE_SECONDS:
            self.write_table()

    def write_table(self) -> None:
        """Writes `trials.parquet`, whole or not at all."""
        from pyarrow import parquet

        if self.rows:
            sink = io.BytesIO()
            parquet.write_table(table(self.rows), sink)
            write_whole(self.folder / TABLE, sink.getvalue())
            self._table_written = monotonic()

    def _tell(self, row: Row) -> None:
        state = TrialState.PRUNED if row.pruned else TrialState.FAIL if row.objective is None else TrialState.COMPLETE
        self.study.tell(row.trial, row.objective, state, skip_if_finished=True)


def read_rows(folder: str | os.PathLike[str]) -> list[Row]:
    """The trials that are done in the folder of a sweep, by number; the sweep may still run.

    Raises:
        MeasurementError: the folder holds no sweep.
    """
    place = Path(folder)
    if not (place / STUDY).is_file():
        raise MeasurementError(f"{folder} holds no trials of a sweep: name the folder that was given as --out.")
    with storing(place):
        return [row for trial in _study(place).get_trials(deepcopy=False) if (row := _stored(trial)) is not None]


def table(rows: Sequence[Row]) -> pyarrow.Table:
    """Rows by trial, with a column for each setting (`setting_…`) and each figure; `settings` holds JSON."""
    import pyarrow

    flat = [
        {name: value for name, value in asdict(row).items() if name != "figures"}
        | {"settings": json.dumps(row.settings)}
        | {f"setting_{name}": value for name, value in row.settings.items()}
        | row.figures
        for row in sorted(rows, key=lambda row: row.trial)
    ]
    columns = {name: [row.get(name) for row in flat] for name in {name: None for row in flat for name in row}}
    types = {"objective": pyarrow.float64(), "failed": pyarrow.string()}
    return pyarrow.table({name: pyarrow.array(values, types.get(name)) for name, values in columns.items()})


@contextmanager
def opened(folder: Path, plan: Mapping[str, Any], *, maximize: bool, resume: bool) -> Iterator[optuna.Study]:
    """The study of a sweep, new or as it was left; the folder is locked meanwhile.

    Raises:
        MeasurementError: it holds a sweep and `resume` is false, or another sweep; it is in use, full or damaged.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        lock.acquire(timeout=0)
    except Timeout:
        raise MeasurementError(f"{folder} is in use by another sweep: wait for it, or choose another --out") from None
    except OSError as error:
        raise MeasurementError(f"{folder} cannot be made ({error.strerror or error}): choose another --out") from None
    try:
        with storing(folder):
            study = _study(folder, maximize=maximize, seed=plan["seed"])
            known = study.user_attrs.get("plan", plan)
            differ = [f"{name} was {known.get(name)!r}, not {plan[name]!r}" for name in plan
                      if known.get(name) != plan[name]]  # fmt: skip
            if differ:
                raise MeasurementError(
                    f"{folder} holds another sweep ({'; '.join(differ)}): choose another --out, or ask for the same"
                )
            if (begun := len(study.get_trials(deepcopy=False))) and not resume:
                raise MeasurementError(
                    f"{folder} holds a sweep already, {begun} trials begun: go on with --resume or choose another --out"
                )
            study.set_user_attr("plan", dict(plan))
        yield study
    finally:
        lock.release()


@contextmanager
def storing(folder: Path) -> Iterator[None]:
    """Says in one sentence why the study cannot be written or read."""
    try:
        yield
    except (OptunaError, sqlalchemy.exc.SQLAlchemyError, sqlite3.Error, OSError) as error:
        cause = error.__cause__ or error
        first = str(getattr(cause, "orig", cause)).splitlines()[0][:160]
        raise MeasurementError(
            f"{folder / STUDY} cannot be written or read ({first}): make room or choose another folder; "
            "what is done is kept, and --resume goes on"
        ) from None


def _study(folder: Path, *, maximize: bool = True, seed: int = 0) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        storage=f"sqlite:///{folder / STUDY}", study_name="sweep", load_if_exists=True,
        direction="maximize" if maximize else "minimize",
    )  # fmt: skip
    # A sampler draws from its start again in each process: a seed of its own for each keeps the draws apart.
    study.sampler = optuna.samplers.TPESampler(seed=seed + len(study.get_trials(deepcopy=False)))
    return study


def _stored(trial: optuna.trial.FrozenTrial) -> Row | None:
    text = trial.user_attrs.get("row")
    return None if text is None else Row(**json.loads(text))
