"""The outbox table: its model, and every read and write that the relay makes of it.

The relay works on raw items: a row moves as it is, and decoding what is only carried would cost more than
carrying it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self, cast

from botocore.exceptions import ClientError
from pynamodb.attributes import UnicodeAttribute

from mailroom import clients, telemetry
from mailroom.attributes import TTLAttribute
from mailroom.checked_attributes import CountAttribute, FailureAttribute, Flaw, JsonAttribute, MomentAttribute
from mailroom.clock import epoch_seconds, timestamp
from mailroom.failures import Failure, Unavailable, failure_of
from mailroom.history import HistoryAttribute
from mailroom.needs import Need
from mailroom.outbox.event import Envelope, shard_of_id
from mailroom.outbox.room import fitted, is_too_large
from mailroom.reading import flaws_of, unreadable
from mailroom.retry import retry
from mailroom.row import Item, Row
from mailroom.telemetry import LogEvent
from mailroom.transaction import Operation, OperationKind, write

if TYPE_CHECKING:
    from mailroom.runtime import Runtime

DEAD = "dead"
DISCARDED = "discarded"
PENDING_PREFIX, SENT_PREFIX = "pending#", "sent#"

PAGE_SIZE = 100
"""Events that the relay reads at once: as many as one BatchGetItem can look up."""
BATCH_WRITE = 25
"""Rows in one call. https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchWriteItem.html"""


def pending(shard: int) -> str:
    """Answer the partition of a shard's pending events."""
    return f"{PENDING_PREFIX}{shard:02d}"


def sent(shard: int) -> str:
    """Answer the partition of a shard's sent events."""
    return f"{SENT_PREFIX}{shard:02d}"


class _EventIdAttribute(UnicodeAttribute):
    """The id of an event."""

    def deserialize(self, value: str) -> str:
        """Return the id."""
        try:
            shard_of_id(value)
        except ValueError:
            raise Flaw("is no event id") from None
        return value


class OutboxRow(Row):
    """An event in the outbox. The partition is its status and, while that matters, its shard."""

    class Meta:
        short_name = "outbox"

    partition = UnicodeAttribute(hash_key=True)
    event_id = UnicodeAttribute(range_key=True)
    type = UnicodeAttribute()
    source = UnicodeAttribute()
    subject = UnicodeAttribute(null=True)
    payload = JsonAttribute()
    traceparent = UnicodeAttribute(null=True)
    after = _EventIdAttribute(null=True)
    created_at = MomentAttribute()
    retry_count = CountAttribute(null=True)
    next_attempt_at = MomentAttribute(null=True)
    failure = FailureAttribute(null=True)
    untaken_since = MomentAttribute(null=True)
    """When the destination, which took others, did not take this one for the first time, and uncounted since."""
    sent_at = MomentAttribute(null=True)
    died_at = MomentAttribute(null=True)
    redriven = CountAttribute(null=True)
    parent = UnicodeAttribute(null=True)
    """The event that this one is the mended copy of."""
    history = HistoryAttribute(null=True)
    """What operators did to it; JSON."""
    expires_at = TTLAttribute(null=True)

    @property
    def status(self) -> str:
        """Its status: the partition without the shard."""
        return self.partition.partition("#")[0]

    @classmethod
    def further_flaws(cls, item: Item) -> dict[str, str]:
        """Return what is wrong with the event's id: it names no shard, or another one than its partition."""
        partition, event_id = item["partition"]["S"], item["event_id"]["S"]
        try:
            shard = shard_of_id(event_id)
        except ValueError:
            return {"event_id": "is no event id"}
        of_shard = partition.startswith((PENDING_PREFIX, SENT_PREFIX))
        if of_shard and partition not in {pending(shard), sent(shard)}:
            return {"event_id": f"names another shard than its partition {partition}"}
        return {}

    @classmethod
    def pending(cls, envelope: Envelope) -> Self:
        """Make the row of a fresh event."""
        return cls(
            partition=pending(envelope.shard),
            event_id=envelope.id,
            type=envelope.type,
            source=envelope.source,
            subject=envelope.subject,
            payload=envelope.payload,
            traceparent=envelope.traceparent,
            after=envelope.after,
            created_at=envelope.time,
            parent=envelope.parent,
        )


_DELIVERED = frozenset(
    {
        "type", "source", "subject", "payload", "traceparent", "after", "created_at", "retry_count",
        "next_attempt_at", "redriven", "untaken_since",
    }
)  # fmt: skip
"""What the relay needs of a row: an event is not dead for what only people look at."""


OVER_WHEN_DEAD = frozenset({"next_attempt_at", "untaken_since"})
"""What says when an event is tried again, or why not counted: it is not, any more."""


