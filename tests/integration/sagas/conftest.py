"""Sagas at work: the outbox is carried to the consumer's queue, and the consumer handles what is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from itertools import count
from typing import Any, TypeVar

import pytest
from pydantic import BaseModel

from app.owners import Owner
from mailroom import clients
from mailroom.consumer_edge import ConsumerEdge
from mailroom.deployment import DEAD
from mailroom.job import JobEdge
from mailroom.jobs.saga_orchestrator import saga_orchestrator
from mailroom.outbox.event import Envelope
from mailroom.outbox.table import OutboxRow
from mailroom.runtime import Runtime
from mailroom.saga import STARTING, Saga, SagaStepRequested, Step, StepCall, saga, start
from mailroom.saga_consumer import SAGAS, saga_consumer
from mailroom.saga_row import SagaRow
from mailroom.sources.memory import InMemorySource
from mailroom.testing import LambdaContext, ManualClock
from mailroom.unit_of_work import UnitOfWork
from tests.moto_account import MotoAccount

from ..lagging import lagging_reads  # noqa: F401 - for every test here

LONGER_THAN_A_BACKOFF = 6_000


class Data(BaseModel):
    """What the saga of these tests works on."""

    told: str = ""


Behave = Callable[[StepCall], Any]
BEHAVE: dict[str, Behave] = {}
"""What a step does besides leaving its mark, by name: fail, most of the time."""
TOKENS: list[str] = []
"""The token of every attempt, in order."""


def acting(name: str) -> Callable[[Data, StepCall], Data | None]:
    """Make a step's function: it counts how often its effect happened, in a row of its own."""

    def act(data: Data, call: StepCall) -> Any:
        TOKENS.append(call.token)
        call.work.update(Owner(name), [Owner.repo_count.add(1)])
        changed = BEHAVE[name](call) if name in BEHAVE else None
        return changed if isinstance(changed, Data) else None

    act.__name__ = name
    return act


def trip_of(*steps: Step[Data]) -> Saga[Data]:
    return saga("trip", data=Data, steps=steps, writes=[Owner])


flight = Step(acting("flight"), acting("no_flight"))
hotel = Step(acting("hotel"), acting("no_hotel"))
car = Step(acting("car"), acting("no_car"), reaches_outside=True)
TRIP = trip_of(flight, hotel, car)


class Line:
    """One process, the queue of its sagas, and the tables."""

    def __init__(self, runtime: Runtime, clock: ManualClock) -> None:
        self.runtime, self.clock = runtime, clock
        self.queue = InMemorySource(clock)
        self.carried: list[str] = []
        self.bodies: dict[str, str] = {}
        self.deploy(TRIP)

    def deploy(self, *sagas: Saga[Any]) -> None:
        """Run these definitions from here on."""
        self.edge = ConsumerEdge(saga_consumer(__name__, sagas), self.runtime, self.queue)

    def start(self, definition: Saga[Any] = TRIP, data: BaseModel | None = None) -> str:
        work = UnitOfWork(self.runtime, STARTING)
        saga_id = start(definition, data or Data(), work)
        work.commit()
        return saga_id

    def row(self, saga_id: str) -> SagaRow:
        return SagaRow.get(saga_id, consistent_read=True)

    def carry(self) -> int:
        """Put new requests into the queue, as relay, bus and rule do; answer how many there were."""
        fresh = [row for row in requests() if row.event_id not in self.carried]
        for row in fresh:
            self.carried.append(row.event_id)
            self.bodies[row.event_id] = envelope_of(row).to_json()
            self.queue.send(self.bodies[row.event_id])
        return len(fresh)

    def deliver(self) -> int:
        """Deliver what is visible once; answer how many deliveries failed."""
        records = self.queue.receive(10, wait=0, hidden=180)
        if not records:
            return 0
        answer = self.edge.handle({"Records": records}, LambdaContext())
        failed = {each["itemIdentifier"] for each in answer["batchItemFailures"]}
        self.queue.delete([each["receiptHandle"] for each in records if each["messageId"] not in failed])
        return len(failed)

    def run(self, *, rounds: int = 30) -> int:
        """Carry and deliver until nothing comes any more; answer how many deliveries failed."""
        failed = 0
        for _ in range(rounds):
            self.carry()
            failed += self.deliver()
            if not self.queue.visible and not self.queue.hidden and not self.carry():
                break
            self.clock.advance(0 if self.queue.visible else LONGER_THAN_A_BACKOFF)
        return failed

    def redrive(self) -> None:
        """Send what is dead again, as an operator does: each under a new message id."""
        dead = list(self.queue.dead)
        self.queue._dead.clear()
        self.queue.send(*dead)

    def bury(self, queues: dict[str, str]) -> None:
        """Deploy the consumer's queues, and put what is dead where operators find it."""
        for name in (SAGAS, f"{SAGAS}{DEAD}"):
            queues[name] = clients.sqs().create_queue(QueueName=name)["QueueUrl"]
        for body in self.queue.dead:
            clients.sqs().send_message(QueueUrl=queues[f"{SAGAS}{DEAD}"], MessageBody=body)

    def orchestrate(self, runtime: Runtime | None = None) -> None:
        JobEdge(saga_orchestrator, runtime or self.runtime).run(LambdaContext(50_000))


