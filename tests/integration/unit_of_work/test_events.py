"""Events of a unit of work: their order by subject, their size, and what cannot be sent."""

from __future__ import annotations

import pytest

from app.repos import Repo
from mailroom.outbox.event import Envelope, EventRefused, shard_of_id, shard_of_subject
from mailroom.outbox.limits import EventTooLarge, check_size
from mailroom.outbox.room import MAX_EVENT_BYTES, size_of
from mailroom.outbox.table import OutboxRow
from mailroom.runtime import Runtime
from mailroom.telemetry import traced
from mailroom.testing import ManualClock
from mailroom.unit_of_work import UnitOfWork
from tests import stage

from ..conftest import CallCounter
from .conftest import ACCESS, created, events, repo


def test_a_subjects_events_follow_each_other__though_the_clock_was_set_back(
    runtime: Runtime, work: UnitOfWork, clock: ManualClock
) -> None:
    row = repo()
    first = work.publish(created(), about=row)
    work.save(row)
    work.commit()
    clock.jump(-3600)
    row = Repo.get("1", consistent_read=True)
    again = UnitOfWork(runtime, ACCESS)
    second = again.publish(created(), about=row)
    third = again.publish(created(), about=row)
    again.save(row)
    again.commit()
    assert first < second < third
    assert [event.after for event in events()] == [None, first, second]


def test_an_event_about_a_row_that_is_not_written_is_refused(work: UnitOfWork) -> None:
    work.publish(created(), about=repo())
    with pytest.raises(LookupError, match="repos/1"):
        work.commit()


def test_an_event_about_a_row_that_is_only_depended_on_is_refused__since_its_place_in_the_order_would_be_lost(
    work: UnitOfWork,
) -> None:
    row = repo()
    work.save(row)
    work.commit()
    work.unchanged(row)
    work.publish(created(), about=row)
    with pytest.raises(LookupError, match="repos/1"):
        work.commit()


def test_an_event_too_large_for_the_outbox_is_refused__when_it_is_added(work: UnitOfWork, calls: CallCounter) -> None:
    with pytest.raises(EventTooLarge, match=r"repo\.created"):
        work.publish(created("x" * 390_000))
    assert calls.calls == []


def test_an_event_that_just_fits_the_outbox_is_taken__and_not_one_byte_more(work: UnitOfWork) -> None:
    work.publish(created())
    work.commit()
    (row,) = events()
    room = MAX_EVENT_BYTES - size_of(row.serialize())
    work.publish(created("tool" + "x" * room))
    with pytest.raises(EventTooLarge):
        work.publish(created("tool" + "x" * (room + 1)))


@pytest.mark.parametrize("length", [255, 256])
def test_a_type_is_as_long_as_its_destination_takes__and_no_longer(length: int) -> None:
    runtime = Runtime(stage.settings(publisher_url="amqps://broker.example/?exchange=events"))
    envelope = Envelope("01JDW3NDEKTSV4RRFFQ69G5FAV-03", "t" * length, "test.service", None, "", "{}")
    if length <= 255:
        check_size(envelope, OutboxRow.pending(envelope), runtime)
    else:
        with pytest.raises(EventTooLarge, match="256 bytes, and goes in 255"):
            check_size(envelope, OutboxRow.pending(envelope), runtime)


def test_events_of_a_subject_lie_in_its_shard(work: UnitOfWork) -> None:
    for number in range(10):
        row = repo(repo_id=str(number))
        assert shard_of_id(work.publish(created(), about=row)) == shard_of_subject(f"repos/{number}")


def test_an_event_carries_the_trace_that_it_was_added_in(runtime: Runtime, work: UnitOfWork) -> None:
    with traced(None, runtime.random) as trace:
        work.publish(created())
    work.commit()
    assert [event.traceparent for event in events()] == [trace]


def test_the_room_for_the_failure_is_kept_free(work: UnitOfWork) -> None:
    work.publish(created("x" * 380_000))
    work.commit()
    (event,) = events()
    assert len(event.payload) > 380_000


def test_characters_that_cannot_be_sent_are_refused(work: UnitOfWork) -> None:
    with pytest.raises(EventRefused, match=r"RepoCreated\.name .*U\+0000"):
        work.publish(created("a\x00b"))
