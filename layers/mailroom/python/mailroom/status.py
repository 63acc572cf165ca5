"""How a stage is doing: its shards, consumers and jobs, by bounded reads.

What cannot be read is an error and never 0: the AWS call's own error goes through.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from mailroom import clients
from mailroom.breaker import NEEDS_TO_SHOW, BreakerRow
from mailroom.clock import at_epoch_milliseconds, epoch_milliseconds, timestamp
from mailroom.controls import start_of
from mailroom.deployment import DEAD, UNDELIVERED, Deployment, queue_depths
from mailroom.failures import Failure
from mailroom.idempotency import IdempotencyRow
from mailroom.job import LAST_RUN
from mailroom.job import lease_name as job_lease
from mailroom.lease import LeaseRow
from mailroom.needs import Need
from mailroom.outbox.event import SHARDS
from mailroom.outbox.relay import lease_name as relay_lease
from mailroom.outbox.table import OutboxRow, pending
from mailroom.outbox.turn import PAUSED_UNTIL
from mailroom.reading import Unreadable, flaw_of, flaws_of, read_keys, row_of
from mailroom.row import Item
from mailroom.runtime import Runtime

if TYPE_CHECKING:
    from types_boto3_dynamodb.type_defs import QueryOutputTypeDef

COUNTED_TO = 10_000
"""Where counting stops: a count that reaches it means "so many or more"."""

_LOOKED_AT = 10
"""Pending rows that are looked at for one that says since when it waits."""
_VISIBLE, _IN_FLIGHT = "ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"
_DELAYED = "ApproximateNumberOfMessagesDelayed"


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """One shard of the outbox. Moments are written as rows write them.

    Parameters
    ----------
    pending
        Events that wait, for their first attempt or the next; `COUNTED_TO` means so many or more.
    paused_until
        Set while the relay leaves the shard alone because the destination is down.
    holder, held_until
        Set while a relay is at work on it.
    unreadable
        Why its lease cannot be read, which tells of pauses and holders; None if it can.
    oldest_waits_until, oldest_waits_for
        Set where the oldest event was not sent: until when it waits, and its id with what the destination said.
    """

    shard: int
    pending: int
    oldest_pending_at: str | None
    paused_until: str | None
    holder: str | None
    held_until: str | None
    unreadable: str | None = None
    oldest_waits_until: str | None = None
    oldest_waits_for: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Answer it as JSON values."""
        return {**asdict(self), "pending_or_more": self.pending >= COUNTED_TO}


