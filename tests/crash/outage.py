"""The scenario of an outage: what a consumer depends on is not there for longer than all attempts take."""

from __future__ import annotations

import json
from collections.abc import Iterator

from mailroom.outbox.event import Envelope
from mailroom.sources.source import MAX_RECEIVES
from mailroom.timings import HOUR

from .aws import QUEUE
from .harness import PAST_EVERY_WINDOW, Scenario
from .ledger import Finding, Flaw, nothing_waits, one_effect_each, records_completed
from .world import Receiver, World

EVENT = "01JDW3NDEKTSV4RRFFQ69G5FAV-03"
_LONGER_THAN_A_WAIT = 2 * HOUR
_OUTAGE = 6
"""Deliveries before it is over: more than there are attempts."""


class OutliveAnOutage(Scenario):
    """A message that was delivered often meets an outage, goes on as a copy, and waits until it is over."""

    def prepare(self, world: World) -> None:
        self.deliveries = 0
        Receiver.down = True
        payload = json.dumps({"repo_id": "1", "name": "tool", "owner_id": "owner-1"})
        event = Envelope(EVENT, "repo.created", "test.service", "repos/1", "2030-01-01T00:00:00.000Z", payload)
        world.aws.send(event.to_json())
        for _ in range(MAX_RECEIVES - 3):
            world.aws.receive()
            world.clock.advance(PAST_EVERY_WINDOW)

    def step(self, world: World) -> bool:
        self.deliveries += 1
        Receiver.down = self.deliveries <= _OUTAGE
        world.clock.advance(_LONGER_THAN_A_WAIT)
        world.process.deliver()
        return not world.messages

    def judge(self, world: World) -> Iterator[Finding]:
        if world.aws.depth(f"{QUEUE}-dead"):
            yield Finding(Flaw.LOST, "the message died of the outage")
        yield from nothing_waits(world)
        yield from one_effect_each(world, [EVENT])
        yield from records_completed(world)
