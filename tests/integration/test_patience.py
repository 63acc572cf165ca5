"""What a consumer depends on is not there: its messages wait, use no attempts, and outlive the limits of SQS."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.events import RepoCreated
from app.owners import Owner
from mailroom.consumer import consumer
from mailroom.failures import Failure, FailureKind, Unavailable
from mailroom.idempotency import COMPLETED, FAILED, IdempotencyRow
from mailroom.runtime import Runtime
from mailroom.sources.source import MAX_RECEIVES, TENANT, Message
from mailroom.testing import ManualClock
from mailroom.timings import DAY, HOUR, MAX_DELAY
from mailroom.unit_of_work import UnitOfWork
from tests.faults import failing, throttled
from tests.inbox import Inbox
from tests.log_lines import Lines

CREATED = RepoCreated(repo_id="1", name="tool", owner_id="owner-1")
OTHER = "01JDW3NDEKTSV4RRFFQ69G5FAW-03"
DOWN = Unavailable("the service refuses connections")


class Dependency:
    """What the consumers under test depend on."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.asked = 0

    def ask(self) -> None:
        self.asked += 1
        if self.error is not None:
            raise self.error


DEPENDENCY = Dependency()


@consumer(on=RepoCreated, writes=[Owner])
def depending(event: RepoCreated, work: UnitOfWork) -> None:
    DEPENDENCY.ask()
    work.update(Owner(event.owner_id), [Owner.repo_count.add(1)])


@consumer(on=RepoCreated, patience=0)
def impatient(event: RepoCreated, work: UnitOfWork) -> None:
    DEPENDENCY.ask()


@consumer(on=RepoCreated, patience=3 * HOUR)
def hurried(event: RepoCreated, work: UnitOfWork) -> None:
    DEPENDENCY.ask()


@pytest.fixture
def inbox(runtime: Runtime, clock: ManualClock) -> Inbox:
    DEPENDENCY.__init__()  # type: ignore[misc]
    return Inbox(depending, runtime, clock)


def record() -> IdempotencyRow:
    (row,) = IdempotencyRow.scan()
    return row


def effects() -> int:
    return sum(int(row.repo_count) for row in Owner.scan())


def pass_time(inbox: Inbox, clock: ManualClock, seconds: float, look_every: float = 600) -> None:
    """Deliver what there is, again and again, for so long."""
    for _ in range(int(seconds / look_every)):
        inbox.deliver()
        clock.advance(look_every)


def test_an_outage_longer_than_all_attempts_uses_none__and_the_effect_happens_once_after_it(
    inbox: Inbox, clock: ManualClock
) -> None:
    DEPENDENCY.error = DOWN
    inbox.send(CREATED)
    pass_time(inbox, clock, 2 * DAY)
    assert (int(record().attempts), record().status, inbox.source.dead) == (0, FAILED, [])
    assert DEPENDENCY.asked > MAX_RECEIVES
    DEPENDENCY.error = None
    pass_time(inbox, clock, 2 * HOUR)
    assert (effects(), record().status, record().waits, record().first_failed_at) == (1, COMPLETED, None, None)
    assert inbox.source.visible == inbox.source.hidden == []


def test_the_waits_grow_as_those_between_attempts_do(inbox: Inbox, clock: ManualClock, runtime: Runtime) -> None:
    DEPENDENCY.error = DOWN
    inbox.send(CREATED)
    backoff = runtime.timings.consumer_backoff
    for wait in range(4):
        inbox.deliver()
        clock.advance(backoff.base * 2**wait - 1)
        assert inbox.source.visible == []
        clock.advance(backoff.base * 2**wait / 2 + 2)
        assert len(inbox.source.visible) == 1


def test_after_its_patience_a_message_is_dead__and_says_what_it_waited_for(
    inbox: Inbox, clock: ManualClock, runtime: Runtime
) -> None:
    DEPENDENCY.error = DOWN
    inbox.send(CREATED)
    pass_time(inbox, clock, runtime.timings.patience)
    assert inbox.source.dead == []
    pass_time(inbox, clock, 3 * HOUR)
    assert len(inbox.source.dead) == 1
    failure = Failure.from_json(record().failure)
    assert (failure.kind, failure.type) == (FailureKind.PERMANENT, "Unavailable")
    assert "96." in failure.message
    assert failure.message.endswith("the service refuses connections")


