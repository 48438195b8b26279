"""`sweep` tries settings of a strategy on texts that are known, keeps every trial, and finds the best.

`DIR/study.db` is an Optuna study. A trial is put there whole when it is done, and the folder is locked meanwhile: what
was killed at any moment goes on with the trials that are missing, each under its own number.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

from filelock import FileLock, Timeout

from speclab.bench.sweep_ranges import Asked, Distribution, Value, grid, read_over, short
from speclab.bench.sweep_texts import FIGURES, LESS_IS_BETTER, MODELLED, Measured, Texts
from speclab.drafters import to_str
from speclab.drafters.base import Strategy
from speclab.errors import MeasurementError, SpeclabError
from speclab.files import write_table

try:
    import optuna
    import sqlalchemy.exc
    from optuna.exceptions import OptunaError
    from optuna.trial import FrozenTrial, TrialState
except ImportError:
    raise MeasurementError("A sweep needs optuna, which is not installed: pip install 'speclab[bench]'.") from None

Study = Literal["grid", "optuna"]
VERSION = 3
"""Of what a study holds; a sweep goes on only in a study of the same version."""
STUDY, TABLE = "study.db", "trials.parquet"


@dataclass(frozen=True)
class Row:
    """One trial. Trial 0 is the strategy with its defaults.

    Attributes:
        settings: the values of the fields swept over.
        code: the strategy as it is written in Python.
        objective: the figure swept for; None where there is none.
        figures: all that were measured, of so many `texts`.
        inexact: why decoding might give other figures; empty where it would not.
        seconds: that the trial took; its first one in a process decodes the texts.
        failed: one sentence that says why there is no figure.
    """

    trial: int
    strategy: str
    settings: dict[str, Value]
    code: str = ""
    objective: float | None = None
    figures: dict[str, float] = field(default_factory=dict)
    texts: int = 0
    inexact: str = ""
    seconds: float = 0.0
    failed: str | None = None

    def built(self, kind: type[Strategy]) -> Strategy:
        """The strategy of this trial."""
        return kind(**self.settings) if self.trial else kind()


Measure = Callable[[Strategy], Measured]
Report = Callable[[Row, int, int], None]
"""Is called with each trial: its row, how many are done, and how many there are in all."""


@dataclass(frozen=True)
class Sweep:
    """The trials of a sweep, by number."""

    kind: type[Strategy]
    objective: str
    rows: tuple[Row, ...]
    folder: Path

    @property
    def default(self) -> Row:
        """Trial 0: the strategy with its defaults."""
        return self.rows[0]

    @property
    def ranked(self) -> tuple[Row, ...]:
        """Trials that have a figure, the best first; of equal ones the earliest, so the default before its like."""
        sign = 1 if self.objective in LESS_IS_BETTER else -1
        measured = [row for row in self.rows if row.objective is not None]
        return tuple(sorted(measured, key=lambda row: sign * (row.objective or 0.0)))

    @property
    def best(self) -> Row:
        """The best trial.

        Raises:
            MeasurementError: no trial has a figure.
        """
        if not self.ranked:
            raise MeasurementError(
                f"None of the {len(self.rows)} trials gave {self.objective}; the first says: {self.rows[0].failed}"
            )
        return self.ranked[0]

    @property
    def strategy(self) -> Strategy:
        """The best strategy, to decode with."""
        return self.best.built(self.kind)

    def notes(self) -> list[str]:
        """What to know before the best setting is believed, in sentences."""
        on = f" was chosen on {self.best.texts} texts, and" if self.best.texts else ""
        notes = [f"The best{on} looks better on what it was chosen on than it is: try others."]
        if self.objective in MODELLED:
            notes.append(
                f"{self.objective} is modelled from the measured cost of every pass; a drafter's own work is not in it."
            )
        elif self.objective in FIGURES:
            notes.append(
                f"{self.objective} is counted: the same on any machine, and blind to what a forward pass costs, so "
                "larger trees tend to win; --objective throughput weighs that too."
            )
        if self.best.inexact:
            notes.append(f"Of the best, decoding may give other figures: {self.best.inexact}.")
        if failed := [row for row in self.rows if row.failed is not None]:
            notes.append(
                f"{len(failed)} of {len(self.rows)} trials have no figure; trial {failed[0].trial}: {failed[0].failed}"
            )
        return notes


def sweep(
    strategy: type[Strategy],
    over: Mapping[str, Asked] | Sequence[str],
    out: str | os.PathLike[str],
    *,
    study: Study = "grid",
    trials: int = 20,
    objective: str = "tokens_per_iteration",
    measure: Measure | None = None,
    executor: Executor | None = None,
    workers: int = 1,
    resume: bool = False,
    seed: int = 0,
    report: Report | None = None,
) -> Sweep:
    """Tries settings of a strategy and finds the best; the defaults are trial 0. See `docs/sweeps.md`.

    Args:
        strategy, over: a class; its fields, as texts of the command line or as values by name (None: all allowed).
        out: a folder for `study.db` and `trials.parquet`; with `resume`, one that holds this sweep.
        objective: a figure of what `measure` returns for a strategy.
        measure: by default replays on the shipped prompts.
        executor: of `concurrent.futures`, a Dask client's among them; by default this process.
        workers: trials at once, with an executor.

    Raises:
        SettingsError, MeasurementError: in one sentence; what is done is kept, as after Ctrl-C.
    """
    from speclab.prompts import examples

    named = read_over(strategy, over)
    points = grid(strategy, named) if study == "grid" else None
    measure = measure or Texts({}, [prompt.text for prompt in examples()], name="shipped")
    if isinstance(measure, Texts):
        _check_figure(objective, FIGURES)
    plan = {
        "version": VERSION, "strategy": strategy.__name__, "over": {name: str(own) for name, own in named.items()},
        "study": study, "objective": objective, "seed": seed, "measured": _described(measure),
    }  # fmt: skip
    total = 1 + (trials if points is None else len(points))
    with _opened(Path(out), plan, resume=resume) as store:
        ledger = _Ledger(store, Path(out), strategy, named, points, total, seed)
        try:
            _run(ledger, objective, measure, executor or _Here(), workers, report)
        except BaseException:
            with suppress(SpeclabError):  # a full disk is said already
                _write_table(Path(out), ledger.rows)
            raise
        _write_table(Path(out), ledger.rows)
    return Sweep(strategy, objective, tuple(sorted(ledger.rows, key=lambda row: row.trial)), Path(out))


def read_rows(folder: str | os.PathLike[str]) -> list[Row]:
    """The trials that are done in the folder of a sweep, by number; the sweep may still run.

    Raises:
        MeasurementError: the folder holds no sweep.
    """
    place = Path(folder)
    if not (place / STUDY).is_file():
        raise MeasurementError(f"{folder} holds no trials of a sweep: name the folder that was given as --out.")
    with _storing(place):
        trials = optuna.load_study(study_name=None, storage=_storage(place)).trials
    return sorted(map(_row, trials), key=lambda row: row.trial)


def _run(
    ledger: _Ledger, objective: str, measure: Measure, pool: Executor, workers: int, report: Report | None
) -> None:
    """Gives trials to the pool, so many at once, and stores what comes back."""
    running: dict[Future[Row], optuna.Trial | None] = {}
    while True:
        try:
            while len(running) < workers and (taken := ledger.take()):
                row, trial = taken
                running[pool.submit(_measured, measure, ledger.kind, row, objective)] = trial
            done = [(future.result(), future) for future in wait(running, return_when=FIRST_COMPLETED).done]
        except SpeclabError:
            raise
        except Exception as error:  # noqa: BLE001  # of the pool: of others `_measured` makes a row
            raise MeasurementError(
                f"The workers cannot run trials ({type(error).__name__}: {str(error)[:160]}): check that they can "
                "import speclab and what measures; what is done is kept, and --resume goes on"
            ) from None
        if not done:
            return
        for row, future in done:
            ledger.put(row, running.pop(future))
            if report is not None:
                report(row, len(ledger.rows), ledger.total)


class _Here(Executor):
    """This process: a trial is done when it is handed in."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except SpeclabError as error:
            future.set_exception(error)
        return future


