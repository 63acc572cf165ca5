"""A moment without an offset means another one on each machine: nothing takes it, wherever it comes in."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import pytest
from pynamodb import attributes as pynamodb_attributes
from pynamodb.attributes import UnicodeAttribute

from mailroom.attributes import TTLAttribute, UTCDateTimeAttribute
from mailroom.clock import NaiveMoment, aware, epoch_microseconds, epoch_milliseconds, epoch_seconds, moment, timestamp
from mailroom.job import JobEdge
from mailroom.master_keys import MasterKey, MasterKeys
from mailroom.outbox.event import Event, payload_of
from mailroom.row import Row
from mailroom.signing import verify
from mailroom.sources.source import longest_hiding
from mailroom.testing import ManualClock

NAIVE = datetime(2030, 1, 1, 12, 30)  # noqa: DTZ001 - what this is about
RECORD = {"attributes": {"ApproximateFirstReceiveTimestamp": "0"}}


class Nowhere(tzinfo):
    """A time zone that does not know its offset: as good as none."""

    def utcoffset(self, dt: datetime | None) -> None:
        return None


class Expiring(Row):
    """A row with every kind of moment."""

    id = UnicodeAttribute(hash_key=True)
    expires_at = TTLAttribute(null=True)
    seen_at = UTCDateTimeAttribute(null=True)


class Planned(Event, type="test.planned"):
    """An event with a moment inside."""

    moments: list[datetime]


def a_signature_checked_at(now: datetime) -> None:
    verify([], message_id="id", timestamp="1893500000", signatures="", body=b"", now=now)


PLACES: dict[str, Callable[[datetime], Any]] = {
    "aware": aware,
    "timestamp": timestamp,
    "epoch_milliseconds": epoch_milliseconds,
    "epoch_microseconds": epoch_microseconds,
    "epoch_seconds": epoch_seconds,
    "reading": lambda naive: moment(naive.isoformat()),
    "a row's TTL": lambda naive: Expiring("1", expires_at=naive),
    "a row's TTL in an update": Expiring.expires_at.set,
    "a row's TTL in a condition": lambda naive: Expiring.expires_at < naive,
    "a row's moment": lambda naive: Expiring("1", seen_at=naive).serialize(),
    "a row's moment in an update": Expiring.seen_at.set,
    "an event": lambda naive: payload_of(Planned(moments=[naive])),
    "a manual clock": ManualClock,
    "a firing": lambda naive: JobEdge.run(None, None, fired_at=naive),  # type: ignore[arg-type]
    "a signature": a_signature_checked_at,
    "a message's hiding": lambda naive: longest_hiding(RECORD, naive),
    "a master key": lambda naive: MasterKey.of("1", b"", naive),
    "a grown master key": lambda naive: MasterKeys.grown("x" * 64, version="1", created_at=naive),
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_naive_moment_is_refused__and_the_error_says_which_and_what_to_do(
    place: Callable[[datetime], Any],
) -> None:
    with pytest.raises(NaiveMoment, match=r"2030-01-01T12:30:00 .*tzinfo=UTC"):
        place(NAIVE)


@pytest.mark.parametrize("place", ["timestamp", "epoch_milliseconds", "epoch_seconds", "a row's TTL", "an event"])
def test_a_time_zone_without_an_offset_is_none(place: str) -> None:
    with pytest.raises(NaiveMoment):
        PLACES[place](NAIVE.replace(tzinfo=Nowhere()))


def test_it_is_a_value_error__as_what_takes_moments_raised_before() -> None:
    assert issubclass(NaiveMoment, ValueError)


def test_an_event_says_in_which_of_its_fields_it_is() -> None:
    with pytest.raises(NaiveMoment, match=r"Planned\.moments\[1\]"):
        payload_of(Planned(moments=[datetime(2030, 1, 1, tzinfo=UTC), NAIVE]))


@pytest.mark.parametrize(
    "attribute", [pynamodb_attributes.TTLAttribute, pynamodb_attributes.UTCDateTimeAttribute], ids=str
)
def test_a_row_has_no_attribute_that_would_take_one(attribute: type[Any]) -> None:
    with pytest.raises(TypeError, match=r"Bad\.at: .*mailroom\.attributes"):
        type("Bad", (Row,), {"at": attribute()})


def test_a_moment_of_a_row_reads_back() -> None:
    then = datetime(2030, 1, 1, 12, 30, tzinfo=UTC)
    row = Expiring()
    row.deserialize(Expiring("1", expires_at=then, seen_at=then + timedelta(microseconds=1)).serialize())
    assert (row.expires_at, row.seen_at) == (then, then + timedelta(microseconds=1))
