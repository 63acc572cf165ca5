"""`mailroom scheduler`: the application's jobs by their own schedules, for containers and laptops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mailroom.cli.errors import UsageError
from mailroom.cli.foreground import surroundings
from mailroom.job import Job
from mailroom.outbox.relay import Relay
from mailroom.publishers.publisher import ClientMissing, Destination
from mailroom.registry import Registry
from mailroom.runtime import Runtime
from mailroom.shutdown import Shutdown, end_at_once

if TYPE_CHECKING:
    from mailroom.scheduler import Scheduler


def run_scheduler(stage: str | None, application: str, only: Sequence[str]) -> None:
    """Fire jobs until this process is told to end; what runs then has its grace, and is cut off after it."""
    registry = Registry.of(application)
    jobs = [registry.job(name) for name in dict.fromkeys(only)] or registry.jobs
    runtime = surroundings(stage, registry)
    scheduler = _scheduler(runtime)
    _see_that_they_can_publish(jobs, runtime)
    for job in jobs:
        scheduler.register(job)
    if not _run_until_told(scheduler, grace=runtime.timings.process_grace):
        end_at_once()


def _see_that_they_can_publish(jobs: Sequence[Job], runtime: Runtime) -> None:
    """Refuse to start, and not only to publish, without the destination's client library."""
    if any(Relay in job.access.uses for job in jobs):
        try:
            runtime.use(Destination)
        except ClientMissing as error:
            raise UsageError(str(error)) from error


def _run_until_told(scheduler: Scheduler, *, grace: float) -> bool:
    shutdown = Shutdown()
    shutdown.install()
    try:
        scheduler.start()
        shutdown.wait()
        return scheduler.stop(grace)
    finally:
        shutdown.uninstall()


def _scheduler(runtime: Runtime) -> Scheduler:
    try:
        from mailroom.scheduler import Scheduler  # noqa: PLC0415 - no other command needs APScheduler
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "apscheduler":
            raise
        raise UsageError("the scheduler needs APScheduler: pip install 'mailroom[cli,scheduler]'") from error
    return Scheduler(runtime)
