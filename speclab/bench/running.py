"""A measurement with its folder: begun anew or gone on with, kept call by call, closed with a table and a report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import torch

from speclab.bench.asked import Asked, same
from speclab.bench.machine import machine, versions
from speclab.bench.measuring import measured
from speclab.bench.result import Result, RunInfo
from speclab.bench.store import RESULTS, RUN, Writer, read_results, write_parquet, write_run
from speclab.errors import MeasurementError


def run_info(asked: Asked) -> RunInfo:
    """What `run.json` says of a run that begins now."""
    protocol, device = asked.protocol, asked.pair.target.device
    return RunInfo(
        protocol=protocol.name,
        title=protocol.title,
        arguments=asked.arguments,
        contenders=tuple(dict.fromkeys(contender.name for contender in asked.contenders)),
        baseline=protocol.baseline,
        x_name=protocol.x_name,
        x2_name=protocol.x2_name,
        pair=asked.pair.describe(),
        machine=machine(device),
        versions=versions(),
        threads=torch.get_num_threads(),
        started=datetime.now(UTC),
        notes=asked.notes,
    )


def opened(asked: Asked, folder: Path, *, resume: bool) -> tuple[RunInfo, tuple[Result, ...]]:
    """Makes the folder ready, and gives what it holds already.

    Raises:
        MeasurementError: it holds results and `resume` is not set, or they are of other arguments, or it cannot be
            written.
    """
    if not (folder / RUN).exists():
        if (folder / RESULTS).exists():
            raise MeasurementError(f"{folder} holds {RESULTS} without {RUN}: choose another folder.")
        run = run_info(asked)
        write_run(folder, run)
        return run, ()
    stored = read_results(folder)
    if not resume:
        raise MeasurementError(
            f"{folder} holds {len(stored.results)} results of {stored.run.protocol}: add --resume to go on, "
            "or choose another folder."
        )
    differs = same(stored.run.arguments, asked.arguments)
    if differs:
        raise MeasurementError(
            f"{folder} was measured otherwise ({differs}): ask for the same, or choose another folder."
        )
    return stored.run, stored.results


def run(
    asked: Asked,
    folder: Path,
    info: RunInfo,
    before: Sequence[Result] = (),
    doing: Callable[[str], None] = lambda _: None,
) -> Iterator[Result]:
    """Measures what is missing; each result is on the disk before it is handed out.

    Raises:
        MeasurementError: the disk is full; what is done is kept.
    """
    with Writer(folder) as writer:
        for result in measured(asked, {result.key for result in before}, doing):
            writer.add(result)
            yield result
    write_run(folder, info.model_copy(update={"ended": datetime.now(UTC)}))


def made_of(folder: Path) -> Iterator[str]:
    """Writes parquet and report from the results of a folder; a sentence on each, or on why it could not be."""
    try:
        yield f"table: {write_parquet(folder, read_results(folder).results)}"
    except MeasurementError as error:
        yield str(error)
    from speclab.bench.report import write_report

    try:
        yield f"report: {write_report(folder)}"
    except MeasurementError as error:
        yield str(error)
