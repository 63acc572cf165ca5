"""The scheduler: fires jobs outside Lambda as EventBridge fires them on AWS, in one process for as long as it runs.

The moments are APScheduler's to find. This module says which they are, what a firing does, and how it ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import Any
from uuid import UUID

from apscheduler.executors.base import BaseExecutor
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger

from mailroom import telemetry
from mailroom.clock import Clock
from mailroom.declarations import DeclarationError
from mailroom.invocation import Invocation
from mailroom.job import Job, JobEdge
from mailroom.registry import check_names
from mailroom.runtime import Runtime
from mailroom.schedule import Every, Schedule, checked_schedule
from mailroom.telemetry import LogEvent, Metric

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOOK = timedelta(seconds=5)
"""How long the clock goes unwatched at most: it may be set, or the machine may sleep, while nothing is due."""
_ANY_NUMBER = 1_000
"""APScheduler lets firings of one job overlap as they like: that one run is at work is the job's own rule, see
`single_flight`, and what is skipped by it is counted there."""


class Scheduler:
    """Fires registered jobs by their schedules, in UTC, each run in a thread of its own.

    Periods are counted from the epoch, whenever the process began: two schedulers fire at the same moments, and the
    second firing of a moment is skipped. A moment that went by while a scheduler was late is fired once, however many
    went by; one at which none ran is not made up for.

    Parameters
    ----------
    runtime
        What the jobs run in; shared by all of them.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._jobs: list[Job] = []
        self._runs = _Runs()
        self._invocations: set[Invocation] = set()
        self._stopping = False
        _write_complaints()
        self._scheduler = BackgroundScheduler(
            timezone=UTC,
            jobstores={"default": _Calendar(backwards=timedelta(seconds=runtime.timings.clock_skew))},
            executors={"default": self._runs},
            job_defaults={"coalesce": True, "misfire_grace_time": None, "max_instances": _ANY_NUMBER},
        )

    def register(self, job: Job) -> None:
        """Fire a job from now on, or from the start on.

        Raises
        ------
        ScheduleError
            If its schedule is none.
        DeclarationError
            If a job of this name is registered already.
        """
        checked_schedule(job.schedule, of=job.name)
        check_names([*self._jobs, job])
        self._jobs.append(job)
        if self._scheduler.running:
            self._add(job)

    def start(self) -> None:
        """Begin to fire.

        Raises
        ------
        DeclarationError
            If no job is registered: there would be nothing to do, for ever.
        """
        if not self._jobs:
            raise DeclarationError("no job is registered: there is nothing to schedule")
        for job in self._jobs:
            self._add(job)
        self._scheduler.start()
        telemetry.log(LogEvent.SCHEDULER_STARTED, jobs=self._names)

    def stop(self, timeout: float) -> bool:
        """Fire nothing any more, tell the runs at work to come to an end; answer whether all of them did.

        Parameters
        ----------
        timeout
            Seconds to wait at most. What is at work then goes on until it ends, or the process does.
        """
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
        self._stopping = True
        for invocation in tuple(self._invocations):
            invocation.end()
        running = self._runs.wait(self._runtime.clock, timeout)
        telemetry.log(LogEvent.SCHEDULER_STOPPED, jobs=self._names, running=running)
        return not running

    def wake_up(self) -> None:
        """Look at the clock at once, instead of within seconds."""
        self._scheduler.wakeup()

    @property
    def _names(self) -> list[str]:
        return [job.name for job in self._jobs]

    def _add(self, job: Job) -> None:
        self._scheduler.add_job(self._firing_of(job), _trigger_of(job.schedule), id=job.name, name=job.name)

    def _firing_of(self, job: Job) -> Callable[[], None]:
        edge, runtime = JobEdge(job, self._runtime), self._runtime
        seconds = job.timeout or runtime.timings.job_timeout

        def fire(fired_at: datetime | None = None) -> None:  # the executor knows it, APScheduler's own would not
            run_id = str(UUID(int=runtime.random.getrandbits(128), version=4))
            invocation = Invocation(runtime.clock, request_id=run_id, seconds=seconds)
            self._invocations.add(invocation)
            if self._stopping:  # it was fired at the last moment, and may have been missed when all were told
                invocation.end()
            try:
                with suppress(Exception):  # the edge has told and counted it
                    edge.run(invocation, fired_at=fired_at)
            except BaseException as error:
                # A job that ends its thread, by `sys.exit()` for example, has failed: nobody else would say so.
                telemetry.log_error(LogEvent.FIRING_FAILED, error, job=job.name, run_id=run_id)
                with telemetry.flushed_metrics():
                    telemetry.count(Metric.JOB_FAILED)
            finally:
                self._invocations.discard(invocation)

        return fire


