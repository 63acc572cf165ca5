"""What the relay does with events that go well, and with those that don't."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mailroom.clock import moment, timestamp
from mailroom.failures import Failure, FailureKind
from mailroom.outbox.event import Envelope
from mailroom.outbox.relay import Relay
from mailroom.outbox.table import DEAD, OutboxRow, sent
from mailroom.publishers.publisher import SENT, Outcome
from mailroom.runtime import Runtime
from mailroom.testing import FakePublisher, ManualClock, permanent, transient, unavailable

if TYPE_CHECKING:
    from .conftest import Outbox

SHARD = 3


def test_an_event_is_published_and_marked__once(relay: Relay, outbox: Outbox, publisher: FakePublisher) -> None:
    event = outbox.add()
    relay.drain(SHARD)
    relay.drain(SHARD)
    assert publisher.ids == [event]
    assert (outbox.pending, outbox.sent) == ([], [event])


def test_an_event_goes_on_its_way_as_it_was_committed(relay: Relay, publisher: FakePublisher) -> None:
    envelope = Envelope(
        id="01JDW3NDEKTSV4RRFFQ69G5FAV-03",
        type="thing.happened",
        source="test.service",
        subject="things/1",
        time="2030-01-01T00:00:00.000Z",
        payload='{"a":1}',
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        after="01JDW3NDEKTSV4RRFFQ69G5FAA-03",
        redriven=2,
    )
    row = OutboxRow.pending(envelope)
    row.redriven = 2
    row.save()
    relay.drain(SHARD)
    assert publisher.received == [envelope]


def test_an_event_without_subject_goes_on_its_way(relay: Relay, publisher: FakePublisher) -> None:
    envelope = Envelope(
        "01JDW3NDEKTSV4RRFFQ69G5FAV-03", "thing.happened", "test.service", None, "2030-01-01T00:00:00.000Z", "{}"
    )
    OutboxRow.pending(envelope).save()
    relay.drain(SHARD)
    assert publisher.received == [envelope]


def test_a_sent_event_expires__and_keeps_what_it_was(relay: Relay, outbox: Outbox, runtime: Runtime) -> None:
    event = outbox.add(payload='{"a":1}')
    relay.drain(SHARD)
    row = outbox.row(event, sent(SHARD))
    assert row.payload == '{"a":1}'
    assert row.sent_at == timestamp(runtime.clock.now())
    assert row.expires_at.timestamp() == pytest.approx(
        runtime.clock.now().timestamp() + runtime.timings.sent_retention, abs=1
    )


def test_events_of_a_subject_are_published_in_order(relay: Relay, outbox: Outbox, publisher: FakePublisher) -> None:
    first, second = outbox.subject(), outbox.subject()
    order = [outbox.add(subject) for subject in (first, second, first, first, second)]
    relay.drain(SHARD)
    for subject in (first, second):
        published = [event.id for event in publisher.received if event.subject == subject]
        assert published == [event for event in order if event in published]
    assert sorted(publisher.ids) == order


def test_an_event_that_waits_says_why__how_often_it_was_tried_and_when_it_is_due(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, clock: ManualClock, runtime: Runtime
) -> None:
    event = outbox.add()
    publisher.answer = lambda _: transient("no room")
    relay.drain(SHARD)
    row = outbox.row(event)
    assert (row.failure, row.retry_count) == (transient("no room").to_json(), 1)
    wait = (moment(row.next_attempt_at) - clock.now()).total_seconds()
    base = runtime.timings.relay_backoff.base
    assert base <= wait <= base * 1.5


def test_an_event_is_tried_five_times__then_it_is_dead(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, clock: ManualClock
) -> None:
    event = outbox.add()
    publisher.answer = lambda _: transient("no room")
    for _ in range(10):
        relay.drain(SHARD)
        clock.advance(3600)
    assert publisher.attempted == [event] * 5
    row = outbox.row(event, DEAD)
    assert row.retry_count == 5
    assert Failure.from_json(row.failure).message == "no room"
    assert outbox.pending == []


def test_a_permanent_failure_is_dead_at_once__and_its_successor_goes_on(
    relay: Relay, outbox: Outbox, publisher: FakePublisher
) -> None:
    subject = outbox.subject()
    bad, good = outbox.add(subject), outbox.add(subject)
    publisher.answer = lambda event: permanent() if event.id == bad else SENT
    relay.drain(SHARD)
    assert (outbox.dead, outbox.sent) == ([bad], [good])


def test_an_event_that_waits_holds_back_its_successors__and_nobody_else(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, clock: ManualClock
) -> None:
    subject = outbox.subject()
    first, second, other = outbox.add(subject), outbox.add(subject), outbox.add()
    publisher.answer = lambda event: transient() if event.id == first else SENT
    relay.drain(SHARD)
    assert publisher.ids == [other]
    publisher.answer = lambda _: SENT
    relay.drain(SHARD)
    assert publisher.ids == [other], "the first attempt's back-off is not over"
    clock.advance(3600)
    relay.drain(SHARD)
    assert publisher.ids == [other, first, second]


def test_a_held_back_event_waits__when_its_predecessor_is_not_on_its_page(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, clock: ManualClock
) -> None:
    subject = outbox.subject()
    first = outbox.add(subject)
    others = [outbox.add() for _ in range(100)]
    second = outbox.add(subject)
    publisher.answer = lambda event: transient() if event.id == first else SENT
    relay.drain(SHARD)
    assert sorted(publisher.ids) == others
    assert outbox.pending == [first, second]


def test_a_destination_that_is_down_burns_nobodys_attempts(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, clock: ManualClock
) -> None:
    events = [outbox.add() for _ in range(20)]
    publisher.answer = lambda _: unavailable()
    for _ in range(60):
        relay.drain(SHARD)
        clock.advance(30)
    assert all(outbox.row(event).retry_count is None for event in events)
    publisher.answer = lambda _: SENT
    clock.advance(3600)
    relay.drain(SHARD)
    assert sorted(publisher.ids) == events


def test_a_pause_grows_and_ends_with_success(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, clock: ManualClock
) -> None:
    outbox.add()
    publisher.answer = lambda _: unavailable()
    relay.drain(SHARD)
    relay.drain(SHARD)
    assert publisher.calls == 1, "a paused shard is left alone"
    clock.advance(8)
    relay.drain(SHARD)
    assert publisher.calls == 2
    clock.advance(8)
    relay.drain(SHARD)
    assert publisher.calls == 2, "the second pause is longer than the first"
    clock.advance(60)
    publisher.answer = lambda _: SENT
    relay.drain(SHARD)
    assert outbox.lease.memo == "{}"


def test_what_of_a_wave_went_well_is_marked__when_the_destination_goes_down_in_it(
    relay: Relay, outbox: Outbox, publisher: FakePublisher
) -> None:
    events = [outbox.add() for _ in range(20)]

    def answer(event: Envelope) -> Outcome:
        return SENT if event.id in events[:7] else Failure(FailureKind.UNAVAILABLE, "ThrottlingException", "slow down")

    publisher.answer = answer
    relay.drain(SHARD)
    assert outbox.sent == events[:7]
    assert outbox.pending == events[7:]


def test_a_gone_row_does_not_come_back__when_its_attempt_is_noted(
    relay: Relay, outbox: Outbox, publisher: FakePublisher
) -> None:
    event = outbox.add()

    def answer(envelope: Envelope) -> Outcome:
        outbox.row(event).delete()
        return transient()

    publisher.answer = answer
    relay.drain(SHARD)
    assert outbox.pending == []
