"""The sweep: delivers what a wake-up missed and what is due for another attempt."""

from __future__ import annotations

from mailroom.job import JobContext, job
from mailroom.outbox.table import OutboxRow
from mailroom.publishers.publisher import Destination
from mailroom.schedule import Every


@job(schedule=Every(seconds=5), writes=[OutboxRow], uses=[Destination], memory=512, timeout=55)
def outbox_relay(work: JobContext) -> None:
    """Sweep every shard until nothing falls due before the deadline."""
