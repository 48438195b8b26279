"""What a sweep varies and what came of it: ranges as Optuna distributions, and the trials, in an Optuna study.

`max_depth=3:8` is read as a distribution within the bounds of the strategy's field. `DIR/study.db` is written by the
process that was started and by no other, which a lock on the folder makes sure of. A trial is done when its row is
stored there. So a sweep that was killed at any moment goes on: rows that are stored stand, and a trial without one is
tried again under its own number. (Optuna's heartbeat would wait for minutes before it called such a trial lost, and
give it another number; the lock says at once that nobody works on it.)
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from itertools import product
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, cast, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from speclab.drafters import to_str
from speclab.drafters.base import Strategy
from speclab.errors import MeasurementError, SettingsError
from speclab.files import write_whole
from speclab.settings import bounds, parse_value

try:
    import optuna
    import sqlalchemy.exc
    from filelock import FileLock, Timeout
    from optuna import Trial
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
    from optuna.exceptions import OptunaError
    from optuna.trial import TrialState
except ImportError:
    raise MeasurementError("A sweep needs optuna, which is not installed: pip install 'speclab[bench]'.") from None

if TYPE_CHECKING:
    import pyarrow

Distribution = CategoricalDistribution | FloatDistribution | IntDistribution
Value = bool | int | float | str | None
Asked = str | Iterable[Value] | None
"""`low:high`, `low:high:step` or `v1,v2` as text; values; None for all that the field itself allows."""

LARGEST_GRID = 10_000
"""Settings of a grid; so that a forgotten step is noticed before the sweep and not days later."""

_NUMBER = r"\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*"
_RANGE = re.compile(f"{_NUMBER}:{_NUMBER}(?::{_NUMBER})?")
_PARTS = re.compile(r"""(?:"[^"]*"|'[^']*'|\([^()]*\)|\[[^\[\]]*\]|[^,])+""")  # commas in quotes and brackets stay


def read_over(kind: type[Strategy], over: Mapping[str, Asked] | Sequence[str]) -> dict[str, Distribution]:
    """The fields to sweep, from texts such as `high_confidence=0.7:0.9:0.1`, or from values by name.

    Raises:
        SettingsError: there is no such field, or it does not take such a value.
    """
    if not isinstance(over, Mapping):
        parted = [text.partition("=") for text in over]
        over = {name.strip(): rest if equals else None for name, equals, rest in parted}
        if len(over) < len(parted):
            raise SettingsError("A setting is swept over twice: give all its values in one --over.")
    if not over:
        raise SettingsError(
            f"Nothing to sweep over: name a setting of {kind.__name__} ({', '.join(kind.model_fields)})."
        )
    return {name: _distribution(kind, name, asked) for name, asked in over.items()}


def grid(kind: type[Strategy], over: Mapping[str, Distribution]) -> list[dict[str, Value]]:
    """Every combination except the default settings, which a sweep measures anyhow.

    Raises:
        SettingsError: there are too many, or a range has no step.
    """
    for name, own in over.items():
        if isinstance(own, FloatDistribution) and own.step is None:
            raise SettingsError(
                f"A grid over {name} needs a step, as in {name}={own.low}:{own.high}:0.1, or a list of values; "
                "or take --study optuna"
            )
    listed = [_values(own) for own in over.values()]
    size = math.prod(map(len, listed))
    if size > LARGEST_GRID:
        raise SettingsError(
            f"That grid has {size:,} settings: give wider steps or fewer values, or --study optuna with --trials"
        )
    default = kind().model_dump(include=set(over))
    points = (dict(zip(over, values, strict=True)) for values in product(*listed))
    return [point for point in points if point != default]


def suggest(trial: Trial, name: str, own: Distribution) -> Value:
    """The value that the study's sampler proposes; a float is rounded so that it can be pasted as code."""
    if isinstance(own, CategoricalDistribution):
        return trial.suggest_categorical(name, own.choices)
    if isinstance(own, IntDistribution):
        return trial.suggest_int(name, own.low, own.high, step=own.step, log=own.log)
    value = trial.suggest_float(name, own.low, own.high, step=own.step, log=own.log)
    short = float(f"{value:.{4 if own.step is None else 12}g}")  # 0.007036 and 0.8, not 0.7999999999999999
    return short if own.low <= short <= own.high else value


