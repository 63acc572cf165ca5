"""The reads of production code that may be answered out of the past, each with the reason why that does no harm."""

from __future__ import annotations

EVENTUAL_READS = {
    "mailroom.cli.sagas._read": "a list of sagas for people, by an index",
    "mailroom.dead_letters.consumer.ConsumerLetters._recorded": (
        "a list by an index: what is done to a letter asks its record and its message again"
    ),
    "mailroom.dead_letters.outbox.OutboxLetters.count": "a figure for people and gauges",
    "mailroom.jobs.cleanup._Sweeper._read": "a row is deleted only if it is still expired; the next run reads again",
    "mailroom.jobs.metrics_export.metrics_export": "a gauge, read anew each minute, by an index",
    "mailroom.status._pages": "figures for people and gauges, partly by an index",
    "mailroom.unit_of_work.UnitOfWork.page": (
        "a page of an index: what is done to a row of it reads the row again or is conditional"
    ),
}
"""The function that reads, and why it needs no consistency. `LaggingReads` finds those that are missing here."""
