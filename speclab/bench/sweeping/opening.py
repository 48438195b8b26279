"""Opens the folder of a sweep: a new study in it, or the one that is there and is the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from speclab.bench.sweeping.ledger import Ledger
from speclab.bench.sweeping.plan import Plan
from speclab.bench.sweeping.space import Axis, grid
from speclab.bench.sweeping.storage import STUDY, locked, stored
from speclab.drafters.base import Strategy
from speclab.errors import MeasurementError

if TYPE_CHECKING:
    import optuna


def open_ledger(
    folder: Path, plan: Plan, kind: type[Strategy], axes: Sequence[Axis], *, trials: int, resume: bool
) -> Ledger:
    """Opens the folder of a sweep, or makes it.

    Raises:
        MeasurementError: it holds a sweep and `resume` is false, or another sweep; it is in use, full or damaged.
    """
    points = grid(kind, [axis.listed() for axis in axes]) if plan.study == "grid" else None
    total = 1 + (trials if points is None else len(points))
    lock = locked(folder)
    try:
        with stored(folder):
            study = _study(folder, plan)
            begun = len(study.get_trials(deepcopy=False))
            if begun:
                _compare(folder, Plan.model_validate_json(study.user_attrs["plan"]), plan)
            else:
                study.set_user_attr("plan", plan.model_dump_json())
            ledger = Ledger(folder, kind, axes, study, total, points, lock)
            if begun and not resume:
                _refuse(folder, begun, total)
            ledger.resume()
    except BaseException:
        lock.release()
        raise
    return ledger


def _study(folder: Path, plan: Plan) -> optuna.Study:
    try:
        import optuna
    except ImportError:
        raise MeasurementError("A sweep needs optuna, which is not installed: pip install 'speclab[bench]'.") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = optuna.storages.RDBStorage(f"sqlite:///{folder / STUDY}")
    study = optuna.create_study(storage=storage, study_name="sweep", direction=plan.direction, load_if_exists=True)
    # A sampler draws from its start again in each process: a seed of its own for each keeps the draws apart.
    study.sampler = optuna.samplers.TPESampler(seed=plan.seed + len(study.get_trials(deepcopy=False)))
    return study


def _refuse(folder: Path, begun: int, total: int) -> None:
    raise MeasurementError(
        f"{folder} holds a sweep already, {begun} of {total} trials begun: go on with --resume, or choose another --out"
    )


def _compare(folder: Path, known: Plan, asked: Plan) -> None:
    before, now = known.model_dump(), asked.model_dump()
    differ = [name for name in now if before[name] != now[name]]
    if differ:
        told = "; ".join(f"{name} was {before[name]!r}, not {now[name]!r}" for name in differ)
        raise MeasurementError(f"{folder} holds another sweep ({told}): choose another --out, or ask for the same")
