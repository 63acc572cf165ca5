"""What tests of Mailroom and of what is built on it pass in: a clock that obeys and a destination that remembers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, ClassVar, Self

from mailroom.clock import aware
from mailroom.failures import Failure, FailureKind
from mailroom.needs import Need
from mailroom.outbox.event import Envelope
from mailroom.publishers.place import Place
from mailroom.publishers.publisher import SENT, Limits, NotTaken, Outcome

if TYPE_CHECKING:
    from mailroom.runtime import Runtime


class ManualClock:
    """A clock that moves when it is told to; sleeping moves it."""

    def __init__(self, start: datetime = datetime(2030, 1, 1, tzinfo=UTC)) -> None:
        self._now = aware(start)
        self._monotonic = 0.0
        self.slept: list[float] = []

    def now(self) -> datetime:
        """Answer the moment it was set to."""
        return self._now

    def monotonic(self) -> float:
        """Answer the seconds it was moved on."""
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        """Move on and remember it."""
        self.slept.append(seconds)
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move on."""
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an administrator or NTP would."""
        self._now += timedelta(seconds=seconds)


class FakePublisher:
    """A destination in memory.

    Parameters
    ----------
    answer
        What becomes of an event; may raise to stand for a crash.
    """

    limits: ClassVar = Limits(entries=10, entry_bytes=1_000_000, call_bytes=1_000_000)
    layer: ClassVar[str | None] = None
    keeps_order = True

    def __init__(self, answer: Callable[[Envelope], Outcome] = lambda _: SENT) -> None:
        self.answer = answer
        self.received: list[Envelope] = []
        self.attempted: list[str] = []
        self.calls = 0

    @classmethod
    def check_at(cls, place: Place) -> None:
        """Take any place."""

    @classmethod
    def needs_at(cls, place: Place) -> tuple[Need, ...]:
        """Need nothing."""
        return ()

    @classmethod
    def at(cls, place: Place, runtime: Runtime) -> Self:
        """Make one; the place does not matter."""
        return cls()

    @staticmethod
    def size(event: Envelope) -> int:
        """Answer the bytes of the event on the wire."""
        return len(event.to_json().encode())

    def publish(self, events: Sequence[Envelope]) -> list[Outcome]:
        """Remember what goes well."""
        self.calls += 1
        outcomes: list[Outcome] = []
        for event in events:
            self.attempted.append(event.id)
            outcome = self.answer(event)
            if outcome is SENT:
                self.received.append(event)
            outcomes.append(outcome)
        return outcomes

    @property
    def ids(self) -> list[str]:
        """The ids of what was delivered, in order."""
        return [event.id for event in self.received]


def transient(message: str = "not this time") -> Failure:
    """Make a failure that costs an attempt."""
    return Failure(FailureKind.TRANSIENT, "Test", message)


def permanent(message: str = "never") -> Failure:
    """Make a failure that is final."""
    return Failure(FailureKind.PERMANENT, "Test", message)


def unavailable(message: str = "down") -> Failure:
    """Make a failure of the destination."""
    return Failure(FailureKind.UNAVAILABLE, "Test", message)


def not_taken(message: str = "busy") -> NotTaken:
    """Make a failure of one event alone, in a call that took others."""
    return NotTaken(FailureKind.UNAVAILABLE, "Test", message)


class LambdaContext:
    """As much of Lambda's context as the edges ask for."""

    def __init__(self, remaining_ms: int = 30_000) -> None:
        self._remaining_ms = remaining_ms
        self.aws_request_id = "request-1"

    def get_remaining_time_in_millis(self) -> int:
        """Answer the time left."""
        return self._remaining_ms
