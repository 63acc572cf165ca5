"""The relay delivers over AWS's other protocols: what counts is what lies in the queue in the end.

Yandex Message Queue is not here: it is the queue of `DrainToQueue` behind another client. The brokers are in
`tests/crash/brokers.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from mailroom.outbox.event import Envelope

from .aws import ARRIVALS, FIFO_ARRIVALS, arn_of
from .drain import Drain
from .ledger import Finding, Flaw, refused_for_good
from .world import World


class _DrainToPlace(Drain):
    """To a place whose events end up in a queue."""

    url: ClassVar[str]
    queue: ClassVar[str] = ARRIVALS

    def prepare(self, world: World) -> None:
        world.deliver_to(self.url)
        super().prepare(world)

    def judge(self, world: World) -> Iterator[Finding]:
        yield from super().judge(world)
        arrived = [Envelope.from_json(body).id for body in world.aws.bodies(self.queue)]
        for event_id in self.ids:
            if event_id not in arrived and event_id not in refused_for_good(world):
                yield Finding(Flaw.LOST, f"{event_id} is not in the queue")
        first, _, third = self.ids  # about one subject
        if {first, third} <= set(arrived) and arrived.index(first) > arrived.index(third):
            yield Finding(Flaw.LOST, "the subject's order is lost in the queue")


class DrainToQueue(_DrainToPlace):
    """A standard queue."""

    url = f"sqs://{arn_of('sqs', ARRIVALS)}"


class DrainToFifoQueue(_DrainToPlace):
    """A FIFO queue, where a repetition vanishes."""

    url = f"sqs://{arn_of('sqs', FIFO_ARRIVALS)}"
    queue = FIFO_ARRIVALS


class DrainToTopic(_DrainToPlace):
    """A topic with a queue subscribed to it."""

    url = f"sns://{arn_of('sns', ARRIVALS)}"
