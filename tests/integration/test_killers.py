"""Messages whose handler takes the function with it: they die alone, spaced like failures, and with a reason."""

from __future__ import annotations

import json
from collections import Counter, defaultdict

import pytest

from app.events import RepoCreated
from app.owners import Owner
from mailroom.consumer import consumer
from mailroom.consumer_edge import ConsumerEdge
from mailroom.failures import Failure
from mailroom.idempotency import ENDED_SILENTLY, IdempotencyRow
from mailroom.outbox.event import Envelope
from mailroom.runtime import Runtime
from mailroom.sources.memory import InMemorySource
from mailroom.telemetry import LogEvent
from mailroom.testing import LambdaContext, ManualClock
from mailroom.unit_of_work import UnitOfWork
from tests.faults import Died, failing, throttled
from tests.log_lines import Lines

from .conftest import CallCounter

VISIBILITY = 180
"""Seconds, as deployed: six timeouts of the function."""
KILLERS: set[str] = set()
BEGUN: dict[str, list[float]] = defaultdict(list)
"""When the handler began, by the event's name."""
CLOCK: list[ManualClock] = []


@consumer(on=RepoCreated, writes=[Owner])
def fragile(event: RepoCreated, work: UnitOfWork) -> None:
    BEGUN[event.name].append(CLOCK[0].monotonic())
    if event.name in KILLERS:
        raise Died
    work.update(Owner(event.name), [Owner.repo_count.add(1)])


class Function:
    """A deployed consumer: a batch is what waits, and who dies answers nothing."""

    def __init__(self, runtime: Runtime, clock: ManualClock) -> None:
        self.source = InMemorySource(clock)
        self._edge = ConsumerEdge(fragile, runtime, self.source)
        self._clock = clock

    def send(self, *names: str) -> None:
        for number, name in enumerate(names):
            payload = json.dumps({"repo_id": "1", "name": name, "owner_id": "owner-1"})
            event_id = f"01JDW3NDEKTSV4RRFFQ69G5F{number:02d}-03"
            envelope = Envelope(
                event_id, "repo.created", "test.service", "repos/1", "2030-01-01T00:00:00.000Z", payload
            )
            self.source.send(envelope.to_json())

    def deliver(self) -> bool:
        """Deliver what waits; return whether the function lives."""
        records = self.source.receive(10, wait=0, hidden=VISIBILITY)
        try:
            answer = self._edge.handle({"Records": records}, LambdaContext(30_000))
        except Died:
            return False
        failed = {each["itemIdentifier"] for each in answer["batchItemFailures"]}
        self.source.delete([each["receiptHandle"] for each in records if each["messageId"] not in failed])
        return True

    def run(self, hours: float) -> None:
        """Deliver for so long, each message as soon as it may come again."""
        for _ in range(int(hours * 360)):
            self.deliver()
            self._clock.advance(10)


@pytest.fixture
def function(runtime: Runtime, clock: ManualClock) -> Function:
    KILLERS.clear()
    BEGUN.clear()
    CLOCK[:] = [clock]
    return Function(runtime, clock)


TEN = [f"m{number}" for number in range(10)]


def effects() -> dict[str, int]:
    return {owner.id: int(owner.repo_count) for owner in Owner.scan(consistent_read=True)}


@pytest.mark.parametrize(
    "killers", [{0}, {9}, {0, 1}, {3, 7}, {8, 9}, {1, 4, 8}, set(range(9)), set(range(1, 10))], ids=str
)
def test_a_batch_with_killers_loses_nobody_else(function: Function, killers: set[int]) -> None:
    KILLERS.update(TEN[number] for number in killers)
    function.send(*TEN)
    function.run(hours=8)

    assert effects() == {name: 1 for name in TEN if name not in KILLERS}
    assert Counter({name: len(BEGUN[name]) for name in TEN}) == {name: 5 if name in KILLERS else 1 for name in TEN}
    rows = [row for row in IdempotencyRow.scan(consistent_read=True) if row.failing == "fragile"]
    assert sorted(json.loads(Envelope.from_json(body).payload)["name"] for body in function.source.dead) == sorted(
        KILLERS
    )
    assert len(rows) == len(KILLERS)
    assert {(int(row.attempts), Failure.from_json(row.failure)) for row in rows} == {(5, ENDED_SILENTLY)}


def test_silent_ends_are_spaced_like_failures(function: Function, runtime: Runtime) -> None:
    KILLERS.add("m0")
    function.send("m0")
    function.run(hours=3)

    waits = [after - before for before, after in zip(BEGUN["m0"], BEGUN["m0"][1:], strict=False)]
    assert len(waits) == 4
    for attempt, wait in enumerate(waits):
        shortest = min(runtime.timings.consumer_backoff.cap, runtime.timings.consumer_backoff.base * 2**attempt)
        assert shortest <= wait <= 1.5 * shortest + 2 * VISIBILITY


def test_a_silent_end_is_told_when_it_is_found__and_counted_once(function: Function, logs: Lines) -> None:
    KILLERS.add("m0")
    function.send("m0")
    function.run(hours=0.1)

    told = [each for each in logs() if each["message"] == LogEvent.MESSAGE_FAILED]
    assert [(each["attempt"], "killed" in str(each["failure"])) for each in told] == [(1, True)]


def test_a_batch_of_fresh_messages_takes_no_look_at_records(function: Function, calls: CallCounter) -> None:
    function.send(*TEN)
    assert function.deliver()
    assert calls.counts["BatchGetItem"] == 0


def test_what_was_handled_is_deleted__before_a_suspect_runs(function: Function, clock: ManualClock) -> None:
    KILLERS.add("m0")
    function.send("m0")
    function.deliver()
    clock.advance(600)
    function.send(*TEN)
    assert not function.deliver()
    assert len(function.source.hidden) == 2, "the suspect, and its copy that was sent with the others"


def test_a_batch_is_handled_in_any_order__when_records_cannot_be_read(function: Function, clock: ManualClock) -> None:
    KILLERS.add("m0")
    function.send("m0", "m1")
    function.deliver()
    KILLERS.clear()
    clock.advance(600)
    with failing("BatchGetItem", throttled, times=99):
        assert function.deliver()
    assert effects() == {"m0": 1, "m1": 1}
