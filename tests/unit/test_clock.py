"""Moments: written in one form that compares as they do, and counted exactly."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailroom.clock import NAP, SystemClock, epoch_milliseconds, epoch_seconds, moment, timestamp, wait
from mailroom.testing import ManualClock

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
moments = st.timedeltas(timedelta(), timedelta(days=80_000)).map(lambda since: EPOCH + since)


def test_a_moment_is_written_in_utc_and_milliseconds() -> None:
    there = datetime(2030, 1, 1, 2, 30, 0, 1999, tzinfo=timezone(timedelta(hours=2)))

    assert timestamp(there) == "2030-01-01T00:30:00.001Z"


@given(one=moments, other=moments)
def test_written_moments_compare_as_the_moments_do(one: datetime, other: datetime) -> None:
    one, other = moment(timestamp(one)), moment(timestamp(other))

    assert (timestamp(one) < timestamp(other)) == (one < other)


@given(then=moments)
def test_a_written_moment_reads_back__to_the_millisecond(then: datetime) -> None:
    assert timedelta() <= then - moment(timestamp(then)) < timedelta(milliseconds=1)


@given(milliseconds=st.integers(0, 5_000_000_000_000))
def test_milliseconds_are_counted_exactly(milliseconds: int) -> None:
    assert epoch_milliseconds(EPOCH + timedelta(milliseconds=milliseconds)) == milliseconds


def test_a_ttl_is_in_seconds__as_dynamodb_wants_it() -> None:
    assert epoch_seconds(datetime(2030, 1, 1, 0, 0, 0, 999_999, tzinfo=UTC)) == 1_893_456_000


def test_the_systems_clock_tells_an_aware_moment() -> None:
    assert SystemClock().now().tzinfo is UTC


def test_sleeping_moves_a_manual_clock__and_is_remembered() -> None:
    clock = ManualClock()

    clock.sleep(2.5)
    clock.sleep(1)

    assert (clock.slept, clock.monotonic()) == ([2.5, 1], 3.5)


def test_a_jump_of_the_wall_clock_leaves_the_monotonic_one() -> None:
    clock = ManualClock()
    before = clock.now()

    clock.jump(-3600)

    assert (clock.now() - before, clock.monotonic()) == (timedelta(hours=-1), 0)


def test_a_wait_goes_by__unless_it_is_called_off() -> None:
    clock = ManualClock()

    assert wait(clock, 2.5, called_off=lambda: False)
    assert clock.monotonic() == pytest.approx(2.5)


def test_a_wait_that_is_called_off_ends_within_a_nap() -> None:
    clock = ManualClock()

    assert not wait(clock, 30, called_off=lambda: clock.monotonic() >= 1)
    assert clock.monotonic() == pytest.approx(1, abs=NAP)


def test_nothing_is_waited_for__when_it_is_called_off_before() -> None:
    clock = ManualClock()

    assert not wait(clock, 30, called_off=lambda: True)
    assert clock.slept == []


def test_a_wait_is_over__when_the_process_stood_still_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    monkeypatch.setattr(clock, "sleep", lambda seconds: clock.advance(seconds + 60))

    assert wait(clock, 30, called_off=lambda: False)
    assert clock.monotonic() == pytest.approx(60 + NAP)