def test_patience_is_counted_from_the_first_failure__not_from_a_copy(runtime: Runtime, clock: ManualClock) -> None:
    DEPENDENCY.__init__()  # type: ignore[misc]
    inbox = Inbox(hurried, runtime, clock)
    DEPENDENCY.error = ValueError("a bug")
    inbox.send(CREATED)
    inbox.deliver()
    DEPENDENCY.error = DOWN
    pass_time(inbox, clock, 5 * HOUR)
    assert len(inbox.source.dead) == 1
    assert "not there for 3." in Failure.from_json(record().failure).message


def test_a_consumer_without_patience_uses_its_attempts(runtime: Runtime, clock: ManualClock) -> None:
    DEPENDENCY.__init__()  # type: ignore[misc]
    inbox = Inbox(impatient, runtime, clock)
    DEPENDENCY.error = DOWN
    inbox.send(CREATED)
    inbox.deliver_until_dead()
    assert DEPENDENCY.asked == runtime.timings.consumer_backoff.attempts
    assert Failure.from_json(record().failure).kind is FailureKind.TRANSIENT


def test_attempts_that_were_used_before_count__and_the_last_one_is_not_used_by_waiting(
    inbox: Inbox, clock: ManualClock, runtime: Runtime
) -> None:
    attempts = runtime.timings.consumer_backoff.attempts
    DEPENDENCY.error = ValueError("a bug")
    inbox.send(CREATED)
    for _ in range(attempts - 1):
        inbox.deliver()
        clock.advance(2 * HOUR)
    DEPENDENCY.error = DOWN
    pass_time(inbox, clock, DAY)
    assert (int(record().attempts), inbox.source.dead) == (attempts - 1, [])
    DEPENDENCY.error = ValueError("a bug")
    inbox.deliver_until_dead()
    assert int(record().attempts) == attempts
    assert Failure.from_json(record().failure).message == "a bug"


def test_a_message_is_renewed_before_sqs_would_move_it_on(inbox: Inbox, clock: ManualClock, logs: Lines) -> None:
    DEPENDENCY.error = DOWN
    inbox.source.put([Message(body_of(inbox), tenant="owner-1")])
    while not (renewed := [line for line in logs() if line["message"] == "message renewed"]):
        inbox.deliver()
        clock.advance(600)
    assert [line["delivery"] for line in renewed] == [MAX_RECEIVES - 2]
    clock.advance(MAX_DELAY)
    (copy,) = inbox.source.receive(10, wait=0, hidden=30)
    assert copy["messageId"] != renewed[0]["message_id"]
    assert (copy["attributes"]["ApproximateReceiveCount"], copy["attributes"][TENANT]) == ("1", "owner-1")


def body_of(inbox: Inbox, event_id: str = OTHER) -> str:
    """Make a message by way of the queue."""
    inbox.send(CREATED, event_id)
    (record,) = inbox.source.receive(1, wait=0, hidden=30)
    inbox.source.delete([record["receiptHandle"]])
    return str(record["body"])


def test_a_copy_waits_too__for_as_long_as_sqs_delays_a_message(inbox: Inbox, clock: ManualClock) -> None:
    DEPENDENCY.error = DOWN
    inbox.send(CREATED)
    while inbox.deliver() is False:
        clock.advance(2 * HOUR)
    assert inbox.source.visible == []
    clock.advance(MAX_DELAY - 1)
    assert inbox.source.visible == []
    clock.advance(1)
    assert len(inbox.source.visible) == 1


def test_a_message_is_renewed_before_it_is_too_old(
    inbox: Inbox, clock: ManualClock, runtime: Runtime, logs: Lines
) -> None:
    DEPENDENCY.error = DOWN
    inbox.send(CREATED)
    clock.advance(runtime.timings.source_retention - HOUR)  # nobody read the queue
    inbox.deliver()
    assert [line["delivery"] for line in logs() if line["message"] == "message renewed"] == [1]


