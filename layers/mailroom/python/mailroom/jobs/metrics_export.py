"""The metrics of what waits and of what died: a state that no single invocation sees, read once a minute."""

from __future__ import annotations

from datetime import datetime

from mailroom import telemetry
from mailroom.clock import moment
from mailroom.dead_letters.outbox import OutboxLetters
from mailroom.deployment import Deployment, Queues
from mailroom.job import JobContext, job
from mailroom.needs import Need
from mailroom.saga_row import SagaRow, Status
from mailroom.schedule import Every
from mailroom.status import COUNTED_TO, NEEDS_OF_SHARDS, ShardStatus, shard_status
from mailroom.telemetry import Metric
from mailroom.timings import Timings


@job(
    schedule=Every(minutes=1),
    uses=[Deployment, Queues],
    needs=[*NEEDS_OF_SHARDS, OutboxLetters.NEEDS_TO_COUNT, Need(("dynamodb:Query",), SagaRow.index)],
    timeout=Timings().export_timeout,
)
def metrics_export(work: JobContext) -> None:
    """Report all gauges, or none: what cannot be read fails the run, and the alarm takes silence for trouble."""
    shards, dead = shard_status(work.runtime), OutboxLetters(work.runtime).count(up_to=COUNTED_TO)
    telemetry.report(
        {
            Metric.DLQ_EVENTS_TOTAL: dead + in_dead_letter_queues(work),
            Metric.OUTBOX_DEAD: dead,
            Metric.OUTBOX_PENDING: sum(shard.pending for shard in shards),
            Metric.OUTBOX_OLDEST_PENDING_SECONDS: oldest_pending(shards, work.now()),
            Metric.SAGA_STUCK: SagaRow.index.count(Status.STUCK.value, limit=COUNTED_TO),
        }
    )


def in_dead_letter_queues(work: JobContext) -> int:
    """Count what lies in every dead-letter queue."""
    queues = work.use(Deployment).dead_letter_queues
    return sum(work.use(Queues).depths(queues.values()).values())


def oldest_pending(shards: list[ShardStatus], now: datetime) -> float:
    """Answer the age of the oldest pending event in seconds; 0 if none is pending."""
    waiting = [moment(shard.oldest_pending_at) for shard in shards if shard.oldest_pending_at is not None]
    return max(0.0, (now - min(waiting)).total_seconds()) if waiting else 0.0
