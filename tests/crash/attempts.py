"""The scenario of a handler that fails at each attempt."""

from __future__ import annotations

import json
from collections.abc import Iterator

from app.events import RepoCreated
from mailroom.consumer import consumer
from mailroom.failures import Failure
from mailroom.idempotency import ENDED_SILENTLY
from mailroom.outbox.event import Envelope
from mailroom.unit_of_work import UnitOfWork

from .aws import QUEUE
from .harness import Scenario
from .ledger import Finding, Flaw
from .world import World

EVENT = "01JDW3NDEKTSV4RRFFQ69G5FAV-03"
REASON = "the receiver says no"
ATTEMPTS = 5
_LONGER_THAN_A_WAIT = 2 * 3_600


class _Handler:
    calls = 0


@consumer(on=RepoCreated)
def failing(event: RepoCreated, work: UnitOfWork) -> None:
    """Fail, and count how often."""
    _Handler.calls += 1
    raise ValueError(REASON)


class FailToTheEnd(Scenario):
    """A handler fails at each attempt: the last one is the last, and the dead letter says why."""

    def prepare(self, world: World) -> None:
        _Handler.calls = 0
        world.aws.move_after(ATTEMPTS + 2)  # fewer than deployed: after the last attempt all are alike
        payload = json.dumps({"repo_id": "1", "name": "a repository", "owner_id": "owner-1"})
        event = Envelope(EVENT, "repo.created", "test.service", "repos/1", "2030-01-01T00:00:00.000Z", payload)
        world.aws.send(event.to_json())

    def step(self, world: World) -> bool:
        world.clock.advance(_LONGER_THAN_A_WAIT)
        world.process.deliver(failing)
        return not world.aws.depth(QUEUE)

    def judge(self, world: World) -> Iterator[Finding]:
        if _Handler.calls > ATTEMPTS:
            yield Finding(Flaw.DUPLICATED, f"tried {_Handler.calls} times")
        if world.aws.depth(f"{QUEUE}-dead") != 1:
            yield Finding(Flaw.LOST, f"{world.aws.depth(f'{QUEUE}-dead')} dead letters")
        for record in world.records:
            reason = Failure.from_json(record["failure"]) if "failure" in record else ENDED_SILENTLY
            if reason != ENDED_SILENTLY and reason.message != REASON:
                yield Finding(Flaw.LOST, f"the reason became {reason.message}")
