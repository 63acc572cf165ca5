"""An inbox: one consumer of the application with a queue in memory, fed and read as Lambda does it."""

from __future__ import annotations

from mailroom.clock import timestamp
from mailroom.consumer import Consumer
from mailroom.consumer_edge import ConsumerEdge
from mailroom.outbox.event import Envelope, Event, payload_of
from mailroom.runtime import Runtime
from mailroom.sources.memory import InMemorySource
from mailroom.testing import LambdaContext, ManualClock

EVENT = "01JDW3NDEKTSV4RRFFQ69G5FAV-03"
_LONGER_THAN_A_WAIT = 2 * 3_600


class Inbox:
    """Delivers events to a consumer."""

    def __init__(self, consumer: Consumer, runtime: Runtime, clock: ManualClock) -> None:
        self.source = InMemorySource(clock)
        self._clock = clock
        self._consumer = consumer
        self._edge = ConsumerEdge(consumer, runtime, self.source)
        self._timeout = consumer.timeout or runtime.timings.consumer_timeout

    def send(self, event: Event, event_id: str = EVENT) -> None:
        """Put an event into the queue."""
        envelope = Envelope(
            id=event_id,
            type=event.type,
            source="test.service",
            subject=None,
            time=timestamp(self._clock.now()),
            payload=payload_of(event),
        )
        self.source.send(envelope.to_json())

    def deliver(self, *, remaining_ms: int | None = None) -> bool:
        """Deliver what is there, and delete what was handled; answer whether all of it was."""
        hidden = 6 * self._timeout
        records = self.source.receive(10, wait=0, hidden=hidden)
        answer = self._edge.handle({"Records": records}, LambdaContext(remaining_ms or self._timeout * 1000))
        failed = {each["itemIdentifier"] for each in answer["batchItemFailures"]}
        self.source.delete([each["receiptHandle"] for each in records if each["messageId"] not in failed])
        return not failed

    def deliver_until_dead(self) -> None:
        """Deliver again and again, with all the waits, until nothing is left but dead letters."""
        while self.source.visible or self.source.hidden:
            self.deliver()
            self._clock.advance(_LONGER_THAN_A_WAIT)
            _ = self.source.dead  # moves those that were delivered often enough
