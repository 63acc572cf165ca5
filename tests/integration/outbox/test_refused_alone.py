"""What the relay does with an event that its destination does not take, in a call that took others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from mailroom.clock import moment, timestamp
from mailroom.dead_letters.letter import Deed, Fate
from mailroom.dead_letters.outbox import OutboxLetters
from mailroom.failures import Failure, FailureKind
from mailroom.lease import Lease
from mailroom.outbox.event import Envelope
from mailroom.outbox.relay import Relay, lease_name
from mailroom.outbox.table import DEAD, DISCARDED, OutboxRow, pending, sent
from mailroom.publishers.publisher import SENT, NotTaken, Outcome
from mailroom.runtime import Runtime
from mailroom.testing import FakePublisher, ManualClock, not_taken, unavailable

if TYPE_CHECKING:
    from .conftest import Outbox

SHARD = 3
HOUR = 3600
REFUSED = Failure(FailureKind.TRANSIENT, "NotAuthorizedForDetailTypeException", "not this type", retry_after=900)
DEED = Deed(by="operator", at="2030-01-01T00:00:00.000Z", why="allowed by now")


def some(bad: set[str], outcome: Outcome) -> Callable[[Envelope], Outcome]:
    return lambda event: outcome if event.id in bad else SENT


@pytest.mark.parametrize("outcome", [REFUSED, not_taken()], ids=["refused", "throttled"])
def test_all_others_are_sent_in_the_same_turn__when_one_event_is_not_taken(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, outcome: Failure
) -> None:
    bad, *good = [outbox.add() for _ in range(41)]
    publisher.answer = some({bad}, outcome)
    relay.drain(SHARD)
    assert (sorted(publisher.ids), outbox.pending) == (good, [bad])
    assert outbox.lease.memo == "{}", "the shard does not pause"
    row = outbox.row(bad)
    assert Failure.from_json(row.failure).type == outcome.type
    assert row.next_attempt_at is not None


@pytest.mark.parametrize("outcome", [REFUSED, not_taken()], ids=["refused", "throttled"])
def test_those_behind_are_sent__when_a_whole_page_is_not_taken(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, clock: ManualClock, outcome: Failure
) -> None:
    bad = {outbox.add() for _ in range(130)}
    good = [outbox.add() for _ in range(3)]
    publisher.answer = some(bad, outcome)
    for _ in range(3):
        relay.drain(SHARD)
        clock.advance(8)
    assert sorted(set(publisher.ids)) == good


def test_an_event_is_sent_within_half_a_second__when_it_is_throttled_once(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, clock: ManualClock
) -> None:
    bad, *good = [outbox.add() for _ in range(41)]
    publisher.answer = lambda event: (
        SENT if publisher.attempted.count(event.id) > 1 else some({bad}, not_taken())(event)
    )
    began = clock.monotonic()
    relay.drain(SHARD)
    assert sorted(publisher.ids) == [bad, *good]
    assert 0.05 <= clock.monotonic() - began <= 0.4
    assert outbox.pending == []


def test_an_event_alone_is_sent_again__at_most_three_times_in_a_turn(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, clock: ManualClock
) -> None:
    bad, *_ = [outbox.add() for _ in range(12)]
    publisher.answer = some({bad}, not_taken())
    began = clock.monotonic()
    relay.drain(SHARD)
    assert publisher.attempted[-3:] == [bad] * 3
    assert publisher.attempted.count(bad) == 4
    assert clock.monotonic() - began <= 0.4


def test_nothing_is_sent_again__when_a_call_fails_as_a_whole_meanwhile(
    relay: Relay, outbox: Outbox, publisher: FakePublisher
) -> None:
    bad, *good = [outbox.add() for _ in range(5)]
    publisher.answer = lambda event: (
        unavailable() if publisher.attempted.count(event.id) > 1 else some({bad}, not_taken())(event)
    )
    relay.drain(SHARD)
    assert publisher.attempted.count(bad) == 2
    assert "paused_until" in outbox.lease.memo
    assert (outbox.row(bad).retry_count, outbox.row(bad).failure) == (None, None)
    assert sorted(outbox.sent) == good


def test_what_asks_for_a_later_time_is_not_sent_again_at_once(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, clock: ManualClock
) -> None:
    bad, _ = outbox.add(), outbox.add()
    publisher.answer = some({bad}, NotTaken(FailureKind.UNAVAILABLE, "Test", "no leader", retry_after=40))
    relay.drain(SHARD)
    assert publisher.attempted.count(bad) == 1
    assert (moment(outbox.row(bad).next_attempt_at) - clock.now()).total_seconds() == pytest.approx(40, abs=0.01)


def test_an_event_that_is_not_taken_holds_back_its_successors(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, clock: ManualClock
) -> None:
    subject = outbox.subject()
    first, second, other = outbox.add(subject), outbox.add(subject), outbox.add()
    publisher.answer = some({first}, not_taken())
    relay.drain(SHARD)
    assert publisher.ids == [other]
    publisher.answer = lambda _: SENT
    clock.advance(HOUR)
    relay.drain(SHARD)
    assert publisher.ids == [other, first, second]


def test_an_event_that_is_not_taken_uses_no_attempt_within_the_hour__and_is_dead_soon_after(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, clock: ManualClock
) -> None:
    bad = outbox.add()
    began = timestamp(clock.now())
    publisher.answer = lambda event: not_taken() if event.id == bad else SENT
    while (clock.now() - moment(began)).total_seconds() < HOUR - 400:
        outbox.add()
        relay.drain(SHARD)
        clock.advance(20)
    row = outbox.row(bad)
    assert (row.retry_count, row.untaken_since[:19]) == (0, began[:19])
    assert publisher.attempted.count(bad) < 4 * 20, "it is tried less and less often"
    for _ in range(5):
        clock.advance(HOUR)
        relay.drain(SHARD)
    assert outbox.dead == [bad]
    dead = outbox.row(bad, DEAD)
    assert (dead.retry_count, dead.untaken_since) == (5, None)


def test_a_refused_event_is_dead_after_an_hour(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, clock: ManualClock
) -> None:
    bad = outbox.add()
    publisher.answer = lambda _: REFUSED
    for minute in range(59):
        relay.drain(SHARD)
        assert outbox.pending == [bad], f"after {minute} minutes"
        clock.advance(60)
    clock.advance(120)
    relay.drain(SHARD)
    assert outbox.dead == [bad]
    assert publisher.attempted == [bad] * 5


def test_a_denied_event_is_dead_after_two_hours__and_uses_no_attempt_in_the_first(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, clock: ManualClock
) -> None:
    bad = outbox.add()
    publisher.answer = some({bad}, NotTaken(FailureKind.UNAVAILABLE, "AccessDenied", "not us", retry_after=900))
    for minute in range(118):
        relay.drain(SHARD)
        assert outbox.pending == [bad], f"after {minute} minutes"
        assert minute >= 60 or outbox.row(bad).retry_count == 0
        clock.advance(60)
    for _ in range(7):
        clock.advance(60)
        relay.drain(SHARD)
    assert outbox.dead == [bad]


def test_the_shard_pauses_once__when_nothing_is_taken_for_the_first_time(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, clock: ManualClock
) -> None:
    bad = {outbox.add() for _ in range(3)}
    publisher.answer = some(bad, not_taken())
    relay.drain(SHARD)
    assert "paused_until" in outbox.lease.memo
    clock.advance(400)
    relay.drain(SHARD)
    good = outbox.add()
    relay.drain(SHARD)
    assert publisher.ids == [good], "those that are known to be refused say nothing of the destination"


def test_others_are_sent__when_a_relay_goes_one_by_one_past_what_is_not_taken(
    relay: Relay, runtime: Runtime, outbox: Outbox, publisher: FakePublisher, clock: ManualClock
) -> None:
    bad = {outbox.add() for _ in range(45)}
    good = [outbox.add() for _ in range(5)]
    Lease(lease_name(SHARD), runtime).acquire()
    clock.advance(HOUR)
    publisher.answer = some(bad, not_taken())
    relay.drain(SHARD)
    assert sorted(publisher.ids) == good
    assert {outbox.row(event).retry_count for event in bad} == {0}


def test_a_redriven_event_has_its_hour_again(
    relay: Relay, runtime: Runtime, outbox: Outbox, publisher: FakePublisher, clock: ManualClock
) -> None:
    bad, _ = outbox.add(), outbox.add()
    publisher.answer = some({bad}, not_taken())
    for _ in range(6):
        relay.drain(SHARD)
        clock.advance(2 * HOUR)
    assert outbox.dead == [bad]
    list(OutboxLetters(runtime).redrive([bad], DEED))
    relay.drain(SHARD)
    row = outbox.row(bad, pending(SHARD))
    assert row.retry_count == 0
    assert (clock.now() - moment(row.untaken_since)).total_seconds() < 1


# What an operator does meanwhile


def test_an_operator_discards_an_event_while_it_waits__and_its_successor_goes_on(
    relay: Relay, runtime: Runtime, outbox: Outbox, publisher: FakePublisher, clock: ManualClock
) -> None:
    subject = outbox.subject()
    bad, successor = outbox.add(subject), outbox.add(subject)
    publisher.answer = some({bad}, REFUSED)
    relay.drain(SHARD)
    (result,) = OutboxLetters(runtime).discard([bad], DEED)
    assert result.fate is Fate.DONE
    clock.advance(HOUR)
    relay.drain(SHARD)
    assert publisher.ids == [successor]
    assert (outbox.pending, outbox.ids(DISCARDED)) == ([], [bad])
    assert outbox.row(bad, DISCARDED).next_attempt_at is None


def test_an_operator_mends_an_event_while_it_waits(
    relay: Relay, runtime: Runtime, outbox: Outbox, publisher: FakePublisher
) -> None:
    bad = outbox.add()
    publisher.answer = some({bad}, REFUSED)
    relay.drain(SHARD)
    result = OutboxLetters(runtime).edit(bad, '{"mended":true}', DEED)
    relay.drain(SHARD)
    assert (result.fate, publisher.ids) == (Fate.DONE, [result.detail])
    assert outbox.row(result.detail, sent(SHARD)).parent == bad


@pytest.mark.parametrize("before", [0, 59])
def test_an_event_that_is_about_to_be_sent_is_left_to_the_relay(
    relay: Relay, runtime: Runtime, outbox: Outbox, publisher: FakePublisher, clock: ManualClock, before: float
) -> None:
    bad = outbox.add()
    publisher.answer = some({bad}, REFUSED)
    relay.drain(SHARD)
    due_at = moment(outbox.row(bad).next_attempt_at)
    clock.advance((due_at - clock.now()).total_seconds() - before)
    (result,) = OutboxLetters(runtime).discard([bad], DEED)
    assert (result.fate, outbox.pending) == (Fate.NOT_DEAD, [bad])
    assert "about to be sent again" in result.detail


def test_an_event_that_was_tried_meanwhile_is_not_discarded(
    relay: Relay, runtime: Runtime, outbox: Outbox, publisher: FakePublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = outbox.add()
    publisher.answer = some({bad}, REFUSED)
    relay.drain(SHARD)
    letters, discarded = OutboxLetters(runtime), OutboxLetters._discarded

    def late(*args: Any, **more: Any) -> OutboxRow:
        outbox.row(bad).update([OutboxRow.next_attempt_at.set("2099-01-01T00:00:00.000Z")])
        return discarded(*args, **more)

    monkeypatch.setattr(OutboxLetters, "_discarded", late)
    (result,) = letters.discard([bad], DEED)
    assert (result.fate, outbox.pending) == (Fate.NOT_DEAD, [bad])


def test_an_event_that_waits_for_its_first_attempt_is_not_discarded(runtime: Runtime, outbox: Outbox) -> None:
    fresh = outbox.add()
    (result,) = OutboxLetters(runtime).discard([fresh], DEED)
    assert (result.fate, outbox.pending) == (Fate.NOT_DEAD, [fresh])