class _Runs(BaseExecutor):  # type: ignore[misc]  # APScheduler has no types
    """Runs each firing in a thread of its own, and tells it the moment by which it is known.

    https://apscheduler.readthedocs.io/en/3.x/extending.html#custom-executors
    """

    def __init__(self) -> None:
        super().__init__()
        self._threads: list[Thread] = []

    def _do_submit_job(self, job: Any, run_times: Sequence[datetime]) -> None:
        (fired_at,) = run_times  # coalesced
        thread = Thread(target=self._run, args=(job, fired_at), name=job.id, daemon=True)
        thread.start()
        self._threads = [*(each for each in self._threads if each.is_alive()), thread]

    def _run(self, job: Any, fired_at: datetime) -> None:
        try:
            job.func(fired_at=fired_at)
        finally:
            self._run_job_success(job.id, [])

    def wait(self, clock: Clock, timeout: float) -> list[str]:
        """Wait for what is at work; answer the names of the jobs that did not end in time."""
        ends = clock.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0, ends - clock.monotonic()))
        return sorted({thread.name for thread in self._threads if thread.is_alive()})


class _Calendar(MemoryJobStore):  # type: ignore[misc]  # APScheduler has no types
    """The next moment of each job, put right when the clock was set back: they all lie too far ahead then.

    https://apscheduler.readthedocs.io/en/3.x/extending.html#custom-job-stores

    Parameters
    ----------
    backwards
        How far back it must be: in less, the moments to come catch up by themselves.
    """

    def __init__(self, *, backwards: timedelta) -> None:
        super().__init__()
        self._backwards = backwards
        self._latest = _EPOCH

    def get_due_jobs(self, now: datetime) -> list[Any]:
        if now < self._latest - self._backwards:
            self._latest = now
            for job in self.get_all_jobs():
                job.modify(next_run_time=job.trigger.get_next_fire_time(None, now))
        self._latest = max(self._latest, now)
        due: list[Any] = super().get_due_jobs(now)
        return due

    def get_next_run_time(self) -> datetime | None:
        soonest: datetime | None = super().get_next_run_time()
        return soonest and min(soonest, datetime.now(UTC) + _LOOK)


def _trigger_of(schedule: Schedule) -> BaseTrigger:
    if isinstance(schedule, Every):
        return IntervalTrigger(seconds=schedule.period, start_date=_EPOCH, timezone=UTC)
    return CronTrigger(
        second=_listed(schedule.seconds),
        minute=_listed(schedule.minutes),
        hour=_listed(schedule.hours),
        day=_listed(schedule.days_of_month),
        month=_listed(schedule.months),
        day_of_week=_listed(number - 1 for number in schedule.weekdays),  # APScheduler's Monday is 0
        timezone=UTC,
    )


def _listed(numbers: Iterable[int]) -> str:
    return ",".join(map(str, sorted(numbers)))


def _write_complaints() -> None:
    """Let what goes wrong inside APScheduler be a JSON line as well, and nothing else that it has to say."""
    complaints = logging.getLogger("apscheduler")
    complaints.setLevel(logging.ERROR)
    complaints.propagate = False
    if telemetry.logger.registered_handler not in complaints.handlers:
        complaints.addHandler(telemetry.logger.registered_handler)
