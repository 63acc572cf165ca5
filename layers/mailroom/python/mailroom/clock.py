"""Time, passed in: everything that asks for the time takes a `Clock`."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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


def timestamp(moment: datetime) -> str:
    """Write a moment in the one form that rows and envelopes use: RFC 3339, UTC, milliseconds.

    Two such strings compare as the moments do.
    """
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def moment(written: str) -> datetime:
    """Read what `timestamp` wrote."""
    return datetime.fromisoformat(written)


def epoch_milliseconds(moment: datetime) -> int:
    """Answer whole milliseconds since 1970, exactly: by way of a float some would be one less."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def epoch_seconds(moment: datetime) -> int:
    """Answer whole seconds since 1970, the unit of DynamoDB's TTL."""
    return int(moment.timestamp())