def _measured(measure: Measure, kind: type[Strategy], row: Row, objective: str) -> Row:
    """In the pool: the row of a trial.

    Raises:
        MeasurementError: nothing can be measured here, whatever the strategy.
    """
    began = perf_counter()
    try:
        strategy = row.built(kind)
        row = replace(row, code=f"speclab.{to_str(strategy)}")
        found = measure(strategy)
    except MeasurementError:
        raise
    except Exception as error:  # noqa: BLE001  # whatever a strategy raises is a row that says so
        sentence = str(error) if isinstance(error, SpeclabError) else f"{type(error).__name__}: {error}"
        return replace(row, failed=next(iter(sentence.splitlines()), "")[:300], seconds=perf_counter() - began)
    _check_figure(objective, found.figures)
    row = replace(row, texts=found.texts, inexact=found.inexact, seconds=perf_counter() - began)
    value = float(found.figures[objective])
    if not math.isfinite(value):
        return replace(row, failed=f"{objective} is {value}, which cannot be compared.")
    return replace(row, figures=dict(found.figures), objective=value)


class _Ledger:
    """The trials of one folder: what is done, and what is left."""

    def __init__(
        self, store: optuna.Study, folder: Path, kind: type[Strategy], over: Mapping[str, Distribution],
        points: Sequence[dict[str, Value]] | None, total: int, seed: int,
    ) -> None:  # fmt: skip
        self._store, self._folder, self.kind, self._over, self.total = store, folder, kind, over, total
        with _storing(folder):
            done = store.trials
        self.rows = [_row(trial) for trial in done]
        numbers = {row.trial for row in self.rows}
        self._left = iter([number for number in range(total) if number not in numbers])
        self._fixed = [kind().model_dump(include=set(over)), *(points or ())]
        # A sampler draws from its start again in each process: a seed of its own for each keeps the draws apart.
        sampler = optuna.samplers.TPESampler(seed=seed + len(done))
        self._sampler = optuna.create_study(direction=store.direction, sampler=sampler)
        self._sampler.add_trials(done)

    def take(self) -> tuple[Row, optuna.Trial | None] | None:
        """The next trial, and what the sampler calls it if it proposed it; None where there is none left to begin."""
        number, trial = next(self._left, None), None
        if number is None:
            return None
        if number < len(self._fixed):
            settings = self._fixed[number]
        else:
            trial = self._sampler.ask(dict(self._over))
            settings = {name: short(self._over[name], value) for name, value in trial.params.items()}
        return Row(number, self.kind.__name__, settings), trial

    def put(self, row: Row, trial: optuna.Trial | None) -> None:
        """Stores what came of a trial: from here on it is done."""
        state = TrialState.PRUNED if row.objective is None else TrialState.COMPLETE  # the sampler looks elsewhere then
        kept = {"row": json.dumps(asdict(row))}
        done = partial(optuna.trial.create_trial, state=state, value=row.objective, user_attrs=kept)
        try:
            stored = done(params=row.settings, distributions=dict(self._over))
        except ValueError:  # the default, outside the ranges asked for
            stored = done()
        with _storing(self._folder):
            self._store.add_trial(stored)
        if trial is None:
            self._sampler.add_trial(stored)
        else:
            self._sampler.tell(trial, row.objective, state)
        self.rows.append(row)


