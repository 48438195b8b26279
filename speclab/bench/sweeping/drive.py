"""Trials out of a study, to workers and back, until all are done."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import dataclass, field, replace

from speclab.bench.sweeping.ledger import Ledger
from speclab.bench.sweeping.plan import Job, row_of
from speclab.bench.sweeping.rows import Row
from speclab.bench.sweeping.workers import Measure, Outcome, Workers
from speclab.drafters.base import Strategy
from speclab.errors import MeasurementError

DEATHS = 3
"""Workers that a trial may take with it before it counts as failed; a default of ours."""

Report = Callable[[Row, int, int], None]
"""Hears of each trial: its row, how many are done, and how many there are in all."""


def run(ledger: Ledger, objective: str, measure: Measure, start: Callable[[], Workers], report: Report) -> None:
    """Runs all that the ledger has left to do, on workers that are started for it and ended after it."""
    workers, ended = start(), False
    try:
        _Drive(ledger, objective, measure, workers, report).run()
        ended = True
    finally:
        workers.close(now=not ended)


@dataclass
class _Drive:
    ledger: Ledger
    objective: str
    measure: Measure
    workers: Workers
    report: Report
    running: dict[Future[Outcome], Job] = field(default_factory=dict)

    def run(self) -> None:
        while self._begin():
            done, _ = wait(self.running, return_when=FIRST_COMPLETED)
            broken = []
            for future in done:
                job = self.running.pop(future)
                outcome = self._outcome(future)
                if outcome is None:
                    broken.append(job)
                else:
                    self._put(job, _row(job, outcome, self.objective))
            if broken:
                self._retry(broken)

    def _begin(self) -> bool:
        """Fills the workers; whether anything is under way."""
        while len(self.running) < self.workers.slots and self._may_begin() and (job := self.ledger.take()):
            if job.strategy is None:
                self._put(job, row_of(job, failed=job.why, pruned=True))
            else:
                self.running[self._submitted(job.strategy)] = job
        return bool(self.running)

    def _may_begin(self) -> bool:
        """A trial that lost a worker before runs alone, so that no other one pays for it."""
        return not any(job.deaths for job in self.running.values())

    def _retry(self, broken: list[Job]) -> None:
        """A pool that broke has taken every trial under way with it, whichever of them it was."""
        broken += self.running.values()
        self.running.clear()
        for job in broken:
            if job.deaths + 1 < DEATHS:
                self.ledger.again.append(replace(job, deaths=job.deaths + 1))
            else:
                self._put(job, row_of(job, failed=_DIED))
        self.workers.renew()

    def _submitted(self, strategy: Strategy) -> Future[Outcome]:
        try:
            return self.workers.submit(self.measure, strategy)
        except Exception as error:  # noqa: BLE001  # judged as what comes out of a future
            failed: Future[Outcome] = Future()
            failed.set_exception(error)
            return failed

    def _outcome(self, future: Future[Outcome]) -> Outcome | None:
        """What a worker says; None where the pool broke."""
        try:
            return future.result()
        except MeasurementError:
            raise
        except (Exception, CancelledError) as error:  # noqa: BLE001  # judged by the workers
            verdict = self.workers.judge(error)
            if verdict == "unreachable":
                raise _stopped(self.workers.name, error) from None
            return None if verdict == "broken" else Outcome(None, 0.0, "", _DIED)

    def _put(self, job: Job, row: Row) -> None:
        self.ledger.put(job, row)
        self.report(row, len(self.ledger.rows), self.ledger.total)


_DIED = f"Its worker died {DEATHS} times, most likely for want of memory: take smaller trees or fewer workers."


def _stopped(name: str, error: BaseException) -> MeasurementError:
    """Neither a trial nor the death of one worker: the workers cannot be reached, or cannot run what they are given."""
    first = " ".join(str(error).split())[:200]
    return MeasurementError(
        f"{name} can run no trial ({type(error).__name__}{': ' if first else ''}{first}): see that it is there and can "
        "import what measures; what is done is kept, and --resume goes on"
    )


def _row(job: Job, outcome: Outcome, objective: str) -> Row:
    found = {"seconds": outcome.seconds, "worker": outcome.worker}
    if outcome.measured is None:
        return row_of(job, failed=outcome.failed, **found)
    figures = dict(outcome.measured.figures)
    if objective not in figures:
        raise MeasurementError(f"There is no figure {objective!r}: choose one of {', '.join(figures)}")
    found |= {"figures": figures, "prompts": outcome.measured.prompts, "text": outcome.measured.text}
    return row_of(job, objective=figures[objective], **found)
