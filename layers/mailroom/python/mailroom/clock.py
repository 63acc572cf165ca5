"""Time, passed in: everything that asks for the time takes a `Clock`."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class NaiveMoment(ValueError):
    """A moment without an offset: on each machine it would mean another one. Nothing was done with it."""

    def __init__(self, moment: datetime, of: str = "the moment") -> None:
        super().__init__(
            f"{of} {moment.isoformat()} has no time zone: say which moment is meant, as by datetime.now(UTC), "
            "datetime(…, tzinfo=UTC), or a text that ends with Z"
        )


def aware(moment: datetime, of: str = "the moment") -> datetime:
    """Return the moment, if it is the same one everywhere.

    Parameters
    ----------
    of
        What the error calls it.

    Raises
    ------
    NaiveMoment
        If it has no time zone, or one that knows no offset.
    """
    if moment.utcoffset() is None:
        raise NaiveMoment(moment, of)
    return moment


class Clock(Protocol):
    """What the machinery needs to know of time."""

    def now(self) -> datetime:
        """Answer the present moment, aware, in UTC. It can jump."""
        ...

    def monotonic(self) -> float:
        """Answer seconds since an arbitrary start. They never go back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for so many seconds."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """Answer the present moment in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Answer seconds since an arbitrary start."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait for so many seconds."""
        time.sleep(seconds)


NAP = 0.1
"""The longest wait in seconds that goes by without a look at whether it is called off."""
_NOTHING = 1e-6
"""Seconds that are not worth a nap: what is left of a sum of fractions."""


def wait(clock: Clock, seconds: float, *, called_off: Callable[[], bool], nap: float = NAP) -> bool:
    """Wait for so many seconds, or until the wait is called off; return whether it was not.

    It is the one wait that can be ended: whoever has a signal, a deadline or a lease to look at hands the look in.

    Parameters
    ----------
    nap
        Seconds between two looks at most.
    """
    until, left = clock.monotonic() + seconds, seconds
    while left > _NOTHING and not called_off():
        step = min(left, nap)
        clock.sleep(step)
        left = min(left - step, until - clock.monotonic())
    return not called_off()


def timestamp(moment: datetime) -> str:
    """Write a moment in the one form that rows and envelopes use: RFC 3339, UTC, milliseconds.

    Two such strings compare as the moments do.

    Raises
    ------
    NaiveMoment
        If it has no time zone.
    """
    there = aware(moment).astimezone(UTC)
    return there.strftime("%Y-%m-%dT%H:%M:%S.") + f"{there.microsecond // 1000:03d}Z"


def moment(written: str) -> datetime:
    """Read what `timestamp` wrote.

    Raises
    ------
    NaiveMoment
        If it is written without an offset.
    """
    return aware(datetime.fromisoformat(written))


def epoch_milliseconds(moment: datetime) -> int:
    """Return whole milliseconds since 1970, exactly: by way of a float some would be one less.

    Raises
    ------
    NaiveMoment
        If it has no time zone.
    """
    return (aware(moment) - _EPOCH) // timedelta(milliseconds=1)


def epoch_microseconds(moment: datetime) -> int:
    """Return the microseconds since 1970, exactly.

    Raises
    ------
    NaiveMoment
        If it has no time zone.
    """
    return (aware(moment) - _EPOCH) // timedelta(microseconds=1)


def at_epoch_milliseconds(milliseconds: int) -> datetime:
    """Return the moment that is so many milliseconds after 1970, exactly."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


def epoch_seconds(moment: datetime) -> int:
    """Return whole seconds since 1970, the unit of DynamoDB's TTL.

    Raises
    ------
    NaiveMoment
        If it has no time zone.
    """
    return (aware(moment) - _EPOCH) // timedelta(seconds=1)
