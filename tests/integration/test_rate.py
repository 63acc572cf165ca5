"""A consumer with a rate: its invocations share one row, and what is too many waits or comes again, untried."""

from __future__ import annotations

from itertools import pairwise

import pytest

from app.consumers.notifications import notifications
from app.email import Email
from app.events import RepoCreated
from app.owners import Owner
from app.testing import FakeEmail
from mailroom.consumer import Consumer, consumer
from mailroom.consumer_edge import ConsumerEdge
from mailroom.failures import Failure, FailureKind
from mailroom.idempotency import COMPLETED, IdempotencyRow
from mailroom.rate import Limit, Rate, RateRow
from mailroom.runtime import Runtime
from mailroom.testing import LambdaContext, ManualClock
from mailroom.unit_of_work import UnitOfWork
from tests.faults import answer_lost, failing, throttled
from tests.inbox import Inbox
from tests.log_lines import Lines

from .conftest import CallCounter, Process

CREATED = RepoCreated(repo_id="1", name="tool", owner_id="team")
HANDLED: list[float] = []


@consumer(on=RepoCreated, rate=Rate(1, per=60), batch_size=10)
def slowly(event: RepoCreated, work: UnitOfWork) -> None:
    HANDLED.append(work.runtime.clock.monotonic())


def event_id(number: int) -> str:
    return f"01JDW3NDEKTSV4RRFF{number:08}-03"


def send(inbox: Inbox, count: int) -> None:
    for number in range(count):
        inbox.send(CREATED, event_id(number))


def test_moments_are_shared_by_all_processes(runtime: Runtime, another: Process) -> None:
    one = Limit(Rate(1, per=1), runtime, consumer="any")
    other = Limit(Rate(1, per=1), another(), consumer="any")
    first = [moment.wait for moment in one.moments([True, True], within=10)]
    then = [moment.wait for moment in other.moments([True, True], within=10)]
    last = [moment.wait for moment in one.moments([True], within=10)]
    assert (first, then) == ([0, 1], pytest.approx([2, 3], abs=0.1))
    assert last == pytest.approx([4], abs=0.2), "it waited a little before it looked again"


def test_each_consumer_has_its_own(runtime: Runtime) -> None:
    for name in ("one", "other"):
        assert Limit(Rate(1, per=1), runtime, consumer=name).moments([True], within=1)[0].wait == 0


def test_an_answer_that_got_lost_takes_no_moment_twice(runtime: Runtime) -> None:
    limit = Limit(Rate(1, per=1), runtime, consumer="any")
    with answer_lost("UpdateItem"):
        assert limit.moments([True], within=10)[0].wait == 0
    assert limit.moments([True], within=10)[0].wait == 1


def test_a_batch_costs_one_update(runtime: Runtime, calls: CallCounter) -> None:
    limit = Limit(Rate(14, per=1), runtime, consumer="any")
    for _ in range(5):
        limit.moments([True] * 10, within=100)
    assert calls.counts == {"UpdateItem": 5}


def test_where_the_row_cannot_be_written_all_go_at_once__and_that_is_told(runtime: Runtime, logs: Lines) -> None:
    limit = Limit(Rate(1, per=60), runtime, consumer="any")
    with failing("UpdateItem", throttled, times=100):
        assert [moment.wait for moment in limit.moments([True] * 3, within=1)] == [0, 0, 0]
    (line,) = [line for line in logs() if line["message"] == "rate not kept"]
    assert (line["consumer"], line["level"]) == ("any", "WARNING")


def test_what_has_no_moment_soon_is_hidden_until_its_turn__and_nothing_was_tried(
    runtime: Runtime, clock: ManualClock
) -> None:
    HANDLED.clear()
    inbox = Inbox(slowly, runtime, clock)
    send(inbox, 3)
    assert not inbox.deliver()
    assert (len(HANDLED), len(inbox.source.hidden), len(list(IdempotencyRow.scan()))) == (1, 2, 1)
    clock.advance(100)
    assert inbox.source.visible == []
    clock.advance(21)
    assert len(inbox.source.visible) == 1