T = TypeVar("T")
Prepare = Callable[["Line"], T]
_prepared: dict[Prepare[Any], tuple[Any, ...]] = {}


class Prepared:
    """Brings a line to where a test begins: by the whole way the first time, and by a copy of it from then on."""

    def __init__(self, account: MotoAccount, line: Line) -> None:
        self._account, self._line = account, line

    def by(self, prepare: Prepare[T]) -> T:
        """Return what `prepare` returned for the line; what it did is done."""
        if prepare not in _prepared:
            returned = prepare(self._line)
            _prepared[prepare] = returned, dict(BEHAVE), deepcopy((TOKENS, *self._state())), self._account.rows()
        returned, behave, (tokens, *state), rows = deepcopy(_prepared[prepare])
        BEHAVE.update(behave)
        TOKENS[:] = tokens
        self._set_state(*state)
        self._account.put(rows)
        result: T = returned
        return result

    def _state(self) -> tuple[Any, ...]:
        line, queue, clock = self._line, self._line.queue, self._line.clock
        in_queue = queue._messages, queue._dead, next(queue._numbers)
        return line.carried, line.bodies, line.runtime.random.getstate(), clock.now(), clock.monotonic(), in_queue

    def _set_state(self, carried: Any, bodies: Any, random: Any, now: Any, monotonic: Any, in_queue: Any) -> None:
        line, queue, clock = self._line, self._line.queue, self._line.clock
        line.carried, line.bodies = carried, bodies
        line.runtime.random.setstate(random)
        clock._now, clock._monotonic = now, monotonic
        queue._messages, queue._dead, number = in_queue
        queue._numbers = count(number)


@pytest.fixture
def prepared(moto_account: MotoAccount, line: Line) -> Prepared:
    return Prepared(moto_account, line)


def requests() -> list[OutboxRow]:
    """Every request in the outbox, oldest first."""
    rows = [row for row in OutboxRow.scan(consistent_read=True) if row.type == SagaStepRequested.type]
    return sorted(rows, key=lambda row: row.event_id)


def envelope_of(row: OutboxRow) -> Envelope:
    return Envelope(
        id=row.event_id,
        type=row.type,
        source=row.source,
        subject=row.subject,
        time=row.created_at,
        payload=row.payload,
        traceparent=row.traceparent,
        after=row.after,
    )


def effects() -> dict[str, int]:
    """How often each step's effect on our tables happened."""
    return {owner.id: int(owner.repo_count) for owner in Owner.scan(consistent_read=True)}


def once(*names: str) -> dict[str, int]:
    return dict.fromkeys(names, 1)


def raising(*errors: Exception | None) -> Behave:
    """Fail with these errors in turn, None is none, and then always with the last."""
    left = list(errors)

    def behave(_: StepCall) -> None:
        error = left.pop(0) if len(left) > 1 else left[0]
        if error is not None:
            raise error

    return behave


def outcomes(row: SagaRow) -> list[tuple[str, str, str]]:
    return [(each.step, each.direction.value, each.outcome.value) for each in row.transitions]


def names_of(steps: Iterable[Step[Data]]) -> list[str]:
    return [step.name for step in steps]


@pytest.fixture
def line(runtime: Runtime, clock: ManualClock) -> Line:
    BEHAVE.clear()
    TOKENS.clear()
    return Line(runtime, clock)
