"""The scenarios of an event that its destination does not take, in calls that take others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import ClassVar

from mailroom.failures import Failure, FailureKind
from mailroom.outbox.event import Envelope
from mailroom.outbox.table import DEAD
from mailroom.publishers.publisher import SENT, Outcome
from mailroom.testing import FakePublisher, not_taken
from tests.integration.outbox.conftest import Outbox

from .harness import Scenario
from .ledger import Finding, Flaw, nothing_waits, published
from .world import World

_LONGER_THAN_A_WAIT = 1_000


class _DrainPast(Scenario):
    """The relay delivers what is beside an event that is not taken, that event in the end, and then its successor."""

    refusal: ClassVar[Failure]
    times: ClassVar[int]
    """How often the event is not taken."""

    def prepare(self, world: World) -> None:
        self.asked: Counter[str] = Counter()
        outbox = Outbox(world.process.runtime, world.clock)
        subject = outbox.subject()
        self.bad = outbox.add(subject)
        self.other = outbox.add()
        self.ids = [self.bad, self.other, outbox.add(subject)]

        def answer(event: Envelope) -> Outcome:
            self.asked[event.id] += 1
            if event.id == self.bad and self.asked[event.id] <= self.times:
                return self.refusal
            world.journal.publish(event.id)
            return SENT

        world.deliver_by(FakePublisher(answer))

    def step(self, world: World) -> bool:
        world.clock.advance(_LONGER_THAN_A_WAIT)
        world.process.wake_relay()
        return not world.pending

    def judge(self, world: World) -> Iterator[Finding]:
        yield from nothing_waits(world)
        yield from published(world, self.ids)
        order = world.journal.published
        if {self.bad, self.other} <= set(order) and order.index(self.other) > order.index(self.bad):
            yield Finding(Flaw.STUCK, f"{self.other} waited for {self.bad}")
        for row in world.outbox:
            if row["partition"] == DEAD:
                yield Finding(Flaw.LOST, f"{row['event_id']} is dead")


class DrainPastRefused(_DrainPast):
    """One that a policy refuses, until somebody allows it."""

    refusal = Failure(FailureKind.TRANSIENT, "NotAuthorizedForDetailTypeException", "not this type", retry_after=900)
    times = 1


class DrainPastThrottled(_DrainPast):
    """One that is throttled by itself, for longer than it is sent again at once."""

    refusal = not_taken()
    times = 5
