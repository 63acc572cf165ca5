"""Delivery to an SNS topic, standard or FIFO.

Limits: https://docs.aws.amazon.com/sns/latest/api/API_PublishBatch.html
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mailroom import clients
from mailroom.needs import Need
from mailroom.outbox.event import Envelope
from mailroom.publishers.entries import advised, allow, outcomes_by_id, send_each
from mailroom.publishers.messages import attributes_of, ordering_of, size_of_message
from mailroom.publishers.place import Arn, Place
from mailroom.publishers.publisher import Limits, Outcome

if TYPE_CHECKING:
    from mailroom.runtime import Runtime

ACTIONS = ("sns:Publish",)
_DEFAULT_SIZE = 262_144
"""What a topic takes whose `MaximumMessageSize` nobody has raised."""


class SnsPublisher:
    """Publishes to one topic, with the attributes that subscriptions filter by.

    A missing topic needs no look of its own: unlike a bus, it answers that it is not there.

    Parameters
    ----------
    refused_after
        Seconds after which an event is tried again that the topic refused by itself.
    """

    limits: ClassVar = Limits(entries=10, entry_bytes=_DEFAULT_SIZE, call_bytes=_DEFAULT_SIZE)
    layer: ClassVar[str | None] = None
    size = staticmethod(size_of_message)

    def __init__(self, topic: Arn, *, refused_after: float) -> None:
        self._topic = topic
        self._refused_after = refused_after
        self.keeps_order = topic.is_fifo

    @classmethod
    def check_at(cls, place: Place) -> None:
        """See that the place is a topic's ARN."""
        place.arn("sns")

    @classmethod
    def needs_at(cls, place: Place) -> tuple[Need, ...]:
        """Answer what publishing to the topic of this ARN needs."""
        return (Need(ACTIONS, place.arn("sns").text),)

    @classmethod
    def at(cls, place: Place, runtime: Runtime) -> Self:
        """Make the publisher for the topic of this ARN, in whichever region it is."""
        return cls(place.arn("sns"), refused_after=runtime.timings.unroutable_after)

    def publish(self, events: Sequence[Envelope]) -> list[Outcome]:
        """Publish the events, up to ten of them and 256 KiB in sum."""
        if not events:
            return []
        outcomes = send_each([self._entry(str(n), event) for n, event in enumerate(events)], self._send)
        remedy, after = allow(ACTIONS), self._refused_after
        return [advised(each, self._topic.text, remedy=remedy, refused_after=after) for each in outcomes]

    def _entry(self, id_: str, event: Envelope) -> dict[str, Any]:
        entry = {"Id": id_, "Message": event.to_json(), "MessageAttributes": attributes_of(event)}
        return entry | ordering_of(event) if self.keeps_order else entry

    def _send(self, entries: Sequence[Any]) -> list[Outcome]:
        answer = clients.sns(self._topic.region).publish_batch(
            TopicArn=self._topic.text, PublishBatchRequestEntries=entries
        )
        return outcomes_by_id(entries, answer)
