"""Pauses the queues of consumers while what they depend on is not there, and probes whether it is there again."""

from __future__ import annotations

from mailroom import telemetry
from mailroom.breaker import NEEDS_TO_JUDGE, BreakerRow, Step, closed, paused, resumed, step_of
from mailroom.controls import Controls
from mailroom.deployment import Deployment
from mailroom.failures import Failure
from mailroom.guard import Guard
from mailroom.job import JobContext, job
from mailroom.schedule import Every
from mailroom.telemetry import LogEvent, Metric


@job(schedule=Every(minutes=1), uses=[Deployment, Controls], needs=[NEEDS_TO_JUDGE], timeout=50)
def breakers(work: JobContext) -> None:
    """Do what is due at each breaker.

    Raises
    ------
    ExceptionGroup
        At its end, if it could not be done at some.
    """
    guard, found = Guard(LogEvent.BREAKER_NOT_SWITCHED, Metric.BREAKERS_NOT_SWITCHED), 0
    for row in BreakerRow.scan(consistent_read=True):
        found += row.opened_at is not None
        if work.out_of_time():
            break
        with guard.over(consumer=row.consumer):
            _look_at(row, work)
    telemetry.report({Metric.BREAKERS_OPEN: found})
    guard.tell()


def _look_at(row: BreakerRow, work: JobContext) -> None:
    now, timings = work.now(), work.runtime.timings
    step, polling = step_of(row, now, timings), work.use(Controls)
    if step is Step.PAUSE and paused(row, now, timings, work.runtime.random):
        failure = Failure.from_json(row.failure) if row.failure else None
        telemetry.log(
            LogEvent.BREAKER_OPEN, failure=failure, consumer=row.consumer, since=row.opened_at, probe_at=row.probe_at
        )
        polling.switch(row.consumer, enabled=False)
    if step is Step.STAY_PAUSED:
        polling.switch(row.consumer, enabled=False)
    if step is Step.PROBE:
        # Before it is written: a crash in between repeats it, and the other way round nobody would.
        polling.switch(row.consumer, enabled=True)
        if resumed(row, now):
            telemetry.log(LogEvent.BREAKER_PROBES, consumer=row.consumer, since=row.opened_at)
    if step is Step.CLOSE and closed(row):
        telemetry.log(LogEvent.BREAKER_CLOSED, consumer=row.consumer, since=row.opened_at)