def test_a_message_waits_on_where_no_copy_can_be_put__and_that_is_told(
    inbox: Inbox, clock: ManualClock, logs: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(messages: object) -> list[Failure]:
        raise DOWN

    monkeypatch.setattr(inbox.source, "put", refuse)
    DEPENDENCY.error = DOWN
    inbox.send(CREATED)
    for _ in range(MAX_RECEIVES - 1):
        inbox.deliver()
        clock.advance(1.5 * HOUR)
    assert [line["message"] for line in logs()].count("message not renewed") == 2
    assert (len(inbox.source.visible), inbox.source.dead) == (1, [])


def test_two_copies_after_a_crash_between_put_and_delete_are_one_effect(
    inbox: Inbox, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox.source, "delete", lambda receipts: {})
    DEPENDENCY.error = DOWN
    inbox.send(CREATED)
    while inbox.deliver() is False:
        clock.advance(2 * HOUR)
    monkeypatch.undo()
    assert len(inbox.source.hidden) == 2
    DEPENDENCY.error = None
    pass_time(inbox, clock, 3 * HOUR)
    assert (effects(), inbox.source.visible, inbox.source.hidden, inbox.source.dead) == (1, [], [], [])


def test_a_record_that_cannot_be_taken_uses_nothing_up_either(inbox: Inbox, clock: ManualClock) -> None:
    inbox.send(CREATED)
    with failing("UpdateItem", throttled, times=10_000):
        pass_time(inbox, clock, DAY, look_every=HOUR)
    assert (list(IdempotencyRow.scan()), inbox.source.dead) == ([], [])
    pass_time(inbox, clock, 2 * HOUR)
    assert effects() == 1


def test_a_redriven_message_has_its_patience_anew(inbox: Inbox, clock: ManualClock, runtime: Runtime) -> None:
    DEPENDENCY.error = DOWN
    inbox.send(CREATED)
    pass_time(inbox, clock, runtime.timings.patience, look_every=HOUR)
    inbox.deliver_until_dead()
    (body,) = inbox.source.dead
    inbox.source.send(body)  # as the console does
    inbox.deliver()
    assert record().status == FAILED
    assert (int(record().attempts), int(record().waits)) == (0, 1)
    DEPENDENCY.error = None
    clock.advance(2 * HOUR)
    inbox.deliver()
    assert effects() == 1


@pytest.mark.parametrize("error", [None, ValueError("a bug")], ids=["well", "bug"])
def test_the_waits_are_short_again_after_anything_else(
    inbox: Inbox, clock: ManualClock, error: Exception | None
) -> None:
    def fail_with(new: Exception | None) -> Callable[[], None]:
        def deliver() -> None:
            DEPENDENCY.error = new
            inbox.deliver()
            clock.advance(2 * HOUR)

        return deliver

    inbox.send(CREATED)
    for _ in range(3):
        fail_with(DOWN)()
    assert int(record().waits) == 3
    fail_with(error)()
    assert int(record().waits or 0) == 0


def deliver_dead(inbox: Inbox, clock: ManualClock) -> None:
    """Use up the attempts of a message, and its deliveries but the last two."""
    DEPENDENCY.error = ValueError("the reason")
    inbox.send(CREATED)
    for _ in range(MAX_RECEIVES - 2):
        inbox.deliver()
        clock.advance(2 * HOUR)
    assert DEPENDENCY.asked == 5


@pytest.mark.parametrize("last", [1, 2])
def test_a_message_that_is_dead_is_not_renewed__though_its_record_cannot_be_taken(
    inbox: Inbox, clock: ManualClock, last: int
) -> None:
    deliver_dead(inbox, clock)
    with failing("UpdateItem", throttled, times=100):
        for _ in range(last):
            inbox.deliver()
            clock.advance(2 * HOUR)
    inbox.deliver_until_dead()
    assert (DEPENDENCY.asked, len(inbox.source.dead)) == (5, 1)
    assert Failure.from_json(record().failure).message == "the reason"


def test_a_message_whose_record_nobody_can_read_is_renewed__rather_than_lost(inbox: Inbox, clock: ManualClock) -> None:
    inbox.send(CREATED)
    with failing("UpdateItem", throttled, times=1000), failing("GetItem", throttled, times=1000):
        pass_time(inbox, clock, DAY)
    pass_time(inbox, clock, 2 * HOUR)
    assert (effects(), inbox.source.dead) == (1, [])
