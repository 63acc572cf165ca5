"""The scenarios: one class each, of what production does until it is done and what must have come of it.

A new one needs no more than its class here: the harness runs every subclass of `Scenario` in this module.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta

from mailroom.dead_letters.letter import OUTBOX, Fate
from mailroom.dead_letters.outbox import OutboxLetters
from mailroom.dead_letters.redrive import Plan, Redrive
from mailroom.http.testing import ApiAnswer
from mailroom.idempotency import COMPLETED, IdempotencyRow
from mailroom.jobs.cleanup import cleanup
from mailroom.jobs.outbox_relay import outbox_relay
from mailroom.lease import Lease
from mailroom.outbox.event import Envelope
from mailroom.outbox.relay import lease_name
from mailroom.outbox.table import DEAD, DISCARDED
from mailroom.testing import permanent, transient
from tests.integration.outbox.conftest import SHARD, Outbox
from tests.lagging_reads import TABLE_LAG

from .attempts import FailToTheEnd  # noqa: F401 - run like those below
from .aws import QUEUE
from .brokers import DrainToKafka, DrainToRabbitMq  # noqa: F401 - run like those below
from .dead_letters import EditUnseen, RedriveUnseen  # noqa: F401 - run like those below
from .destinations import DrainToFifoQueue, DrainToQueue, DrainToTopic  # noqa: F401 - run like those below
from .drain import Drain as _Drain
from .harness import PAST_EVERY_WINDOW, Scenario
from .killers import OutliveKillers, WaitAfterASilentEnd  # noqa: F401 - run like those below
from .ledger import (
    Finding,
    Flaw,
    nothing_waits,
    once,
    one_command,
    one_effect_each,
    published,
    records_completed,
    refused_for_good,
)
from .outage import OutliveAnOutage  # noqa: F401 - run like those below
from .refused_alone import DrainPastRefused, DrainPastThrottled  # noqa: F401 - run like those below
from .reports import WriteReport  # noqa: F401 - run like those below
from .sagas import StuckTransferIsRetried, TransferCompletes, TransferIsUndone  # noqa: F401 - run like those below
from .signing import Rotation  # noqa: F401 - run like those below
from .unreadable import DrainPastUnreadable  # noqa: F401 - run like those below
from .webhooks import DeliverToWebhooks  # noqa: F401 - run like those below
from .world import DEED, Receiver, World

ORDER = {"name": "a repository", "owner_id": "owner-1"}
_LONGER_THAN_A_BACKOFF = 90
EVENT = "01JDW3NDEKTSV4RRFFQ69G5FAV-03"


class _Client:
    """A caller of the API that sends the same request with the same key until it has an answer."""

    def __init__(self) -> None:
        self.answers: list[ApiAnswer] = []

    def answered(self, world: World) -> bool:
        """Send the request; answer whether that was the end of it."""
        answer = world.process.api.post("/api/v1/repos", ORDER, key="key-1")
        if answer.status >= 500 or "Retry-After" in answer.headers:
            return False
        self.answers.append(answer)
        return True


class Post(Scenario):
    """A client creates a repository."""

    def __init__(self) -> None:
        self.client = _Client()

    def step(self, world: World) -> bool:
        return self.client.answered(world)

    def judge(self, world: World) -> Iterator[Finding]:
        yield from one_command(world, self.client.answers)


class DrainToMemory(_Drain):
    """To a destination whose calls are no AWS calls."""

    def prepare(self, world: World) -> None:
        world.publish_to()
        super().prepare(world)


class DrainToEventBridge(_Drain):
    """To the bus."""

    def judge(self, world: World) -> Iterator[Finding]:
        yield from published(world, self.ids)


class DrainAfterACrash(DrainToMemory):
    """By a relay whose predecessor died in the middle of it, so that it goes one by one."""

    def prepare(self, world: World) -> None:
        super().prepare(world)
        Lease(lease_name(SHARD), world.process.runtime).acquire()
        world.clock.advance(PAST_EVERY_WINDOW)


class Sweep(_Drain):
    """The job delivers what lies in several shards."""

    def prepare(self, world: World) -> None:
        world.publish_to()
        super().prepare(world)
        client = _Client()
        client.answered(world)
        self.ids = list(world.journal.committed)

    def step(self, world: World) -> bool:
        world.process.run(outbox_relay)
        return not world.pending


class Consume(Scenario):
    """A consumer gets an event twice, as SQS may deliver it."""

    def prepare(self, world: World) -> None:
        self.event = EVENT
        world.aws.send(_message(EVENT))
        world.aws.send(_message(EVENT))

    def step(self, world: World) -> bool:
        world.process.deliver()
        return not world.messages

    def judge(self, world: World) -> Iterator[Finding]:
        yield from nothing_waits(world)
        yield from one_effect_each(world, [self.event])
        yield from records_completed(world)


class Work(Scenario):
    """A worker outside Lambda handles three events, one of which comes twice."""

    def prepare(self, world: World) -> None:
        self.events = [EVENT.replace("5FAV", ending) for ending in ("5FAA", "5FAB", "5FAC")]
        for event in (*self.events, self.events[1]):
            world.aws.send(_message(event))

    def step(self, world: World) -> bool:
        world.process.work()
        return not world.messages

    def judge(self, world: World) -> Iterator[Finding]:
        yield from nothing_waits(world)
        yield from one_effect_each(world, self.events)
        yield from records_completed(world)


class RedriveToConsumer(Scenario):
    """A consumer fails, its message dies, an operator mends the receiver and redrives it."""

    tries = 120  # a message that died without a last word is taken for dead only when no delivery can come any more

    def prepare(self, world: World) -> None:
        self.wanted: set[str] = set()
        Receiver.broken = True
        world.aws.move_after(3)  # fewer than deployed: they are all alike
        world.aws.send(_message(EVENT))

    def step(self, world: World) -> bool:
        world.process.deliver()
        if Receiver.broken and world.aws.depth(f"{QUEUE}-dead"):
            plan = Plan.matching(world.process.desk, keep=lambda _: True)
            self.wanted |= {letter.id for letter in plan.letters}
            Receiver.broken = Receiver.broken and not self.wanted
        if self.wanted:
            self._redrive(world)
        return not Receiver.broken and not world.messages

    def judge(self, world: World) -> Iterator[Finding]:
        yield from nothing_waits(world)
        yield from one_effect_each(world, [EVENT])
        yield from records_completed(world)
        for letter in world.process.desk.letters():
            yield Finding(Flaw.STUCK, f"{letter.id} is still listed as {letter.state}")

    def _redrive(self, world: World) -> None:
        """Redrive what is wanted, and clear away what is left of a redrive that was cut short."""
        desk = world.process.desk
        for result in Redrive(desk, Plan.naming(desk, QUEUE, self.wanted), DEED).run():
            if result.fate is Fate.SUCCEEDED_BEFORE:
                list(desk.of(QUEUE).discard([result.id], DEED))


class DiscardAtConsumer(RedriveToConsumer):
    """A consumer fails, its message dies, an operator gives it up."""

    def prepare(self, world: World) -> None:
        super().prepare(world)
        while not world.aws.depth(f"{QUEUE}-dead"):
            world.process.deliver()
            world.clock.advance(1)

    def step(self, world: World) -> bool:
        self.wanted |= {letter.id for letter in world.process.desk.letters()}
        list(world.process.desk.of(QUEUE).discard(sorted(self.wanted), DEED))
        return not world.messages

    def judge(self, world: World) -> Iterator[Finding]:
        yield from nothing_waits(world)
        if world.effects:
            yield Finding(Flaw.DUPLICATED, "an event that was given up had an effect")
        for record in world.records:
            if "history" not in record:
                yield Finding(Flaw.LOST, "the event was given up without a reason")


class RetryDieRedrive(Scenario):
    """An event fails five times and dies; an operator redrives it, and it is published."""

    def prepare(self, world: World) -> None:
        world.publish_to(*[transient()] * 5)
        self.ids = [Outbox(world.process.runtime, world.clock).add()]

    def step(self, world: World) -> bool:
        world.clock.advance(_LONGER_THAN_A_BACKOFF)
        world.process.wake_relay()
        if any(row["partition"] == DEAD for row in world.outbox):
            plan = Plan.matching(world.process.desk, source=OUTBOX, keep=lambda _: True)
            list(Redrive(world.process.desk, plan, DEED).run())
            return False
        return not world.pending

    def judge(self, world: World) -> Iterator[Finding]:
        yield from nothing_waits(world)
        yield from published(world, self.ids)


class _Dead(Scenario):
    """An event is dead before it begins."""

    def prepare(self, world: World) -> None:
        world.publish_to(permanent())
        self.event = Outbox(world.process.runtime, world.clock).add()
        world.process.wake_relay()

    @staticmethod
    def letters(world: World) -> OutboxLetters:
        """Answer the outbox's dead letters."""
        letters = world.process.desk.of("outbox")
        assert isinstance(letters, OutboxLetters)
        return letters

    def gone(self, world: World) -> Iterator[Finding]:
        """Find it if it is not given up for good."""
        if [row["partition"] for row in world.outbox if row["event_id"] == self.event] != [DISCARDED]:
            yield Finding(Flaw.STUCK, f"{self.event} is not given up")
        if self.event in world.journal.published:
            yield Finding(Flaw.DUPLICATED, f"{self.event} was given up and published")


