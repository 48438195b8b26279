"""What a sweep has tried, and what came of it: an Optuna study in `DIR/study.db`, which only the driver writes.

A trial is committed there with its row before anything else says that it is done; the parquet parts follow from it.
So a sweep that was killed at any moment goes on: what was committed stands, what was under way is tried again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speclab.bench.sweeping.plan import Job
from speclab.bench.sweeping.rows import Row, part_path, write_part
from speclab.bench.sweeping.space import Axis, Value
from speclab.bench.sweeping.storage import stored
from speclab.drafters.base import Strategy
from speclab.errors import SettingsError

if TYPE_CHECKING:
    import optuna


@dataclass(slots=True)
class Ledger:
    """The trials of one folder. `opening.open_ledger` makes it; `close` lets others open the folder.

    Attributes:
        rows: of the trials that are done, as they came.
        total: trials when all is done, the default included.
    """

    folder: Path
    kind: type[Strategy]
    axes: Sequence[Axis]
    study: optuna.Study
    total: int
    points: Sequence[Mapping[str, Value]] | None
    lock: Any
    rows: list[Row] = field(default_factory=list)
    made: int = 0
    again: list[Job] = field(default_factory=list)

    def take(self) -> Job | None:
        """The next trial; None where there is none left to begin."""
        if self.again:
            return self.again.pop()
        if self.made >= self.total:
            return None
        with stored(self.folder):
            if not self._begun():
                self.study.enqueue_trial(self._fixed())
            job = self._job(self.study.ask())
        self.made += 1
        return job

    def put(self, job: Job, row: Row) -> Row:
        """Commits what came of a trial: to the study, then to parquet."""
        with stored(self.folder):
            job.trial.set_user_attr("row", row.model_dump_json())
            self._tell(row)
        write_part(self.folder, row, self._types())
        self.rows.append(row)
        return row

    def close(self) -> None:
        """Lets go of the folder."""
        self.lock.release()

    def resume(self) -> None:
        """Reads what is there; completes what was cut short between two writes; trials under way are begun again."""
        import optuna

        trials = [trial for trial in self.study.get_trials() if trial.state != optuna.trial.TrialState.WAITING]
        self.made = len(trials)
        for trial in trials:
            text = trial.user_attrs.get("row")
            if text is None:
                self.again.append(self._job(optuna.Trial(self.study, trial._trial_id)))
                continue
            row = Row.model_validate_json(text)
            if not trial.state.is_finished():
                self._tell(row)
            if not part_path(self.folder, row.trial).exists():
                write_part(self.folder, row, self._types())
            self.rows.append(row)
        self.again.reverse()

    def _begun(self) -> bool:
        """Whether a trial was planned and not asked for: the driver was killed in between."""
        from optuna.trial import TrialState

        return bool(self.study.get_trials(deepcopy=False, states=(TrialState.WAITING,)))

    def _fixed(self) -> dict[str, Value]:
        """The settings of the next trial, where they are given: the default first, then the points of a grid."""
        if self.made == 0:
            return {axis.name: value for axis in self.axes if (value := self._default(axis)) in axis}
        return dict(self.points[self.made - 1]) if self.points is not None else {}

    def _default(self, axis: Axis) -> Value:
        value: Value = self.kind().model_dump()[axis.name]
        return value

    def _job(self, trial: optuna.Trial) -> Job:
        if trial.number == 0:
            for axis in self.axes:
                if self._default(axis) in axis:
                    axis.suggest(trial)
            return Job(trial, {axis.name: self._default(axis) for axis in self.axes}, self.kind())
        settings = {axis.name: axis.suggest(trial) for axis in self.axes}
        try:
            return Job(trial, settings, self.kind(**settings))
        except SettingsError as error:
            return Job(trial, settings, None, str(error))

    def _tell(self, row: Row) -> None:
        from optuna.trial import TrialState

        if row.objective is not None:
            self.study.tell(row.trial, row.objective)
        else:
            self.study.tell(row.trial, state=TrialState.PRUNED if row.pruned else TrialState.FAIL)

    def _types(self) -> dict[str, Any]:
        return {axis.name: self.kind.model_fields[axis.name].annotation for axis in self.axes}
