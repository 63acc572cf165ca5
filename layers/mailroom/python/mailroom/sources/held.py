"""A message that a worker has received, and what is told of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mailroom import telemetry
from mailroom.failures import Failure, FailureKind, Permanent
from mailroom.outbox.event import Envelope
from mailroom.sources.source import MAX_RECEIVES, Record, receives_of
from mailroom.telemetry import LogEvent, Metric


@dataclass
class Held:
    """A message that was received; nobody else gets it before `hidden_until`, by the monotonic clock."""

    record: Record
    hidden_until: float

    @property
    def receipt(self) -> str:
        """By what it is hidden and deleted."""
        receipt: str = self.record["receiptHandle"]
        return receipt

    @property
    def message_id(self) -> str:
        """The queue's own id of it."""
        message_id: str = self.record["messageId"]
        return message_id

    @property
    def is_last_chance(self) -> bool:
        """Whether it is delivered for the last time: given back, it would be dead without having been tried."""
        return receives_of(self.record) >= MAX_RECEIVES

    @cached_property
    def names(self) -> dict[str, Any]:
        """What log lines call it: the queue's id, and the event's where one can be read from it."""
        try:
            event_id = Envelope.from_json(self.record["body"]).id
        except Permanent:
            event_id = None
        return {"message_id": self.message_id, "event_id": event_id}


def is_stale(failure: Failure | None) -> bool:
    """Return whether a receipt is good for nothing any more: its message is gone, or somebody else's."""
    return failure is not None and failure.kind is FailureKind.PERMANENT


def log_failure(event: LogEvent, message: Held, failure: Failure, *, consumer: str) -> None:
    """Write that a call about a message failed."""
    if is_stale(failure):
        telemetry.count(Metric.RECEIPTS_STALE)
    telemetry.log(event, failure=failure, consumer=consumer, **message.names)
