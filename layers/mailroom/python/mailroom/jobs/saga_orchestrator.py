"""Asks again for steps whose request was lost: sagas that have not moved for longer than any request may take."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from mailroom import telemetry
from mailroom.clock import timestamp
from mailroom.guard import Guard
from mailroom.job import JobContext, job
from mailroom.saga import STARTING, ask_again
from mailroom.saga_row import SagaRow, Status
from mailroom.schedule import Every
from mailroom.telemetry import LogEvent, Metric
from mailroom.unit_of_work import RowChanged, UnitOfWork

RESUMED_AT_MOST = 100
"""Sagas of a status that one run looks at."""


@job(schedule=Every(minutes=1), writes=STARTING.writes, publishes=STARTING.publishes, timeout=50)
def saga_orchestrator(work: JobContext) -> None:
    """Ask again for the step at which each stalled saga stands; what is stuck waits for an operator instead.

    Raises
    ------
    ExceptionGroup
        At its end, if some could not be asked for.
    """
    stalled_since = timestamp(work.now() - timedelta(seconds=work.runtime.timings.saga_stall))
    guard = Guard(LogEvent.SAGA_NOT_RESUMED, Metric.SAGAS_NOT_RESUMED)
    for saga_id in _stalled(stalled_since, work):
        if work.out_of_time():
            break
        with guard.over(saga_id=saga_id):
            resume(saga_id, stalled_since, work)
    guard.tell()


def _stalled(since: str, work: JobContext) -> Iterator[str]:
    """Answer the sagas of each status that stand still, so many at most; it reads on past those that cannot be read."""
    for status in (Status.COMPENSATING, Status.RUNNING):
        left, after = RESUMED_AT_MOST, None
        while left > 0 and not work.out_of_time():
            rows, after = work.page(SagaRow, SagaRow.index, status.value, after=after, limit=left)
            stalled = [row.id for row in rows if row.updated_at < since]
            yield from stalled
            left -= len(rows)
            if after is None or len(stalled) < len(rows):
                break


def resume(saga_id: str, stalled_since: str, work: UnitOfWork) -> None:
    """Ask for a saga's present step again, unless it has moved: the index may be behind, and others at work."""
    row = work.get(SagaRow, saga_id)
    if row is None or row.unfinished in (None, Status.STUCK) or row.updated_at >= stalled_since:
        return
    try:
        ask_again(row, work)
        work.commit()
    except RowChanged:
        work.forget()
        telemetry.log(LogEvent.SAGA_REQUEST_IGNORED, saga=row.saga, saga_id=row.id, status=row.status)
    except Exception:
        work.forget()  # what was collected for this one is not for the next one to commit
        raise
