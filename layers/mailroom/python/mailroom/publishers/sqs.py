"""Delivery to an SQS queue, standard or FIFO."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mailroom import clients
from mailroom.failures import FailureKind, failure_of
from mailroom.needs import Need
from mailroom.outbox.event import Envelope
from mailroom.publishers.entries import advised, allow, is_refusal, outcomes_by_id, send_each
from mailroom.publishers.messages import attributes_of, ordering_of, size_of_message
from mailroom.publishers.place import Arn, Place, is_fifo
from mailroom.publishers.publisher import Limits, Outcome
from mailroom.sources.source import MAX_BATCH, MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    from types_boto3_sqs import SQSClient

    from mailroom.runtime import Runtime

Connection = tuple["SQSClient", str]
"""A client, and the URL of the queue."""

ACTIONS = ("sqs:GetQueueUrl", "sqs:SendMessage")


class SqsPublisher:
    """Publishes to one queue.

    Where it is looked up before the first event, and anew once it is gone or refuses us. A look each minute would
    tell nothing more: unlike a bus, a missing queue answers that it is not there.

    Parameters
    ----------
    connect
        Finds the queue; what it raises is the queue's fault and no event's.
    name
        What it is called in failures; with `.fifo` at the end it keeps the order.
    remedy
        What to do when it does not take us for who we are.
    refused_after
        Seconds after which an event is tried again that it refused by itself.
    """

    limits: ClassVar = Limits(entries=MAX_BATCH, entry_bytes=MAX_MESSAGE_BYTES, call_bytes=MAX_MESSAGE_BYTES)
    layer: ClassVar[str | None] = None
    size = staticmethod(size_of_message)

    def __init__(self, connect: Callable[[], Connection], *, name: str, remedy: str, refused_after: float) -> None:
        self._connect = connect
        self._name = name
        self._remedy = remedy
        self._refused_after = refused_after
        self._connection: Connection | None = None
        self._lock = Lock()
        self.keeps_order = is_fifo(name)

    @classmethod
    def check_at(cls, place: Place) -> None:
        """See that the place is a queue's ARN."""
        place.arn("sqs")

    @classmethod
    def needs_at(cls, place: Place) -> tuple[Need, ...]:
        """Answer what publishing to the queue of this ARN needs."""
        return (Need(ACTIONS, place.arn("sqs").text),)

    @classmethod
    def at(cls, place: Place, runtime: Runtime) -> Self:
        """Make the publisher for the queue of this ARN, in whichever region it is."""
        arn = place.arn("sqs")
        after = runtime.timings.unroutable_after
        return cls(lambda: _queue_of(arn), name=arn.text, remedy=allow(ACTIONS), refused_after=after)

    def publish(self, events: Sequence[Envelope]) -> list[Outcome]:
        """Send the events, up to ten of them and as many bytes as one may have alone."""
        if not events:
            return []
        try:
            client, url = self._connected()
        except Exception as error:
            failure = replace(failure_of(error), kind=FailureKind.UNAVAILABLE)
            return [self._advised(failure)] * len(events)
        entries = [self._entry(str(number), event) for number, event in enumerate(events)]
        return [self._advised(outcome) for outcome in send(client, url, entries)]

    def _entry(self, id_: str, event: Envelope) -> dict[str, Any]:
        entry = {"Id": id_, "MessageBody": event.to_json(), "MessageAttributes": attributes_of(event)}
        return entry | ordering_of(event) if self.keeps_order else entry

    def _connected(self) -> Connection:
        with self._lock:
            if self._connection is None:
                self._connection = self._connect()
            return self._connection

    def _advised(self, outcome: Outcome) -> Outcome:
        if is_refusal(outcome):
            self._connection = None
        return advised(outcome, self._name, remedy=self._remedy, refused_after=self._refused_after)


def send(client: SQSClient, url: str, entries: Sequence[Any]) -> list[Outcome]:
    """Put messages into a queue within its limits; answer what became of each, by position. Never raises."""

    def call(some: Sequence[Any]) -> list[Outcome]:
        return outcomes_by_id(some, client.send_message_batch(QueueUrl=url, Entries=some))

    return send_each(entries, call)


def _queue_of(arn: Arn) -> Connection:
    client = clients.sqs(arn.region)
    answer = client.get_queue_url(QueueName=arn.name, QueueOwnerAWSAccountId=arn.account)
    return client, answer["QueueUrl"]
