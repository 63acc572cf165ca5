"""Jobs: `@job` declares one, and the edge that runs it when its schedule fires."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from mailroom import telemetry
from mailroom.clock import aware, moment, timestamp
from mailroom.declarations import DECLARATION_VARIABLE, Declaration, declaring, load
from mailroom.failures import Failure, failure_of
from mailroom.lease import HeldLease
from mailroom.needs import Access, Need, Port
from mailroom.outbox.event import Event
from mailroom.row import Row
from mailroom.runtime import Runtime
from mailroom.schedule import Schedule, checked_schedule
from mailroom.single_flight import single_flight
from mailroom.telemetry import LogEvent, Metric
from mailroom.unit_of_work import UnitOfWork


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Declaration):
    """Work that the clock causes, one run at a time.

    Parameters
    ----------
    schedule
        When it runs, in UTC.

    Raises
    ------
    ScheduleError
        If the schedule is none, a text for example.
    """

    schedule: Schedule

    def __post_init__(self) -> None:
        self.check_function()
        checked_schedule(self.schedule, of=self.name)


def job(
    *,
    schedule: Schedule,
    reads: Sequence[type[Row]] = (),
    writes: Sequence[type[Row]] = (),
    scans: Sequence[type[Row]] = (),
    publishes: Sequence[type[Event]] = (),
    uses: Sequence[type[Port]] = (),
    needs: Sequence[Need] = (),
    **options: Any,
) -> Callable[[Callable[..., None]], Job]:
    """Declare a job: `def name(work: JobContext) -> None`.

    Parameters
    ----------
    reads, writes, scans, publishes, uses, needs
        What it touches: see `Access`. Nothing else is granted.
    options
        `timeout`, `memory`: see `Declaration`.
    """

    access = Access.of(reads=reads, writes=writes, scans=scans, publishes=publishes, uses=uses, needs=needs)
    return declaring(Job, access, schedule=schedule, **options)


LAST_RUN = "last_run"
"""Where a job's lease keeps how its last run ended: `run_id`, `ended_at`, `failure` (null when it went well)."""
SERVED = "served"
"""Where it keeps the moment of the latest firing that a run served: another of that moment or before is a duplicate."""


class JobContext(UnitOfWork):
    """What a job works in: a unit of work under the job's lease, committed when the job ends well.

    Parameters
    ----------
    lease
        Held while the job runs; a commit under a lost one is refused.
    invocation
        Tells the time left, as Lambda's context does; outside Lambda it may turn out to be less.
    """

    def __init__(self, runtime: Runtime, access: Access, *, lease: HeldLease, invocation: Any) -> None:
        super().__init__(runtime, access)
        self.lease = lease
        self.run_id: str = invocation.aws_request_id
        self._invocation = invocation
        self._planned = runtime.deadline(invocation)

    @property
    def deadline(self) -> float:
        """The `clock.monotonic()` from which nothing new is begun."""
        return min(self._planned, self.runtime.deadline(self._invocation))

    @property
    def memo(self) -> dict[str, Any]:
        """What one run of the job tells the next; JSON, kept on the lease."""
        return self.lease.memo

    def out_of_time(self) -> bool:
        """Answer whether the job should stop; renews the lease where that is due.

        Raises
        ------
        LeaseLost
            If another run has the lease by now.
        """
        self.lease.ensure()
        return self.runtime.clock.monotonic() >= self.deadline

    def commit(self, response: Any = None, *, completes: bool = True) -> None:
        """Write all that was collected and the memo with it, if the lease is still this run's."""
        self._commit(self.memo, response)

    def finish(self, fired_at: datetime | None) -> None:
        """Commit what is left, and with it that this firing is served."""
        served = {SERVED: timestamp(fired_at)} if fired_at else {}
        self._commit({**self.memo, **served})
        self.memo.update(served)

    def _commit(self, memo: Mapping[str, Any], response: Any = None) -> None:
        if self.has_changes:
            self.depend_on(self.lease.note(memo))
        super().commit(response)