@dataclass(frozen=True, slots=True)
class ConsumerStatus:
    """One consumer. Queue counts are SQS's own, which calls them approximate.

    Parameters
    ----------
    queued
        Messages that wait to be taken.
    in_flight
        Messages that are hidden: being handled, or waiting for their next attempt.
    failing
        Events that failed and have not gone well since, dead ones included; `COUNTED_TO` means so many or more.
    failing_since
        When the first of those failed first.
    dead
        Messages in its dead-letter queue.
    undelivered
        Events that its rule could not put into its queue.
    enabled
        Whether its queue is read.
    waiting_since, waits_for, probe_at
        Set while what it depends on is not there: since when, what it said, and when its queue is read again as a
        probe, if it is paused for that.
    """

    name: str
    queued: int
    in_flight: int
    failing: int
    failing_since: str | None
    dead: int
    undelivered: int
    enabled: bool
    waiting_since: str | None = None
    waits_for: str | None = None
    probe_at: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Answer it as JSON values."""
        return {**asdict(self), "failing_or_more": self.failing >= COUNTED_TO}


@dataclass(frozen=True, slots=True)
class JobStatus:
    """One job.

    Parameters
    ----------
    enabled
        Whether its schedule fires.
    schedule
        EventBridge's expression, in UTC; None if nothing starts it.
    running
        Whether a run is at work at this moment.
    last_ended_at
        When the last run ended that said so; None if none ever did.
    last_failure
        What the last run failed at; None if it went well.
    """

    name: str
    enabled: bool
    schedule: str | None
    running: bool
    last_ended_at: str | None
    last_failure: str | None

    def to_dict(self) -> dict[str, Any]:
        """Answer it as JSON values."""
        return asdict(self)


NEEDS_OF_SHARDS = (Need(("dynamodb:Query",), OutboxRow), Need(("dynamodb:BatchGetItem",), LeaseRow))
"""What `shard_status` takes."""
NEEDS_OF_CONSUMERS = (Need(("dynamodb:Query",), IdempotencyRow.index), NEEDS_TO_SHOW)
"""What `consumer_status` takes of tables."""


def shard_status(runtime: Runtime) -> list[ShardStatus]:
    """Answer how each shard of the outbox is doing."""
    leases = _leases([relay_lease(shard) for shard in range(SHARDS)])
    return [_shard(shard, leases.get(relay_lease(shard)), runtime) for shard in range(SHARDS)]


def consumer_status(
    runtime: Runtime,  # noqa: ARG001 - asked as the others are: its tables are bound
    deployment: Deployment,
) -> list[ConsumerStatus]:
    """Answer how each consumer is doing."""
    rows = {row.consumer: row for row in BreakerRow.batch_get(deployment.consumers, consistent_read=True)}
    return [_consumer(name, deployment, rows.get(name)) for name in deployment.consumers]


def job_status(runtime: Runtime, deployment: Deployment) -> list[JobStatus]:
    """Answer how each job is doing."""
    leases = _leases([job_lease(name) for name in deployment.jobs])
    return [_job(name, leases.get(job_lease(name)), runtime, deployment) for name in deployment.jobs]


def _shard(shard: int, lease: Leased, runtime: Runtime) -> ShardStatus:
    now = timestamp(runtime.clock.now())
    paused_until = _memo(lease).get(PAUSED_UNTIL)
    held = _is_held(lease, runtime)
    waits, oldest = _oldest_pending(shard)
    until, why = _waits_for(oldest)
    flaw = flaw_of(lease)
    return ShardStatus(
        shard=shard,
        pending=_count_pending(shard) if waits else 0,
        oldest_pending_at=oldest["created_at"]["S"] if oldest else None,
        paused_until=paused_until if paused_until is not None and paused_until > now else None,
        holder=row_of(lease).holder if lease and held else None,
        held_until=_written(int(row_of(lease).held_until)) if lease and held else None,
        unreadable=flaw.message if flaw else None,
        oldest_waits_until=until,
        oldest_waits_for=why,
    )


def _waits_for(oldest: Item | None) -> tuple[str | None, str | None]:
    """Answer until when an event waits that was not sent, and why it was not; None and None of any other."""
    told = frozenset({"failure", "next_attempt_at"})
    if oldest is None or not told <= oldest.keys() or flaws_of(OutboxRow, oldest, told):
        return None, None
    failure = Failure.from_json(oldest["failure"]["S"])
    return oldest["next_attempt_at"]["S"], f"{oldest['event_id']['S']}: {failure.type}: {failure.message}"


def _oldest_pending(shard: int) -> tuple[bool, Item | None]:
    """Answer whether anything waits, and the oldest that says when it was written: others are set aside soon."""
    items: list[dict[str, Any]] = []
    for up_to in (1, _LOOKED_AT):
        items = list(_query(_pending_of(shard), reading="event_id, created_at, next_attempt_at, failure", up_to=up_to))
        for item in items:
            row = {**_pending_key(shard), **item}
            if not flaws_of(OutboxRow, row, frozenset({"created_at"})):
                return True, row
        if len(items) < up_to:
            break
    return bool(items), None


def _pending_key(shard: int) -> Item:
    return {"partition": {"S": pending(shard)}}


def _count_pending(shard: int) -> int:
    query: dict[str, Any] = {**_pending_of(shard), "Select": "COUNT"}
    return sum(page["Count"] for page in _pages(query, up_to=COUNTED_TO))


def _consumer(name: str, deployment: Deployment, breaker: BreakerRow | None) -> ConsumerStatus:
    queue, dead = deployment.queues[name], deployment.queues[f"{name}{DEAD}"]
    undelivered = deployment.queues.get(f"{name}{UNDELIVERED}")  # parts come by no rule
    counts = _queue_counts(queue)
    depths = queue_depths([dead, *([undelivered] if undelivered else [])])
    failing = list(_query(_failing_of(name), reading="first_failed_at", up_to=COUNTED_TO))
    return ConsumerStatus(
        name=name,
        queued=counts[_VISIBLE] + counts[_DELAYED],
        in_flight=counts[_IN_FLIGHT],
        failing=len(failing),
        failing_since=min(filter(None, map(_first_failed_at, failing)), default=None),
        dead=depths[dead],
        undelivered=depths[undelivered] if undelivered else 0,
        enabled=start_of(deployment, name).enabled,
        **_waiting(breaker),
    )


def _waiting(breaker: BreakerRow | None) -> dict[str, str | None]:
    if breaker is None or breaker.opened_at is None:
        return {}
    failure = Failure.from_json(breaker.failure) if breaker.failure else None
    said = f"{failure.type}: {failure.message}" if failure else None
    return {"waiting_since": breaker.opened_at, "waits_for": said, "probe_at": breaker.probe_at}


def _first_failed_at(item: Item) -> str | None:
    if "first_failed_at" not in item or flaws_of(IdempotencyRow, item, frozenset({"first_failed_at"})):
        return None
    first: str = item["first_failed_at"]["S"]
    return first


def _job(name: str, lease: Leased, runtime: Runtime, deployment: Deployment) -> JobStatus:
    start = start_of(deployment, name)
    last = _memo(lease).get(LAST_RUN, {})
    running = _is_held(lease, runtime)
    failure = last.get("failure")
    if lease is not None and row_of(lease).held_until and not running:
        failure = "the last run ended without a word: timed out or killed"
    if flaw := flaw_of(lease):
        failure = f"its lease cannot be read: {flaw.message}"
    return JobStatus(name, start.enabled, start.schedule, running, last.get("ended_at"), failure)


Leased = LeaseRow | Unreadable[LeaseRow] | None


def _leases(names: list[str]) -> dict[str, LeaseRow | Unreadable[LeaseRow]]:
    return {row_of(each).name: each for each in read_keys(LeaseRow, names)}


def _is_held(lease: Leased, runtime: Runtime) -> bool:
    until = row_of(lease).held_until if lease is not None else None
    return until is not None and int(until) > epoch_milliseconds(runtime.clock.now())


def _memo(lease: Leased) -> dict[str, Any]:
    written = row_of(lease).memo if lease is not None else None
    memo: dict[str, Any] = json.loads(written) if written else {}
    return memo


def _written(milliseconds: int) -> str:
    return timestamp(at_epoch_milliseconds(milliseconds))


def _queue_counts(url: str) -> dict[str, int]:
    names: Any = [_VISIBLE, _IN_FLIGHT, _DELAYED]
    attributes = clients.sqs().get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return {name: int(attributes[name]) for name in names}


def _pending_of(shard: int) -> dict[str, Any]:
    return {
        "TableName": OutboxRow.table_name(),
        "KeyConditionExpression": "#key = :key",
        "ExpressionAttributeNames": {"#key": "partition"},
        "ExpressionAttributeValues": {":key": {"S": pending(shard)}},
    }


def _failing_of(consumer: str) -> dict[str, Any]:
    return {
        "TableName": IdempotencyRow.table_name(),
        "IndexName": IdempotencyRow.index.Meta.index_name,
        "KeyConditionExpression": "#key = :key",
        "ExpressionAttributeNames": {"#key": "failing"},
        "ExpressionAttributeValues": {":key": {"S": consumer}},
    }


def _query(query: dict[str, Any], *, reading: str, up_to: int) -> Iterator[dict[str, Any]]:
    """Answer one attribute of each row, of so many rows at most."""
    for page in _pages({**query, "ProjectionExpression": reading}, up_to=up_to):
        yield from page["Items"]


def _pages(query: dict[str, Any], *, up_to: int) -> Iterator[QueryOutputTypeDef]:
    left, more = up_to, dict[str, Any]()
    while left > 0:
        answer = clients.dynamodb().query(**query, Limit=left, **more)
        yield answer
        left -= answer["Count"]
        if "LastEvaluatedKey" not in answer:
            return
        more = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
