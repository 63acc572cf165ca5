"""Relays that die, stall, overlap or lose a write, and what their successors make of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mailroom.clients import Call
from mailroom.failures import Failure
from mailroom.lease import Lease
from mailroom.outbox.event import Envelope
from mailroom.outbox.relay import Relay, lease_name
from mailroom.outbox.table import DEAD
from mailroom.publishers.publisher import SENT, Outcome
from mailroom.runtime import Runtime
from mailroom.testing import FakePublisher, ManualClock, transient, unavailable
from tests.faults import Died, died, failing, refused, throttled, timed_out, writes

if TYPE_CHECKING:
    from .conftest import Outbox

SHARD = 3
LEASE_OVER = 61


def test_a_second_relay_does_nothing__while_the_first_holds_the_shard(
    relay: Relay, outbox: Outbox, runtime: Runtime, publisher: FakePublisher
) -> None:
    outbox.add()
    Lease(lease_name(SHARD), runtime).acquire()
    assert not relay.drain(SHARD).ours
    assert publisher.calls == 0


def test_a_wake_up_in_the_middle_of_a_sweep_publishes_nothing_twice(
    relay: Relay, outbox: Outbox, runtime: Runtime, publisher: FakePublisher
) -> None:
    events = [outbox.add() for _ in range(30)]
    wake_up = Relay(runtime, publisher)

    def answer(_: Envelope) -> Outcome:
        assert not wake_up.drain(SHARD).ours
        return SENT

    publisher.answer = answer
    relay.drain(SHARD)
    assert sorted(publisher.ids) == events


def test_a_relay_that_died_before_marking_sends_again_with_the_same_id(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, clock: ManualClock
) -> None:
    event = outbox.add()
    with failing(writes("PutRequest"), died), pytest.raises(Died):
        relay.drain(SHARD)
    clock.advance(LEASE_OVER)
    relay.drain(SHARD)
    assert publisher.ids == [event, event]
    assert (outbox.pending, outbox.sent) == ([], [event])


@pytest.mark.parametrize("late", [False, True])
def test_what_was_marked_is_not_sent_again__when_the_relay_died_at_the_delete(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, clock: ManualClock, late: bool
) -> None:
    events = [outbox.add() for _ in range(3)]
    with failing(writes("DeleteRequest"), died, after=late), pytest.raises(Died):
        relay.drain(SHARD)
    clock.advance(LEASE_OVER)
    relay.drain(SHARD)
    assert sorted(publisher.ids) == events
    assert (outbox.pending, outbox.sent) == ([], events)


def test_a_delete_that_fails_after_the_put_leaves_the_lease_unclean__and_nothing_is_sent_again(
    relay: Relay, outbox: Outbox, publisher: FakePublisher
) -> None:
    events = [outbox.add() for _ in range(3)]
    with failing(writes("DeleteRequest"), refused("ValidationException"), times=100):
        relay.drain(SHARD)
    assert outbox.pending == outbox.sent == events
    assert not outbox.lease.clean
    relay.drain(SHARD)
    assert sorted(publisher.ids) == events
    assert (outbox.pending, outbox.lease.clean) == ([], True)


def test_a_failed_delete_on_a_late_page_is_checked_too__in_the_first_pass_after_it(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, clock: ManualClock
) -> None:
    """Events that wait fill the first page, so that the one to check lies on the second."""
    waiting = [outbox.add() for _ in range(100)]
    publisher.answer = lambda _: transient()
    relay.drain(SHARD)
    late = outbox.add()
    publisher.answer = lambda _: SENT
    with failing(writes("DeleteRequest"), refused("ValidationException"), times=100):
        relay.drain(SHARD)
    relay.drain(SHARD)
    assert publisher.ids == [late]
    assert outbox.pending == waiting


def test_an_unclean_lease_stays_so__until_a_whole_pass_has_seen_every_page(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, runtime: Runtime, clock: ManualClock
) -> None:
    for _ in range(201):
        outbox.add()
    Lease(lease_name(SHARD), runtime).acquire()
    clock.advance(LEASE_OVER)
    relay.drain(SHARD, pages=1)
    assert not outbox.lease.clean
    relay.drain(SHARD)
    assert outbox.lease.clean


def test_marks_that_never_come_through_leave_events_pending__and_they_are_sent_again(
    relay: Relay, outbox: Outbox, publisher: FakePublisher
) -> None:
    event = outbox.add()
    with failing(writes("PutRequest"), throttled, times=100):
        relay.drain(SHARD)
    assert (outbox.pending, outbox.sent) == ([event], [])
    relay.drain(SHARD)
    assert publisher.ids == [event, event], "delivered at least once is all that can be said then"
    assert (outbox.pending, outbox.sent) == ([], [event])


def test_a_mark_that_is_throttled_once_is_written_again(relay: Relay, outbox: Outbox, publisher: FakePublisher) -> None:
    event = outbox.add()
    with failing(writes("PutRequest"), throttled), failing(writes("DeleteRequest"), timed_out, after=True):
        relay.drain(SHARD)
    assert (publisher.ids, outbox.pending, outbox.sent) == ([event], [], [event])
    assert outbox.lease.clean


def test_an_event_that_kills_the_relay_is_dead_after_five_counted_attempts__and_the_others_arrive_once(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, clock: ManualClock
) -> None:
    before, killer, after = outbox.add(), outbox.add(), outbox.add()
    attempts = 0

    def answer(event: Envelope) -> Outcome:
        nonlocal attempts
        if event.id == killer:
            attempts += 1
            raise Died
        return SENT

    publisher.answer = answer
    for _ in range(7):
        try:
            relay.drain(SHARD)
        except Died:
            clock.advance(LEASE_OVER)
    assert attempts == 6, "one in a wave, when nobody suspected it, and five that were counted"
    row = outbox.row(killer, DEAD)
    assert (row.retry_count, Failure.from_json(row.failure).type) == (5, "RelayKilled")
    assert outbox.sent == [before, after]
    assert publisher.ids.count(after) == 1
    assert publisher.ids.count(before) <= 2


def test_a_careful_attempt_is_not_counted__when_the_destination_turns_out_to_be_down(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, runtime: Runtime, clock: ManualClock
) -> None:
    event = outbox.add()
    Lease(lease_name(SHARD), runtime).acquire()
    clock.advance(LEASE_OVER)
    publisher.answer = lambda _: unavailable()
    relay.drain(SHARD)
    assert outbox.row(event).retry_count == 0


def test_a_relay_that_stalls_past_its_lease_marks_nothing__and_its_successor_delivers(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, runtime: Runtime, clock: ManualClock
) -> None:
    event = outbox.add()
    successor = Relay(runtime, publisher)

    def stall(_: Envelope) -> Outcome:
        publisher.answer = lambda _: SENT
        clock.advance(LEASE_OVER)
        successor.drain(SHARD)
        assert outbox.sent == [event]
        return SENT

    publisher.answer = stall
    with failing("BatchWriteItem", died, times=0) as marks:
        relay.drain(SHARD)
    assert marks.struck == []
    assert publisher.ids == [event, event]
    assert (outbox.pending, outbox.sent) == ([], [event])


def test_an_error_for_one_event_does_not_send_the_others_again(
    relay: Relay, outbox: Outbox, publisher: FakePublisher
) -> None:
    before, bad, after = outbox.add(), outbox.add(), outbox.add()
    publisher.answer = lambda event: transient() if event.id == bad else SENT
    with failing("UpdateItem", refused("AccessDeniedException")) as fault:
        fault.matches = lambda call: "retry_count" in str(call.parameters)
        with pytest.raises(Exception, match="AccessDenied"):
            relay.drain(SHARD)
    assert outbox.sent == [before, after]
    publisher.answer = lambda _: SENT
    relay.drain(SHARD)
    assert publisher.ids == [before, after, bad]


@pytest.mark.parametrize(("seconds_each", "sent"), [(0.8, 60), (1.0, 0)])
def test_a_renewal_that_fails_is_no_reason_to_stop__while_the_lease_lasts(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, clock: ManualClock, seconds_each: float, sent: int
) -> None:
    for _ in range(60):
        outbox.add()

    def slow(_: Envelope) -> Outcome:
        clock.advance(seconds_each)
        return SENT

    publisher.answer = slow
    with failing(renewals, throttled, times=100) as fault:
        relay.drain(SHARD)
    assert fault.struck
    assert len(outbox.sent) == sent


def renewals(call: Call) -> bool:
    return call.parameters.get("UpdateExpression") == "SET #held_until = :held_until"


def test_a_destination_that_goes_down_is_left_alone__in_the_middle_of_a_wave(
    relay: Relay, outbox: Outbox, publisher: FakePublisher
) -> None:
    for _ in range(100):
        outbox.add()
    publisher.answer = lambda _: unavailable()
    relay.drain(SHARD)
    assert publisher.calls == 4, "the calls that were on their way"


def test_a_relay_stops_at_its_deadline__between_waves(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, clock: ManualClock
) -> None:
    subject = outbox.subject()
    events = [outbox.add(subject) for _ in range(5)]

    def slow(_: Envelope) -> Outcome:
        clock.advance(4)
        return SENT

    publisher.answer = slow
    relay.drain(SHARD, deadline=clock.monotonic() + 10)
    assert (outbox.sent, outbox.pending) == (events[:3], events[3:])
    assert outbox.lease.clean