class JobEdge:
    """Runs one job, one run at a time: a firing that finds another run at work is skipped, and so is a duplicate."""

    def __init__(self, declaration: Job, runtime: Runtime) -> None:
        self._declaration = declaration
        self._runtime = runtime

    def run(self, context: Any, *, fired_at: datetime | None = None) -> None:
        """Run the job once.

        Parameters
        ----------
        fired_at
            The moment of the firing by its schedule, by which it is known when it comes twice, or after a later one;
            None for a run that someone asked for, which is never a duplicate.

        Raises
        ------
        NaiveMoment
            If the firing's moment has no time zone; nothing was run.
        Exception
            What the job raised, after it was logged and counted.
        """
        fired_at = fired_at and aware(fired_at, "the firing's moment")
        runtime, name = self._runtime, lease_name(self._declaration.name)
        with telemetry.flushed_metrics(), telemetry.traced(None, runtime.random):
            remaining = context.get_remaining_time_in_millis() / 1000
            try:
                with single_flight(name, runtime, at_most=remaining) as lease:
                    self._run_if_due(lease, context, fired_at)
            except Exception as error:
                telemetry.count(Metric.JOB_FAILED)
                telemetry.log_error(
                    LogEvent.JOB_FAILED, error, job=self._declaration.name, run_id=context.aws_request_id
                )
                raise

    def _run_if_due(self, lease: HeldLease | None, context: Any, fired_at: datetime | None) -> None:
        if lease is None:
            self._skip("another run is at work")
        elif fired_at and self._is_served(lease, fired_at):
            self._skip("a run has served this firing")
        else:
            self._run_under(lease, context, fired_at)

    def _is_served(self, lease: HeldLease, fired_at: datetime) -> bool:
        served = lease.memo.get(SERVED)
        if served is None or moment(served) < fired_at:
            return False
        # What says to be served later than now comes from a clock that was ahead: it must not silence the job.
        skew = timedelta(seconds=2 * self._runtime.timings.clock_skew)
        return moment(served) <= self._runtime.clock.now() + skew

    def _skip(self, reason: str) -> None:
        telemetry.log(LogEvent.JOB_SKIPPED, job=self._declaration.name, reason=reason)
        telemetry.count(Metric.JOB_SKIPPED)

    def _run_under(self, lease: HeldLease, context: Any, fired_at: datetime | None) -> None:
        name, run_id, clock = self._declaration.name, context.aws_request_id, self._runtime.clock
        began = clock.monotonic()
        work = JobContext(self._runtime, self._declaration.access, lease=lease, invocation=context)
        telemetry.log(LogEvent.JOB_STARTED, job=name, run_id=run_id)
        try:
            self._declaration(work)
            work.finish(fired_at)
        except Exception as error:
            self._note_end(lease, run_id, failure_of(error))
            raise
        self._note_end(lease, run_id, None)
        telemetry.count(Metric.JOB_COMPLETED)
        telemetry.log(LogEvent.JOB_COMPLETED, job=name, run_id=run_id, ms=round((clock.monotonic() - began) * 1000))

    def _note_end(self, lease: HeldLease, run_id: str, failure: Failure | None) -> None:
        ended_at = timestamp(self._runtime.clock.now())
        lease.memo[LAST_RUN] = {"run_id": run_id, "ended_at": ended_at, "failure": failure and failure.message}


def lease_name(job_name: str) -> str:
    """Answer the name of the lease under which a job runs."""
    return f"job#{job_name}"


def job_handler(make_runtime: Callable[[], Runtime]) -> Callable[[dict[str, Any], Any], None]:
    """Make the Lambda handler of the one job that the environment names."""

    @cache
    def edge() -> JobEdge:
        return JobEdge(load(os.environ[DECLARATION_VARIABLE], Job), make_runtime())

    return lambda event, context: edge().run(context, fired_at=_fired_at(event))


def _fired_at(event: Mapping[str, Any]) -> datetime | None:
    """Answer when a schedule's event was due; all copies of it say the same. Other events are no firings.

    https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-events-structure.html
    """
    return moment(event["time"]) if event.get("detail-type") == "Scheduled Event" else None
