"""Jobs: `@job` declares one, and the edge that runs it when its schedule fires."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from mailroom import telemetry
from mailroom.clock import timestamp
from mailroom.declarations import DECLARATION_VARIABLE, Declaration, declaring, load
from mailroom.failures import Failure, failure_of
from mailroom.lease import HeldLease, Lease
from mailroom.needs import Access, Port
from mailroom.outbox.event import Event
from mailroom.row import Row
from mailroom.runtime import Runtime
from mailroom.schedule import Schedule
from mailroom.telemetry import LogEvent, Metric
from mailroom.unit_of_work import UnitOfWork


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Declaration):
    """Work that the clock causes, one run at a time.

    Parameters
    ----------
    schedule
        When it runs, in UTC.
    """

    schedule: Schedule


def job(
    *,
    schedule: Schedule,
    reads: Sequence[type[Row]] = (),
    writes: Sequence[type[Row]] = (),
    scans: Sequence[type[Row]] = (),
    publishes: Sequence[type[Event]] = (),
    uses: Sequence[type[Port]] = (),
    **options: Any,
) -> Callable[[Callable[..., None]], Job]:
    """Declare a job: `def name(work: JobContext) -> None`.

    Parameters
    ----------
    reads, writes, scans, publishes, uses
        What it touches: see `Access`. Nothing else is granted.
    options
        `timeout`, `memory`: see `Declaration`.
    """

    access = Access.of(reads=reads, writes=writes, scans=scans, publishes=publishes, uses=uses)
    return declaring(Job, access, schedule=schedule, **options)


LAST_RUN = "last_run"
"""Where a job's lease keeps how its last run ended: `run_id`, `ended_at`, `failure` (null when it went well)."""


class JobContext(UnitOfWork):
    """What a job works in: a unit of work under the job's lease, committed when the job ends well.

    Parameters
    ----------
    lease
        Held while the job runs; a commit under a lost one is refused.
    deadline
        The `clock.monotonic()` from which nothing new is begun.
    """

    def __init__(self, runtime: Runtime, access: Access, *, lease: HeldLease, run_id: str, deadline: float) -> None:
        super().__init__(runtime, access)
        self.lease = lease
        self.run_id = run_id
        self.deadline = deadline

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

    def commit(self, response: Any = None) -> None:
        """Write all that was collected, if the lease is still this run's."""
        if self.has_changes:
            self.depend_on(self.lease.check())
        super().commit(response)


class JobEdge:
    """Runs one job, one run at a time: a firing that finds another run at work is skipped."""

    def __init__(self, declaration: Job, runtime: Runtime) -> None:
        self._declaration = declaration
        self._runtime = runtime

    def run(self, context: Any) -> None:
        """Run the job once.

        Raises
        ------
        Exception
            What the job raised, after it was logged and counted.
        """
        name = self._declaration.name
        with telemetry.flushed_metrics(), telemetry.traced(None, self._runtime.random):
            lease = Lease(lease_name(name), self._runtime).acquire()
            if lease is None:
                telemetry.log(LogEvent.JOB_SKIPPED, job=name, reason="another run is at work")
                telemetry.count(Metric.JOB_SKIPPED)
                return
            self._run_under(lease, context)

    def _run_under(self, lease: HeldLease, context: Any) -> None:
        name, run_id, clock = self._declaration.name, context.aws_request_id, self._runtime.clock
        began = clock.monotonic()
        work = JobContext(
            self._runtime,
            self._declaration.access,
            lease=lease,
            run_id=run_id,
            deadline=self._runtime.deadline(context),
        )
        telemetry.log(LogEvent.JOB_STARTED, job=name, run_id=run_id)
        try:
            self._declaration(work)
            work.commit()
        except Exception as error:
            telemetry.count(Metric.JOB_FAILED)
            telemetry.log_error(LogEvent.JOB_FAILED, error, job=name, run_id=run_id)
            self._release(lease, run_id, failure_of(error))
            raise
        self._release(lease, run_id, None)
        telemetry.count(Metric.JOB_COMPLETED)
        telemetry.log(LogEvent.JOB_COMPLETED, job=name, run_id=run_id, ms=round((clock.monotonic() - began) * 1000))

    def _release(self, lease: HeldLease, run_id: str, failure: Failure | None) -> None:
        ended_at = timestamp(self._runtime.clock.now())
        lease.memo[LAST_RUN] = {"run_id": run_id, "ended_at": ended_at, "failure": failure and failure.message}
        try:
            lease.release(clean=failure is None)
        except Exception as error:
            # The lease runs out by itself; what the run did or failed at is the news.
            telemetry.log_error(LogEvent.LEASE_NOT_RELEASED, error, lease=lease.name)


def lease_name(job_name: str) -> str:
    """Answer the name of the lease under which a job runs."""
    return f"job#{job_name}"


def job_handler(make_runtime: Callable[[], Runtime]) -> Callable[[dict[str, Any], Any], None]:
    """Make the Lambda handler of the one job that the environment names."""

    @cache
    def edge() -> JobEdge:
        return JobEdge(load(os.environ[DECLARATION_VARIABLE], Job), make_runtime())

    return lambda _, context: edge().run(context)