class Discard(_Dead):
    """An operator gives a dead event up."""

    def step(self, world: World) -> bool:
        (result,) = self.letters(world).discard([self.event], DEED)
        return result.fate in {Fate.DONE, Fate.NOT_DEAD}

    def judge(self, world: World) -> Iterator[Finding]:
        yield from self.gone(world)
        yield from nothing_waits(world)


class Edit(_Dead):
    """An operator mends a dead event, and the relay delivers the copy."""

    def step(self, world: World) -> bool:
        result = self.letters(world).edit(self.event, '{"mended":true}', DEED)
        world.process.wake_relay()
        return result.fate in {Fate.DONE, Fate.NOT_DEAD} and not world.pending

    def judge(self, world: World) -> Iterator[Finding]:
        yield from self.gone(world)
        yield from nothing_waits(world)
        copies = [row["event_id"] for row in world.outbox if row.get("parent") == self.event]
        yield from once("mended copies", len(copies))
        if not set(copies) <= set(world.journal.published):
            yield Finding(Flaw.LOST, "the mended copy was never published")


class Cleanup(Scenario):
    """The job deletes the records whose time has passed, and no other."""

    def prepare(self, world: World) -> None:
        for name, seconds in (("old", -1000), ("older", -2000), ("young", 90_000)):
            expires_at = world.clock.now() + timedelta(seconds=seconds)
            IdempotencyRow(name, status=COMPLETED, in_progress_until=0, expires_at=expires_at).save()
        world.clock.advance(TABLE_LAG)  # long enough ago for a scan to find them

    def step(self, world: World) -> bool:
        world.process.run(cleanup)
        return self._left(world) == ["young"]

    def judge(self, world: World) -> Iterator[Finding]:
        left = self._left(world)
        if "young" not in left:
            yield Finding(Flaw.LOST, "a record was deleted before its time")
        if len(left) > 1:
            yield Finding(Flaw.STUCK, f"records were left: {left}")

    @staticmethod
    def _left(world: World) -> list[str]:
        return sorted(record["id"] for record in world.records)


class WholePath(Scenario):
    """A client creates a repository, the relay delivers the event, a consumer has its effect."""

    def __init__(self) -> None:
        self.client = _Client()

    def step(self, world: World) -> bool:
        answered = self.client.answered(world)
        world.process.wake_relay()
        world.process.deliver()
        return answered and not world.pending and not world.messages

    def judge(self, world: World) -> Iterator[Finding]:
        yield from one_command(world, self.client.answers)
        yield from nothing_waits(world)
        yield from one_effect_each(world, world.journal.committed.keys() - refused_for_good(world))
        yield from records_completed(world)


SCENARIOS: list[type[Scenario]] = [
    kind
    for name, kind in list(vars().items())
    if not name.startswith("_") and isinstance(kind, type) and issubclass(kind, Scenario) and kind is not Scenario
]


def _message(event_id: str) -> str:
    payload = json.dumps({"repo_id": "1", "name": "a repository", "owner_id": "owner-1"})
    return Envelope(event_id, "repo.created", "test.service", "repos/1", "2030-01-01T00:00:00.000Z", payload).to_json()
