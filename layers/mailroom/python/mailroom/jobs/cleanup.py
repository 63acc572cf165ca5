"""The clean-up: deletes rows whose time has passed, where DynamoDB's TTL has not come round yet."""

from __future__ import annotations

from mailroom.idempotency import IdempotencyRow
from mailroom.job import JobContext, job
from mailroom.schedule import Every


@job(schedule=Every(hours=1), writes=[IdempotencyRow], scans=[IdempotencyRow], timeout=60)
def cleanup(work: JobContext) -> None:
    """Delete what has expired, a bounded number of reads a run, going on where the last run stopped."""
