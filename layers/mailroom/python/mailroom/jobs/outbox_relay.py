"""The sweep as a job: EventBridge starts it each minute, and it looks again while something falls due."""

from __future__ import annotations

from mailroom.job import JobContext, job
from mailroom.outbox.relay import Relay
from mailroom.outbox.sweep import sweep
from mailroom.schedule import Every
from mailroom.timings import Timings


@job(schedule=Every(seconds=5), uses=[Relay], timeout=Timings().sweep_timeout, memory=512)
def outbox_relay(work: JobContext) -> None:
    """Sweep every shard until nothing falls due before the deadline."""
    sweep(work.use(Relay), work.runtime, deadline=work.deadline, out_of_time=work.out_of_time)
