"""Parts and last words: what a consumer splits its event into, and what it does when its work failed for good."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from app.owners import Owner
from mailroom.clock import timestamp
from mailroom.consumer import consumer
from mailroom.consumer_edge import ConsumerEdge
from mailroom.declarations import DeclarationError
from mailroom.failures import Failure, FailureKind, Permanent
from mailroom.idempotency import COMPLETED, IdempotencyRow
from mailroom.needs import Access
from mailroom.outbox.event import Envelope, Event, EventRefused, Part
from mailroom.outbox.limits import EventTooLarge
from mailroom.registry import check_parts
from mailroom.runtime import Runtime
from mailroom.sources.memory import InMemorySource
from mailroom.sources.source import MAX_MESSAGE_BYTES, TENANT
from mailroom.telemetry import LogEvent
from mailroom.testing import LambdaContext, ManualClock
from mailroom.unit_of_work import UnitOfWork
from tests.faults import Died, failing, refused, throttled
from tests.log_lines import Lines

EVENT = "01JDW3NDEKTSV4RRFFQ69G5FAV-03"
Act = Callable[[Any, UnitOfWork], None]


class Happened(Event, type="test.happened"):
    what: str


class AlsoHappened(Event, type="test.also_happened"):
    what: str


class Piece(Part, type="test.piece"):
    number: int


ACTS: list[Act] = []
LAST_WORDS: list[Callable[[Any, Failure, UnitOfWork], bool]] = []


def last_words(event: Event, failure: Failure, work: UnitOfWork) -> bool:
    return LAST_WORDS[-1](event, failure, work)


@consumer(on=[Happened, AlsoHappened], writes=[Owner], splits_into=[Piece], gives_up=last_words)
def whole(event: Happened | AlsoHappened, work: UnitOfWork) -> None:
    ACTS[-1](event, work)


@consumer(on=Piece, writes=[Owner])
def pieces(event: Piece, work: UnitOfWork) -> None:
    work.update(Owner(f"piece-{event.number}"), [Owner.repo_count.add(1)])


class Line:
    """Two consumers in a row, each with its queue."""

    def __init__(self, runtime: Runtime, clock: ManualClock) -> None:
        self.clock = clock
        self.events, self.parts = InMemorySource(clock), InMemorySource(clock)
        self.whole = ConsumerEdge(whole, runtime, self.events, parts=self.parts)
        self.pieces = ConsumerEdge(pieces, runtime, self.parts)

    def send(self, kind: type[Event] = Happened) -> None:
        envelope = Envelope(EVENT, kind.type, "test.service", "things/1", "2030-01-01T00:00:00.000Z", '{"what":"it"}')
        self.events.send(envelope.to_json())

    def deliver(self) -> int:
        """Deliver what is visible, to both; answer how many deliveries failed."""
        return _deliver(self.events, self.whole) + _deliver(self.parts, self.pieces)

    def deliver_for_good(self) -> int:
        """Deliver until nothing comes any more; answer how many deliveries failed."""
        failed = 0
        for _ in range(30):
            failed += self.deliver()
            self.clock.advance(6_000)
        return failed


def _deliver(source: InMemorySource, edge: ConsumerEdge) -> int:
    records = source.receive(10, wait=0, hidden=180)
    if not records:
        return 0
    failed = {
        each["itemIdentifier"] for each in edge.handle({"Records": records}, LambdaContext())["batchItemFailures"]
    }
    source.delete([record["receiptHandle"] for record in records if record["messageId"] not in failed])
    return len(failed)


@pytest.fixture
def line(runtime: Runtime, clock: ManualClock) -> Iterator[Line]:
    yield Line(runtime, clock)
    ACTS.clear()
    LAST_WORDS.clear()


def split_in_three(event: Any, work: UnitOfWork) -> None:
    for number in range(3):
        work.split(Piece(number=number), key=str(number))


def counts() -> dict[str, int]:
    return {owner.id: int(owner.repo_count) for owner in Owner.scan()}


THREE = {f"piece-{number}": 1 for number in range(3)}


def test_each_part_is_a_message_for_the_consumer_that_waits_for_it(line: Line) -> None:
    ACTS.append(split_in_three)
    line.send()
    assert line.deliver() == 0
    assert counts() == THREE


def test_a_part_carries_an_id_made_of_the_events_and_its_key__and_the_events_trace(line: Line) -> None:
    ACTS.append(split_in_three)
    line.send()
    _deliver(line.events, line.whole)
    parts = [json.loads(body) for body in line.parts.visible]
    assert [part["id"] for part in parts] == [f"{EVENT}/{number}" for number in range(3)]
    assert {part["type"] for part in parts} == {"test.piece"}
    assert len({part["traceparent"] for part in parts}) == 1


def test_a_part_has_the_events_subject__and_the_moment_it_was_split_off(line: Line, clock: ManualClock) -> None:
    ACTS.append(split_in_three)
    line.send()
    _deliver(line.events, line.whole)
    parts = [json.loads(body) for body in line.parts.visible]
    assert {(part["subject"], part["time"]) for part in parts} == {("things/1", timestamp(clock.now()))}


def test_a_part_that_just_fits_its_queue_is_taken__and_not_one_byte_more(line: Line, runtime: Runtime) -> None:
    class Sheet(Part, type="test.sheet"):
        text: str

    cause = Envelope(EVENT, "test.happened", "test.service", "things/1", "2030-01-01T00:00:00.000Z", "{}")
    work = UnitOfWork(runtime, Access(splits_into=(Sheet,)), cause=cause, parts=line.parts)
    work.split(Sheet(text=""), key="1")
    work.commit()
    room = MAX_MESSAGE_BYTES - len(line.parts.visible[0].encode())
    work.split(Sheet(text="x" * room), key="2")
    with pytest.raises(EventTooLarge, match=r"test\.sheet"):
        work.split(Sheet(text="x" * (room + 1)), key="3")


def test_each_part_is_done_once__though_they_left_twice(line: Line, clock: ManualClock) -> None:
    ACTS.append(split_in_three)
    line.send()
    with failing("TransactWriteItems", lambda _: Died()), pytest.raises(Died):
        _deliver(line.events, line.whole)
    clock.advance(6_000)
    line.deliver_for_good()
    assert len(line.parts.visible) == 0
    assert counts() == THREE


def test_nothing_is_committed__when_the_parts_cannot_leave(line: Line, runtime: Runtime) -> None:
    class Closed:
        def put(self, bodies: object) -> list[Failure]:
            return [Failure(FailureKind.UNAVAILABLE, "Test", "closed")]

    def act(event: Any, work: UnitOfWork) -> None:
        work.save(Owner("written"))
        split_in_three(event, work)

    ACTS.append(act)
    line.send()
    assert _deliver(line.events, ConsumerEdge(whole, runtime, line.events, parts=Closed())) == 1
    assert counts() == {}


def test_a_part_is_the_tenants_that_it_names(line: Line) -> None:
    def act(event: Any, work: UnitOfWork) -> None:
        work.split(Piece(number=1), key="1", tenant="owner-1")
        work.split(Piece(number=2), key="2")

    ACTS.append(act)
    line.send()
    _deliver(line.events, line.whole)
    records = line.parts.receive(10, wait=0, hidden=30)
    assert [each["attributes"].get(TENANT) for each in records] == ["owner-1", None]


def test_a_tenant_that_no_queue_takes_is_refused(line: Line) -> None:
    def act(event: Any, work: UnitOfWork) -> None:
        with pytest.raises(EventRefused, match="'two words' is no tenant"):
            work.split(Piece(number=1), key="1", tenant="two words")

    ACTS.append(act)
    line.send()
    assert line.deliver() == 0
    assert counts() == {}


def test_two_parts_of_one_key_are_refused(line: Line) -> None:
    def act(event: Any, work: UnitOfWork) -> None:
        work.split(Piece(number=1), key="same")
        with pytest.raises(EventRefused, match="two parts of one event have the key 'same'"):
            work.split(Piece(number=2), key="same")

    ACTS.append(act)
    line.send()
    assert line.deliver() == 0


def test_a_consumer_of_several_events_gets_each_as_its_own_class(line: Line) -> None:
    seen: list[type] = []
    ACTS.append(lambda event, work: seen.append(type(event)))
    line.send(AlsoHappened)
    line.deliver()
    assert seen == [AlsoHappened]


def test_an_event_that_a_consumer_does_not_wait_for_is_dead_at_once__and_says_so(line: Line) -> None:
    LAST_WORDS.append(lambda *_: False)
    line.send(Piece)
    line.deliver_for_good()
    assert len(line.events.dead) == 1
    (row,) = IdempotencyRow.scan()
    assert "waits for test.happened, test.also_happened, not for test.piece" in row.failure


@pytest.mark.parametrize("waiting", [(), (pieces, pieces)], ids=["none", "two"])
def test_parts_need_one_consumer_that_waits_for_them(waiting: tuple[Any, ...]) -> None:
    with pytest.raises(DeclarationError, match="whole splits its events into Piece"):
        check_parts([whole, *waiting])
    check_parts([whole, pieces])


def test_a_consumer_of_parts_waits_for_nothing_else() -> None:
    with pytest.raises(DeclarationError, match="one kind of them, and for nothing else"):
        consumer(on=[Piece, Happened])(lambda event, work: None)


# Giving up


def fail(event: Any, work: UnitOfWork) -> None:
    raise Permanent("never")


def settle(event: Any, failure: Failure, work: UnitOfWork) -> bool:
    work.save(Owner("settled", email=failure.message))
    return True


def test_what_a_consumer_does_when_it_gives_up_settles_the_matter(line: Line, logs: Lines) -> None:
    ACTS.append(fail)
    LAST_WORDS.append(settle)
    line.send()
    assert line.deliver() == 0
    assert [owner.email for owner in Owner.scan()] == ["never"]
    assert [row.status for row in IdempotencyRow.scan()] == [COMPLETED]
    assert LogEvent.MESSAGE_GIVEN_UP in [line["message"] for line in logs()]


def test_it_gives_up_on_an_event_after_its_last_attempt__not_before(line: Line) -> None:
    attempts: list[Event] = []
    given_up: list[tuple[int, Event]] = []

    def act(event: Any, work: UnitOfWork) -> None:
        attempts.append(event)
        raise ValueError("again")

    def note(event: Any, failure: Failure, work: UnitOfWork) -> bool:
        given_up.append((len(attempts), event))
        return settle(event, failure, work)

    ACTS.append(act)
    LAST_WORDS.append(note)
    line.send()
    assert line.deliver_for_good() == 4
    assert given_up == [(5, attempts[0])]


def test_what_does_not_settle_it_is_written__and_the_message_dies(line: Line) -> None:
    def note(event: Any, failure: Failure, work: UnitOfWork) -> bool:
        work.update(Owner("noted"), [Owner.repo_count.add(1)])
        return False

    ACTS.append(fail)
    LAST_WORDS.append(note)
    line.send()
    line.deliver_for_good()
    assert len(line.events.dead) == 1
    assert counts()["noted"] >= 1
    assert [row.failing for row in IdempotencyRow.scan()] == ["whole"]


def test_giving_up_is_tried_again__when_its_own_write_fails(line: Line) -> None:
    ACTS.append(fail)
    LAST_WORDS.append(settle)
    line.send()
    with failing("TransactWriteItems", throttled, times=99):
        assert line.deliver() == 1
    assert counts() == {}
    assert line.deliver() == 0
    assert [owner.id for owner in Owner.scan()] == ["settled"]


def test_an_attempt_that_was_taken_over_gives_nothing_up__though_it_is_the_last(line: Line) -> None:
    given_up: list[Failure] = []
    attempts: list[Any] = []

    def overtaken_at_the_last(event: Any, work: UnitOfWork) -> None:
        attempts.append(event)
        if len(attempts) < 5:
            raise ValueError("again")
        for row in IdempotencyRow.scan():
            row.update([IdempotencyRow.taker.set("another")])
        work.save(Owner("late"))

    ACTS.append(overtaken_at_the_last)
    LAST_WORDS.append(lambda event, failure, work: bool(given_up.append(failure)))
    line.send()
    for _ in range(5):
        line.deliver()
        line.clock.advance(6_000)
    assert (len(attempts), given_up) == (5, [])
    assert counts() == {}


def test_an_event_that_killed_each_attempt_is_given_up_too(line: Line, clock: ManualClock) -> None:
    def die(event: Any, work: UnitOfWork) -> None:
        raise Died

    ACTS.append(die)
    LAST_WORDS.append(settle)
    line.send()
    for _ in range(5):
        with pytest.raises(Died):
            line.deliver()
        clock.advance(6_000)
    assert line.deliver() == 0
    assert [owner.id for owner in Owner.scan()] == ["settled"]


def test_a_refused_row_is_no_last_word(line: Line) -> None:
    ACTS.append(lambda event, work: work.save(Owner("x")))
    LAST_WORDS.append(settle)
    line.send()
    with failing("TransactWriteItems", refused("TransactionConflictException"), times=99):
        assert line.deliver() == 1
    assert counts() == {}


def test_two_copies_of_an_event_share_its_attempts__and_the_last_is_given_up_once(line: Line) -> None:
    attempts, given_up = [], []

    def act(event: Any, work: UnitOfWork) -> None:
        attempts.append(line.clock.monotonic())
        raise ValueError("again")

    def note(event: Any, failure: Failure, work: UnitOfWork) -> bool:
        given_up.append(len(attempts))
        return settle(event, failure, work)

    ACTS.append(act)
    LAST_WORDS.append(note)
    line.send()
    line.send()
    line.deliver_for_good()
    assert (len(attempts), given_up) == (5, [5])
    assert (line.events.dead, line.events.visible) == ([], [])


def test_a_copy_that_comes_after_the_last_verdict_is_taken_for_a_redriven_one(line: Line) -> None:
    attempts = []

    def act(event: Any, work: UnitOfWork) -> None:
        attempts.append(event)
        raise Permanent("never")

    ACTS.append(act)
    LAST_WORDS.append(lambda *_: False)
    line.send()
    line.deliver_for_good()
    line.send()
    line.deliver_for_good()
    assert len(attempts) == 2
    assert len(line.events.dead) == 2