def test_a_slow_rate_is_kept__and_nobody_dies_of_waiting_in_line(runtime: Runtime, clock: ManualClock) -> None:
    HANDLED.clear()
    inbox = Inbox(slowly, runtime, clock)
    send(inbox, 100)
    while inbox.source.visible or inbox.source.hidden:
        inbox.deliver()
        clock.advance(10)
    assert (len(HANDLED), inbox.source.dead) == (100, [])
    assert min(later - earlier for earlier, later in pairwise(HANDLED)) >= 60
    assert {(row.status, int(row.attempts)) for row in IdempotencyRow.scan()} == {(COMPLETED, 1)}


class Ses:
    """Takes fourteen in any second, as SES does of an account by default."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._at: list[float] = []
        self.refused = 0

    def __call__(self, _: str) -> Failure | None:
        now = self._clock.monotonic()
        self._at = [at for at in self._at if at > now - 1]
        if len(self._at) == 14:
            self.refused += 1
            return Failure(FailureKind.UNAVAILABLE, "Throttling", "Maximum sending rate exceeded.")
        self._at.append(now)
        return None


MAILS = 200
"""As many as moto has through in seconds; the moments of a hundred thousand are in `tests/unit/test_rate.py`."""


@pytest.fixture
def mailbox(runtime: Runtime, clock: ManualClock) -> FakeEmail:
    mailbox = FakeEmail(Ses(clock))
    runtime.provide(Email, mailbox)
    Owner("team", email="someone@example.com", email_confirmed=True).save()
    return mailbox


def mail(declaration: Consumer, runtime: Runtime, clock: ManualClock, count: int = MAILS) -> Inbox:
    """Send many e-mails, as quickly as they are received."""
    inbox = Inbox(declaration, runtime, clock)
    send(inbox, count)
    while inbox.source.visible or inbox.source.hidden:
        if not inbox.source.visible:
            clock.advance(60)
        inbox.deliver()
    return inbox


def test_many_mails_go_at_the_rate_that_ses_takes__none_is_refused_and_none_dies(
    runtime: Runtime, clock: ManualClock, mailbox: FakeEmail, calls: CallCounter
) -> None:
    inbox = mail(notifications, runtime, clock)
    assert (len(mailbox.sent), mailbox.answer.refused, inbox.source.dead) == (MAILS, 0, [])
    of_the_row = [call for call in calls.calls if call.parameters.get("TableName") == RateRow.table_name()]
    assert len(of_the_row) == MAILS / 10, "one update for each batch"
    assert clock.monotonic() == pytest.approx((MAILS - 1) / 14, rel=0.001)


@consumer(on=RepoCreated, reads=[Owner], uses=[Email])
def unlimited(event: RepoCreated, work: UnitOfWork) -> None:
    notifications(event, work)


def test_without_a_rate_most_are_refused__and_all_go_in_the_end(
    runtime: Runtime, clock: ManualClock, mailbox: FakeEmail
) -> None:
    inbox = mail(unlimited, runtime, clock, count=50)
    assert mailbox.answer.refused >= 50 - 14
    assert (len(mailbox.sent), inbox.source.dead) == (50, [])


def test_time_for_the_work_is_left_after_waiting(runtime: Runtime, clock: ManualClock) -> None:
    HANDLED.clear()
    inbox = Inbox(slowly, runtime, clock)
    send(inbox, 2)
    records = inbox.source.receive(10, wait=0, hidden=180)
    context = LambdaContext(150_000)
    answer = ConsumerEdge(slowly, runtime, inbox.source).handle({"Records": records}, context)
    assert (len(HANDLED), answer["batchItemFailures"]) == (2, [])
    assert clock.monotonic() == 60