@contextmanager
def _opened(folder: Path, plan: Mapping[str, Any], *, resume: bool) -> Iterator[optuna.Study]:
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
        with _storing(folder):
            study = _study(folder, plan["objective"])
            known = study.user_attrs.get("plan", plan)
            differ = [f"{name} was {known.get(name)!r}, not {plan[name]!r}" for name in plan
                      if known.get(name) != plan[name]]  # fmt: skip
            if differ:
                raise MeasurementError(
                    f"{folder} holds another sweep ({'; '.join(differ)}): choose another --out, or ask for the same"
                )
            if (begun := len(study.trials)) and not resume:
                raise MeasurementError(
                    f"{folder} holds a sweep already, {begun} trials done: go on with --resume or choose another --out"
                )
            study.set_user_attr("plan", dict(plan))
        yield study
    finally:
        lock.release()


@contextmanager
def _storing(folder: Path) -> Iterator[None]:
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


def _storage(folder: Path) -> str:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return f"sqlite:///{folder / STUDY}"


def _study(folder: Path, objective: str) -> optuna.Study:
    return optuna.create_study(
        storage=_storage(folder), study_name="sweep", load_if_exists=True,
        direction="minimize" if objective in LESS_IS_BETTER else "maximize",
    )  # fmt: skip


def _row(trial: FrozenTrial) -> Row:
    return Row(**json.loads(trial.user_attrs["row"]))


def _write_table(folder: Path, rows: Sequence[Row]) -> None:
    """Writes `trials.parquet`: a column for each field, each setting (`setting_…`) and each figure."""
    flat = [
        {name: value for name, value in asdict(row).items() if name != "figures"}
        | {"settings": json.dumps(row.settings)}
        | {f"setting_{name}": value for name, value in row.settings.items()}
        | row.figures
        for row in sorted(rows, key=lambda row: row.trial)
    ]
    names = {name: None for row in flat for name in row}
    write_table(folder / TABLE, {name: [row.get(name) for row in flat] for name in names}, kind=MeasurementError)


def _check_figure(name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise MeasurementError(f"There is no figure {name!r}: choose one of {', '.join(known)}")


def _described(measure: Measure) -> dict[str, Any]:
    """Of what measures, for records: what it says itself, or its name."""
    if isinstance(measure, Texts):
        return measure.describe()
    return {"function": f"{measure.__module__}.{getattr(measure, '__qualname__', type(measure).__qualname__)}"}
