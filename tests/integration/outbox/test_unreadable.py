"""A pending row that cannot be read: it is set aside as it is, with the reason, and stops nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from mailroom import clients
from mailroom.failures import Failure, FailureKind
from mailroom.lease import Lease
from mailroom.outbox import room
from mailroom.outbox.event import Envelope, shard_of_id
from mailroom.outbox.relay import Relay, lease_name, relay_handler
from mailroom.outbox.sweep import sweep
from mailroom.outbox.table import DEAD, OutboxRow, pending, sent
from mailroom.publishers.publisher import SENT, Destination, Outcome
from mailroom.reading import UNREADABLE
from mailroom.runtime import Runtime
from mailroom.testing import FakePublisher, LambdaContext, ManualClock, transient
from tests.log_lines import Lines
from tests.spoilt import Typed, item_at, spoil_row

from .conftest import SHARD, Outbox

MOTOS_LIMIT = 405_000
"""Bytes of an item; DynamoDB takes 409,600."""


def spoil(event_id: str, partition: str = pending(SHARD), **changes: Typed | None) -> Typed:
    return spoil_row(OutboxRow, partition, event_id, **changes)


def raw(event_id: str, partition: str = DEAD) -> Typed:
    return item_at(OutboxRow, partition, event_id)


SPOILT = {
    "a count that is a text": ("retry_count", {"S": "0"}, "retry_count is a text (S) and must be a number (N)"),
    "no payload": ("payload", None, "payload is missing"),
    "a payload that is no JSON": ("payload", {"S": '{"secret":'}, "payload is no JSON"),
    "a payload that is null": ("payload", {"NULL": True}, "payload is missing"),
    "a subject that is a number": ("subject", {"N": "7"}, "subject is a number (N) and must be a text (S)"),
    "no type": ("type", None, "type is missing"),
    "a due time that is no moment": ("next_attempt_at", {"S": "tomorrow"}, "next_attempt_at is no moment"),
    "a creation time without an offset": (
        "created_at", {"S": "2030-01-01T00:00:00"}, "created_at is a moment without an offset from UTC",
    ),
    "a predecessor that is no event": ("after", {"S": "the last one"}, "after is no event id"),
    "a predecessor that is empty": ("after", {"S": ""}, "after is no event id"),
    "a count below 0": ("retry_count", {"N": "-1"}, "retry_count is no count"),
    "a count of redrives that is not whole": ("redriven", {"N": "0.5"}, "redriven is no count"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "value", "reason"), SPOILT.values(), ids=SPOILT)
def test_a_row_that_cannot_be_read_is_dead_as_it_is_with_the_reason__and_the_others_are_sent(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, name: str, value: Typed | None, reason: str
) -> None:
    before, bad, after = outbox.add(), outbox.add(), outbox.add()
    row = spoil(bad, **{name: value})

    drained = relay.drain(SHARD)

    assert publisher.ids == [before, after]
    assert (outbox.pending, outbox.sent) == ([], [before, after])
    dead = raw(bad)
    failure = Failure.from_json(dead.pop("failure")["S"])
    assert (failure.kind, failure.type, failure.message) == (FailureKind.PERMANENT, UNREADABLE, reason)
    del dead["died_at"]
    assert dead == {**row, "partition": {"S": DEAD}}
    assert drained.dead == 1


def test_several_reasons_are_all_told(relay: Relay, outbox: Outbox) -> None:
    bad = outbox.add()
    spoil(bad, payload=None, retry_count={"S": "0"})
    relay.drain(SHARD)
    failure = Failure.from_json(raw(bad)["failure"]["S"])
    assert failure.message == "payload is missing; retry_count is a text (S) and must be a number (N)"


@pytest.mark.parametrize(
    ("event_id", "reason"),
    [
        ("by hand", "event_id is no event id"),
        ("01JDW3NDEKTSV4RRFFQ69G5FAV-05", "event_id names another shard than its partition pending#03"),
    ],
)
def test_a_row_whose_id_does_not_say_where_it_lies_is_set_aside(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, event_id: str, reason: str
) -> None:
    good = outbox.add()
    item = raw(good, pending(SHARD))
    clients.dynamodb().put_item(TableName=OutboxRow.table_name(), Item={**item, "event_id": {"S": event_id}})
    relay.drain(SHARD)
    assert publisher.ids == [good]
    assert Failure.from_json(raw(event_id)["failure"]["S"]).message == reason


def test_what_this_version_does_not_know_stays_in_the_row(
    relay: Relay, outbox: Outbox, publisher: FakePublisher
) -> None:
    publisher.answer = lambda _: Failure(FailureKind.PERMANENT, "Refused", "no")
    event = outbox.add()
    spoil(event, newer={"L": [{"S": "a"}]})
    relay.drain(SHARD)
    assert raw(event)["newer"] == {"L": [{"S": "a"}]}


def test_a_row_is_delivered__though_what_people_look_at_cannot_be_read(
    relay: Relay, outbox: Outbox, publisher: FakePublisher
) -> None:
    event = outbox.add()
    spoil(event, failure={"S": "?"}, history={"N": "1"}, traceparent={"S": "no trace"})
    relay.drain(SHARD)
    assert publisher.ids == [event]
    assert outbox.sent == [event]


# Its subject


def test_the_successors_of_a_row_that_cannot_be_read_go_once_it_is_dead(
    relay: Relay, outbox: Outbox, publisher: FakePublisher
) -> None:
    subject = outbox.subject()
    first, bad, last = (outbox.add(subject) for _ in range(3))
    spoil(bad, payload=None)
    relay.drain(SHARD)
    assert publisher.ids == [first, last]
    assert outbox.dead == [bad]


def test_the_successor_waits_with_it_while_its_predecessor_does(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, clock: ManualClock
) -> None:
    answers: list[Outcome] = [transient()]
    publisher.answer = lambda _: answers.pop(0) if answers else SENT
    subject = outbox.subject()
    first, bad, last = (outbox.add(subject) for _ in range(3))
    spoil(bad, retry_count={"S": "0"})
    relay.drain(SHARD)
    relay.drain(SHARD)
    assert outbox.pending == [first, bad, last]
    clock.advance(60)
    relay.drain(SHARD)
    assert publisher.ids == [first, last]
    assert outbox.dead == [bad]


def test_the_successor_of_a_row_whose_subject_cannot_be_read_waits_for_it__while_that_waits_for_another_page(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, clock: ManualClock
) -> None:
    subject = outbox.subject()
    first = outbox.add(subject)
    publisher.answer = lambda event: transient() if event.id == first else SENT
    for _ in range(100):
        outbox.add()
    bad, last = outbox.add(subject), outbox.add(subject)
    spoil(bad, subject={"N": "1"})
    relay.drain(SHARD)
    assert outbox.pending == [first, bad, last]


# Who sets it aside


def test_a_row_that_cannot_be_read_is_set_aside_once__though_the_relay_before_died(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, runtime: Runtime, clock: ManualClock
) -> None:
    good, bad = outbox.add(), outbox.add()
    row = spoil(bad, retry_count={"S": "4"})
    Lease(lease_name(SHARD), runtime).acquire()
    clock.advance(200)
    relay.drain(SHARD)
    assert (outbox.pending, outbox.sent, outbox.dead) == ([], [good], [bad])
    assert raw(bad)["retry_count"] == row["retry_count"]
    assert publisher.ids == [good]


def test_what_was_sent_already_is_only_removed__though_it_cannot_be_read(
    relay: Relay, outbox: Outbox, runtime: Runtime, clock: ManualClock
) -> None:
    bad = outbox.add()
    item = spoil(bad, payload=None)
    clients.dynamodb().put_item(TableName=OutboxRow.table_name(), Item={**item, "partition": {"S": sent(SHARD)}})
    Lease(lease_name(SHARD), runtime).acquire()
    clock.advance(200)
    relay.drain(SHARD)
    assert (outbox.pending, outbox.sent, outbox.dead) == ([], [bad], [])


def test_a_row_that_leaves_no_room_for_the_reason_stays__and_the_others_are_sent(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_LASTING_BYTES", MOTOS_LIMIT - room.ATTEMPT_BYTES)
    good, bad, later = outbox.add(), outbox.add(), outbox.add()
    left = MOTOS_LIMIT - room.size_of(raw(bad, pending(SHARD)))
    spoil(bad, payload={"S": '"' + "x" * (left - 10) + '"'})
    relay.drain(SHARD)
    assert publisher.ids == [good, later]
    assert (outbox.pending, outbox.dead) == ([bad], [])


def test_an_event_is_read_by_its_envelope_as_before(relay: Relay, outbox: Outbox, publisher: FakePublisher) -> None:
    event = outbox.add(payload='{"ü":1}')
    relay.drain(SHARD)
    (received,) = publisher.received
    assert isinstance(received, Envelope)
    assert (received.id, received.payload) == (event, '{"ü":1}')


# Shards are guarded from each other


def test_a_shard_that_fails_is_told_at_the_end__and_the_others_are_swept(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere, here = outbox.add("somewhere/else"), outbox.add()
    broken = shard_of_id(elsewhere)
    assert broken != SHARD

    class Broken(Relay):
        def drain(self, shard: int, **how: Any) -> Any:
            if shard == broken:
                raise RuntimeError("its lease cannot be read")
            return super().drain(shard, **how)

    with pytest.raises(ExceptionGroup, match=f"failed at shard {broken:02d}") as told:
        sweep(Broken(runtime, publisher), runtime, deadline=60, out_of_time=lambda: False)

    assert [str(each) for each in told.value.exceptions] == ["its lease cannot be read"]
    assert publisher.ids == [here]
    assert [line.shard for line in caplog.records if line.msg == "relay failed"] == [f"{broken:02d}"]  # type: ignore[attr-defined]


def test_a_shard_that_cannot_be_looked_into_is_told_at_the_end__and_the_others_are_swept(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, runtime: Runtime
) -> None:
    elsewhere, here = outbox.add("somewhere/else"), outbox.add()

    class Blind(Relay):
        def has_mail(self, shard: int) -> bool:
            if shard == shard_of_id(elsewhere):
                raise RuntimeError("cannot look")
            return super().has_mail(shard)

    with pytest.raises(ExceptionGroup, match="failed at shard"):
        sweep(Blind(runtime, publisher), runtime, deadline=60, out_of_time=lambda: False)
    assert publisher.ids == [here]


def test_a_row_that_cannot_be_read_stops_no_sweep__though_it_is_the_oldest_of_its_shard(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, runtime: Runtime
) -> None:
    bad = outbox.add()
    spoil(bad, retry_count={"S": "0"})
    others = [outbox.add(f"anything/{number}") for number in range(20)]
    assert sweep(relay, runtime, deadline=60, out_of_time=lambda: False) == 20
    assert sorted(publisher.ids) == sorted(others)
    assert outbox.dead == [bad]


@pytest.mark.parametrize("partition", ["pending#", "pending#x", "pending#3", "pending#99", "pending#-1"])
def test_a_row_in_the_partition_of_no_shard_is_told__and_the_wake_ups_beside_it_are_heeded(
    outbox: Outbox, publisher: FakePublisher, runtime: Runtime, logs: Lines, partition: str
) -> None:
    event = outbox.add()
    runtime.provide(Destination, Destination(publisher))
    keys = [(partition, "by hand"), (pending(SHARD), event)]
    records = [{"dynamodb": {"Keys": {"partition": {"S": place}, "event_id": {"S": each}}}} for place, each in keys]
    relay_handler(lambda: runtime)({"Records": records}, LambdaContext())
    assert publisher.ids == [event]
    (told,) = (line for line in logs() if line["message"] == "row unreadable")
    assert (told["row"], told["failure"]) == (
        f"outbox {partition} by hand",
        "partition is that of no shard: there are 8",
    )