@dataclass(slots=True, eq=False)
class PendingEvent:
    """An event as the relay holds it: its raw item, and what the relay asks of it.

    Parameters
    ----------
    flaw
        Why its row cannot be read; None if it can. What can be read is there all the same, for it waits in its place
        in the order until it is set aside.
    """

    item: Item
    id: str
    subject: str | None = None
    after: str | None = None
    due_at: str | None = None
    attempts: int = 0
    untaken_since: str | None = None
    flaw: Failure | None = None

    @classmethod
    def of(cls, item: Item) -> Self:
        """Read an item, whatever it has."""
        flaws = flaws_of(OutboxRow, item, _DELIVERED)
        if not flaws and is_too_large(item):
            flaws = {"the row": "leaves no room for what an attempt notes"}
        return cls(
            item,
            id=item["event_id"]["S"],
            subject=None if "subject" in flaws else _text(item, "subject"),
            after=None if "after" in flaws else _text(item, "after"),
            due_at=None if flaws else _text(item, "next_attempt_at"),
            attempts=0 if "retry_count" in flaws else _count(item, "retry_count"),
            untaken_since=None if flaws else _text(item, "untaken_since"),
            flaw=unreadable(flaws) if flaws else None,
        )

    @property
    def lane(self) -> str:
        """What it is published in order with: its subject, or else itself alone."""
        return self.subject or self.id

    @property
    def facts(self) -> dict[str, Any]:
        """What log lines say of it."""
        facts: dict[str, Any] = {"event_id": self.id, "type": _text(self.item, "type"), "subject": self.subject}
        _, _, rest = (_text(self.item, "traceparent") or "").partition("-")
        if trace_id := rest.partition("-")[0]:
            facts["correlation_id"] = trace_id
        return facts

    def envelope(self) -> Envelope:
        """Answer the event as it goes on its way."""
        item = self.item
        return Envelope(
            id=self.id,
            type=item["type"]["S"],
            source=item["source"]["S"],
            subject=self.subject,
            time=item["created_at"]["S"],
            payload=item["payload"]["S"],
            traceparent=_text(item, "traceparent"),
            after=self.after,
            redriven=_count(item, "redriven"),
            parent=_text(item, "parent"),
        )

    def dead(self, failure: Failure, attempts: int, now: datetime) -> Item:
        """Return its row among the dead; one that cannot be read stays as it is, but for the reason."""
        noted = {"partition": {"S": DEAD}, "died_at": {"S": timestamp(now)}, "failure": {"S": failure.to_json()}}
        if self.flaw is not None:
            return fitted({**self.item, **noted})
        kept = {name: typed for name, typed in self.item.items() if name not in OVER_WHEN_DEAD}
        return fitted({**kept, **noted, "retry_count": {"N": str(attempts)}})


def _text(item: Item, name: str) -> str | None:
    text: str | None = item[name].get("S") if name in item else None
    return text


def _count(item: Item, name: str) -> int:
    return int(item[name].get("N", "0")) if name in item else 0


@dataclass(frozen=True, slots=True)
class Page:
    """Pending events, oldest first, and where the next page starts; no cursor is the end."""

    events: list[PendingEvent]
    cursor: Item | None