def contains(own: Distribution, value: Value) -> bool:
    """Whether a value is one that the distribution can give."""
    if isinstance(own, FloatDistribution) and own.step is None:
        return isinstance(value, int | float) and own.low <= value <= own.high
    return value in _values(own)


def takes(field: FieldInfo) -> str:
    """What a field takes, in words: `0 to 1`, or its choices."""
    if choices := _choices(field):
        return ", ".join(map(str, choices))
    low, high = bounds(field)
    return "any" if low is None and high is None else f"{float(low or 0):.6g} to {float(high or math.inf):.6g}"


def _choices(field: FieldInfo) -> tuple[Any, ...]:
    if get_origin(field.annotation) is Literal:
        return get_args(field.annotation)
    return (False, True) if field.annotation is bool else ()


def _distribution(kind: type[Strategy], name: str, asked: Asked) -> Distribution:
    if name not in kind.model_fields:
        kind(**{name: asked})  # raises, and names the settings that there are
    field = kind.model_fields[name]
    kinds = {field.annotation, *get_args(field.annotation)}  # of a number that may also be None, too
    whole = int in kinds
    if asked is None:
        if choices := _choices(field):
            return CategoricalDistribution(choices)
        low, high = bounds(field)
        if low is None or high is None:
            raise SettingsError(f"{kind.__name__}: {name} has no range of its own: list its values, {name}=v1,v2")
        return _numbers(low, high, 1 if whole else None, whole=whole)
    ends = _RANGE.fullmatch(asked) if isinstance(asked, str) and kinds & {int, float} else None
    if ends is not None:
        first, last = (Decimal(str(_checked(kind, name, parse_value(text)))) for text in ends.groups()[:2])
        step = Decimal(ends[3]) if ends[3] else Decimal(1) if whole else None
        if first > last or (step is not None and (step <= 0 or (whole and step % 1))):
            raise SettingsError(f"{name}={asked} is no range: low:high, or low:high:step")
        if step is not None:
            last = first + (last - first) // step * step
        return _numbers(float(first), float(last), float(step) if step else None, whole=whole)
    given = [parse_value(part.strip()) for part in _PARTS.findall(asked)] if isinstance(asked, str) else list(asked)
    values = list(dict.fromkeys(_checked(kind, name, value) for value in given))
    if not values:
        raise SettingsError(f"{name} has no values: write {name}=v1,v2 or {name}=low:high:step")
    return CategoricalDistribution(values)


def _numbers(low: float, high: float, step: float | None, *, whole: bool) -> Distribution:
    """A positive range over two to nine orders of magnitude is searched on a logarithmic scale."""
    log = step in {None, 1} and low > 0 and 100 <= high / low <= 1e9
    if whole:
        return IntDistribution(int(low), int(high), step=int(step or 1), log=log)
    return FloatDistribution(low, high, step=step, log=log and step is None)


def _values(own: Distribution) -> Sequence[Value]:
    """Every value of a distribution that has so many; `0.3`, and not `0.30000000000000004`."""
    if isinstance(own, CategoricalDistribution):
        return cast("Sequence[Value]", own.choices)
    if isinstance(own, IntDistribution):
        return range(own.low, own.high + 1, own.step)
    low, high, step = (Decimal(str(number)) for number in (own.low, own.high, own.step))
    return [float(low + place * step) for place in range(int((high - low) / step) + 1)]


def _checked(kind: type[Strategy], name: str, value: Any) -> Value:
    """The value as the field keeps it; one that only contradicts another field's default may be tried."""
    try:
        return cast("Value", kind(**{name: value}).model_dump()[name])
    except SettingsError as error:
        reason = error.__context__
        if isinstance(reason, ValidationError) and not reason.errors()[0]["loc"]:
            return float(value) if kind.model_fields[name].annotation is float else cast("Value", value)
        raise SettingsError(f"{error}; it takes {takes(kind.model_fields[name])}") from None


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
