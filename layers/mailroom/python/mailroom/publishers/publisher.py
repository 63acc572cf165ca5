"""What every destination keeps to, and the choice of one by its URL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, Self

from mailroom.failures import Failure
from mailroom.needs import Need
from mailroom.outbox.event import Envelope

if TYPE_CHECKING:
    from mailroom.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Sent:
    """The destination has the event."""


SENT = Sent()
Outcome = Sent | Failure


@dataclass(frozen=True, slots=True)
class Limits:
    """What a destination takes.

    Parameters
    ----------
    entries
        Events in one call at most.
    entry_bytes
        UTF-8 bytes of one event at most, with what the call adds to it.
    call_bytes
        The sum of those in one call.
    """

    entries: int
    entry_bytes: int
    call_bytes: int


class Publisher(Protocol):
    """Delivers batches. Each destination has one, and tests have a fake that keeps the same contract."""

    limits: Limits

    @staticmethod
    def size(event: Envelope) -> int:
        """Answer the bytes that count against the limits."""
        ...

    def publish(self, events: Sequence[Envelope]) -> list[Outcome]:
        """Send one batch within the limits; answer each event's outcome at its position. Never raises."""
        ...


_MODULES = {"eventbridge": ("mailroom.publishers.eventbridge", "EventBridgePublisher")}


class PublisherUrlError(ValueError):
    """A publisher URL that names no destination; the message lists the known schemes."""


class PublisherKind(Publisher, Protocol):
    """What a destination's class offers before there is an instance."""

    @classmethod
    def at(cls, place: str, runtime: Runtime) -> Self:
        """Connect to the destination that the URL's part behind `://` names."""
        ...

    @classmethod
    def needs_at(cls, place: str) -> tuple[Need, ...]:
        """Answer what publishing there needs."""
        ...


def kind_of(url: str) -> tuple[type[PublisherKind], str]:
    """Answer the class for a URL and the place it names.

    Raises
    ------
    PublisherUrlError
        If the scheme is unknown or no place is named.
    """
    scheme, _, place = url.partition("://")  # not urlsplit: at synth the place is one of CDK's placeholders
    if scheme not in _MODULES or not place:
        known = ", ".join(f"{name}://…" for name in sorted(_MODULES))
        raise PublisherUrlError(f"{url!r} names no destination that Mailroom knows; known are {known}")
    module, name = _MODULES[scheme]
    kind: type[PublisherKind] = getattr(import_module(module), name)
    return kind, place


class Destination:
    """The port of the stage's one destination: `uses=[Destination]`."""

    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher

    @classmethod
    def needs(cls, runtime: Runtime) -> tuple[Need, ...]:
        """Answer what publishing to the stage's URL needs."""
        kind, place = kind_of(runtime.settings.publisher_url)
        return kind.needs_at(place)

    @classmethod
    def connect(cls, runtime: Runtime) -> Self:
        """Connect to the stage's URL."""
        kind, place = kind_of(runtime.settings.publisher_url)
        return cls(kind.at(place, runtime))


def batches(events: Sequence[Envelope], publisher: Publisher) -> Iterator[list[Envelope]]:
    """Cut events into batches within a destination's limits, in order."""
    batch: list[Envelope] = []
    total = 0
    for event in events:
        size = publisher.size(event)
        if batch and (len(batch) == publisher.limits.entries or total + size > publisher.limits.call_bytes):
            yield batch
            batch, total = [], 0
        batch.append(event)
        total += size
    if batch:
        yield batch
