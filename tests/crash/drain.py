"""What every scenario has in common in which the relay takes the outbox to some destination."""

from __future__ import annotations

from collections.abc import Iterator

from tests.integration.outbox.conftest import Outbox

from .harness import Scenario
from .ledger import Finding, nothing_waits, published
from .world import World


class Drain(Scenario):
    """The relay delivers three events, two of them about one subject."""

    def prepare(self, world: World) -> None:
        outbox = Outbox(world.process.runtime, world.clock)
        subject = outbox.subject()
        self.ids = [outbox.add(subject), outbox.add(), outbox.add(subject)]

    def step(self, world: World) -> bool:
        world.process.wake_relay()
        return not world.pending

    def judge(self, world: World) -> Iterator[Finding]:
        yield from nothing_waits(world)
        yield from published(world, self.ids)
