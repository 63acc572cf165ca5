"""The scenarios of messages whose handler takes the process with it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from app.events import RepoCreated
from app.owners import Owner
from mailroom.consumer import consumer
from mailroom.outbox.event import Envelope
from mailroom.unit_of_work import UnitOfWork
from tests.faults import Died

from .aws import QUEUE
from .harness import Scenario
from .ledger import Finding, Flaw, nothing_waits, one_effect_each, records_completed
from .world import EFFECT, World

_EVENTS = [f"01JDW3NDEKTSV4RRFFQ69G5FA{last}-03" for last in "ABCD"]
_LONGER_THAN_A_WAIT = 6_000
_DEATHS = Counter[str]()
"""How often each event will still kill the process."""


@consumer(on=RepoCreated, writes=[Owner])
def fragile(event: RepoCreated, work: UnitOfWork) -> None:
    """Count the effects of each event in a row, unless it kills the process first."""
    if _DEATHS[work.cause_id] > 0:
        _DEATHS[work.cause_id] -= 1
        raise Died
    work.update(Owner(f"{EFFECT}{work.cause_id}"), [Owner.repo_count.add(1)])


class OutliveKillers(Scenario):
    """Two messages of a batch kill the process twice each; they and all others have their effect once."""

    tries = 120

    def prepare(self, world: World) -> None:
        _DEATHS.clear()
        _DEATHS.update({_EVENTS[0]: 2, _EVENTS[2]: 2})
        payload = json.dumps({"repo_id": "1", "name": "tool", "owner_id": "owner-1"})
        for event_id in _EVENTS:
            event = Envelope(event_id, "repo.created", "test.service", "repos/1", "2030-01-01T00:00:00.000Z", payload)
            world.aws.send(event.to_json())

    def step(self, world: World) -> bool:
        world.clock.advance(_LONGER_THAN_A_WAIT)
        world.process.deliver(to=fragile)
        return not world.messages

    def judge(self, world: World) -> Iterator[Finding]:
        if world.aws.depth(f"{QUEUE}-dead"):
            yield Finding(Flaw.LOST, "a message died of others, or before its last attempt")
        yield from nothing_waits(world)
        yield from one_effect_each(world, _EVENTS)
        yield from records_completed(world)


class WaitAfterASilentEnd(OutliveKillers):
    """A handler hangs until its process dies; its message waits as after a failure, and has its effect once."""

    def prepare(self, world: World) -> None:
        super().prepare(world)
        _DEATHS[_EVENTS[2]] = 0

    def step(self, world: World) -> bool:
        world.process.deliver(to=fragile)
        return not world.messages