class OutboxTable:
    """What the relay does to the table."""

    NEEDS = Need(
        (
            "dynamodb:BatchGetItem",
            "dynamodb:BatchWriteItem",
            "dynamodb:DeleteItem",
            "dynamodb:PutItem",
            "dynamodb:Query",
            "dynamodb:UpdateItem",
        ),
        OutboxRow,
    )

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._name = OutboxRow.table_name()

    def page(self, shard: int, cursor: Item | None = None, *, limit: int = PAGE_SIZE) -> Page:
        """Read pending events, strongly consistent."""
        start: Any = {"ExclusiveStartKey": cursor} if cursor else {}
        answer = clients.dynamodb().query(
            TableName=self._name,
            KeyConditionExpression="#partition = :pending",
            ExpressionAttributeNames={"#partition": "partition"},
            ExpressionAttributeValues={":pending": {"S": pending(shard)}},
            ConsistentRead=True,
            Limit=limit,
            **start,
        )
        return Page([PendingEvent.of(item) for item in answer["Items"]], answer.get("LastEvaluatedKey"))

    def among(self, partition: str, ids: Sequence[str]) -> set[str]:
        """Answer which of these ids, at most 100, the partition has: strongly consistent."""
        found: set[str] = set()
        wanted = [{"partition": {"S": partition}, "event_id": {"S": event_id}} for event_id in dict.fromkeys(ids)]

        def look_up() -> None:
            answer = clients.dynamodb().batch_get_item(
                RequestItems={
                    self._name: {
                        "Keys": wanted,
                        "ConsistentRead": True,
                        "ProjectionExpression": "#id",
                        "ExpressionAttributeNames": {"#id": "event_id"},
                    }
                }
            )
            found.update(item["event_id"]["S"] for item in answer["Responses"].get(self._name, ()))
            unread = answer.get("UnprocessedKeys", {}).get(self._name)
            wanted[:] = cast(list[Any], unread["Keys"]) if unread else []
            if wanted:
                raise Unavailable(f"DynamoDB left {len(wanted)} keys unread")

        if wanted:
            self._again(look_up)
        return found

    def mark_sent(self, shard: int, events: Sequence[PendingEvent], now: datetime) -> set[str]:
        """Put events into `sent`; answer the ids that were confirmed."""
        kept_until = str(epoch_seconds(now + timedelta(seconds=self._runtime.timings.sent_retention)))
        moved = {
            "partition": {"S": sent(shard)},
            "sent_at": {"S": timestamp(now)},
            "expires_at": {"N": kept_until},
        }
        return self._write({event.id: {"PutRequest": {"Item": {**event.item, **moved}}} for event in events})

    def remove_pending(self, shard: int, ids: Sequence[str]) -> set[str]:
        """Delete from `pending`; answer the ids that were confirmed."""
        return self._write(
            {
                event_id: {"DeleteRequest": {"Key": {"partition": {"S": pending(shard)}, "event_id": {"S": event_id}}}}
                for event_id in ids
            }
        )

    def record_attempt(
        self,
        event: PendingEvent,
        attempts: int,
        *,
        due_at: datetime | None = None,
        failure: Failure | None = None,
        untaken_since: datetime | None = None,
    ) -> bool:
        """Note an attempt in the pending row; answer False if the row is gone.

        Without the condition the update would bring back a row that someone else moved on: a ghost without payload.
        """
        changes = {"retry_count": {"N": str(attempts)}}
        if due_at is not None:
            changes["next_attempt_at"] = {"S": timestamp(due_at)}
        if failure is not None:
            changes["failure"] = {"S": failure.to_json()}
        if untaken_since is not None:
            changes["untaken_since"] = {"S": timestamp(untaken_since)}
        try:
            clients.dynamodb().update_item(
                TableName=self._name,
                Key={"partition": event.item["partition"], "event_id": event.item["event_id"]},
                UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in changes),
                ConditionExpression="attribute_exists(#id)",
                ExpressionAttributeNames={"#id": "event_id", **{f"#{name}": name for name in changes}},
                ExpressionAttributeValues={f":{name}": value for name, value in changes.items()},
            )
        except ClientError as error:
            if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
                return False
            raise
        event.attempts = attempts
        return True

    def bury(self, event: PendingEvent, failure: Failure, attempts: int, now: datetime) -> bool:
        """Move a pending event to the dead ones, with the reason; answer False if it is no longer pending."""
        gone = EventMoved(f"{event.id} is no longer pending")
        dead = event.dead(failure, attempts, now)
        try:
            write(
                [
                    Operation(OperationKind.DELETE, OutboxRow.as_it_is(event.item), gone, OutboxRow.event_id.exists()),
                    Operation(OperationKind.PUT, OutboxRow.as_it_is(dead), gone),
                ],
                self._runtime,
            )
        except EventMoved:
            return False
        return True

    def _write(self, requests: Mapping[str, Any]) -> set[str]:
        confirmed: set[str] = set()
        for batch in _chunks(list(requests.items())):
            confirmed |= self._write_batch(dict(batch))
        return confirmed

    def _write_batch(self, left: dict[str, Any]) -> set[str]:
        ids = set(left)

        def send() -> None:
            answer = clients.dynamodb().batch_write_item(RequestItems={self._name: list(left.values())})
            unwritten = {_id_of(request) for request in answer.get("UnprocessedItems", {}).get(self._name, ())}
            for done in left.keys() - unwritten:
                del left[done]
            if left:
                raise Unavailable(f"DynamoDB left {len(left)} rows unwritten")

        try:
            self._again(send)
        except Exception as error:
            # What is not confirmed stays as it is, and the caller is told which: nothing is lost by it.
            telemetry.log(LogEvent.ROWS_UNCONFIRMED, failure=failure_of(error), rows=len(left))
        return ids - left.keys()

    def _again(self, operation: Callable[[], None]) -> None:
        runtime = self._runtime
        retry(operation, backoff=runtime.timings.commit_backoff, clock=runtime.clock, random=runtime.random)


class EventMoved(Exception):
    """An event is not where it was: another relay or an operator moved it first."""


def _id_of(request: Any) -> str:
    written = request["PutRequest"]["Item"] if "PutRequest" in request else request["DeleteRequest"]["Key"]
    event_id: str = written["event_id"]["S"]
    return event_id


def _chunks(requests: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(requests), BATCH_WRITE):
        yield requests[start : start + BATCH_WRITE]
