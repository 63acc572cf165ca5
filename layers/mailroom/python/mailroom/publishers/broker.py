"""What destinations with a connection of their own share: RabbitMQ and Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import ClassVar, Protocol

from mailroom.clock import Clock
from mailroom.failures import Failure, FailureKind, Unavailable, failure_of
from mailroom.outbox.event import Envelope
from mailroom.publishers.publisher import Limits, Outcome

CLOUD_EVENT = "application/cloudevents+json; charset=UTF-8"
"""https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md#3-envelope"""

LOGIN = ("username", "password")
"""What a broker's secret has."""
AUTHORITY = "ca"
"""What it may have: the certificate, in PEM, that the broker's own is signed by."""
_ADVICE = "see that the URL is right, and that the secret that it names can be read and holds what it should"


@dataclass(frozen=True, slots=True)
class Suspect:
    """An event that was refused along with others: which of them was at fault is not known."""

    failure: Failure


class Link(Protocol):
    """A way to a broker, for one thread at a time. It is in a module of its own, with the broker's client library."""

    def connect(self, deadline: float) -> None:
        """See that there is a connection, by that `clock.monotonic()`; what it raises is no event's fault."""
        ...

    def send(self, events: Sequence[Envelope], deadline: float) -> Sequence[Outcome | Suspect]:
        """Send events over it until then; answer what came of each. May raise."""
        ...

    def hang_up(self) -> None:
        """Forget the connection: the next batch gets a new one."""
        ...


class BrokerPublisher:
    """Sends one batch at a time over one connection, each within a time limit, and raises nothing.

    One at a time, since a connection sends a batch as a whole and then waits once: a second connection beside it
    would save nothing but the wait of batches that fill a page's time anyway.

    Parameters
    ----------
    timeout
        Seconds in which a batch has its outcome, those included that it waits for others.
    """

    limits: ClassVar[Limits]
    layer: ClassVar[str | None] = "brokers"
    keeps_order = True

    def __init__(self, link: Link, *, clock: Clock, timeout: float) -> None:
        self._link = link
        self._clock = clock
        self._timeout = timeout
        self._lock = Lock()

    def publish(self, events: Sequence[Envelope]) -> list[Outcome]:
        """Send a batch; what cannot be sent within the time limit is not sent, as far as anyone knows."""
        if not events:
            return []
        deadline = self._clock.monotonic() + self._timeout
        if not self._lock.acquire(timeout=self._timeout):
            return [unavailable("Busy", "other batches took all the time that there was for this one")] * len(events)
        try:
            return self._deliver(events, deadline)
        finally:
            self._lock.release()

    def close(self) -> None:
        """Close the connection, if there is one."""
        with self._lock:
            self._link.hang_up()

    def _deliver(self, events: Sequence[Envelope], deadline: float) -> list[Outcome]:
        answers = self._attempt(events, deadline)
        outcomes = [answer for answer in answers if not isinstance(answer, Suspect)]
        if len(outcomes) == len(answers):
            return outcomes
        suspects = [event for event, answer in zip(events, answers, strict=True) if isinstance(answer, Suspect)]
        retried = iter(self._search(suspects, answers, deadline))
        return [next(retried) if isinstance(answer, Suspect) else answer for answer in answers]

    def _search(
        self, suspects: Sequence[Envelope], answers: Sequence[Outcome | Suspect], deadline: float
    ) -> list[Outcome]:
        """Send halves of what was refused together, so that nobody dies of another's fault."""
        if len(answers) == 1:
            return [answer.failure for answer in answers if isinstance(answer, Suspect)]
        half = (len(suspects) + 1) // 2
        return [
            outcome for part in (suspects[:half], suspects[half:]) if part for outcome in self._deliver(part, deadline)
        ]

    def _attempt(self, events: Sequence[Envelope], deadline: float) -> Sequence[Outcome | Suspect]:
        try:
            self._link.connect(deadline)
        except Exception as error:
            self._link.hang_up()
            return [_not_connected(error)] * len(events)
        try:
            return self._link.send(events, deadline)
        except Exception as error:
            self._link.hang_up()
            failure = failure_of(error)
            return [failure if failure.kind is FailureKind.UNAVAILABLE else Suspect(failure)] * len(events)


def _not_connected(error: Exception) -> Failure:
    """Judge what went wrong before anything was sent: a URL, a secret or a broker, whatever the error is called."""
    failure = failure_of(error)
    says_what_to_do = isinstance(error, Unavailable)
    return unavailable(failure.type, failure.message if says_what_to_do else f"{failure.message}; {_ADVICE}")


def unavailable(type_: str, message: str) -> Failure:
    """Make a failure that is the broker's, and costs no event an attempt."""
    return Failure(FailureKind.UNAVAILABLE, type_, message)


def permanent(type_: str, message: str) -> Failure:
    """Make a failure that is the event's own, for good."""
    return Failure(FailureKind.PERMANENT, type_, message)
