"""What every destination keeps to, and the choice of one by its URL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar

from mailroom.failures import Failure, FailureKind
from mailroom.needs import LayerNeed, Need
from mailroom.outbox.event import Envelope
from mailroom.publishers.place import Place
from mailroom.returns import WrongReturn

if TYPE_CHECKING:
    from mailroom.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Sent:
    """The destination has the event."""


class NotTaken(Failure):
    """A call that went well did not take this event for now: it alone was throttled, or failed inside.

    A `Failure` that is unavailable and none of these is about the call as a whole, and so about the destination. With a
    `retry_after` the event is not sent again before; without one it is, at once.
    """

    __slots__ = ()

    @classmethod
    def of(cls, failure: Failure) -> Self:
        """Make one of what an entry's failure says."""
        return cls(**asdict(failure))


SENT = Sent()
Outcome = Sent | Failure
E = TypeVar("E")


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
    type_bytes
        UTF-8 bytes of an event's type, where the destination puts it into a field that is short.
    """

    entries: int
    entry_bytes: int
    call_bytes: int
    type_bytes: int | None = None


class Publisher(Protocol):
    """Delivers batches. Each destination has one, and tests have a fake that keeps the same contract.

    It may be called by several threads at once.
    """

    limits: ClassVar[Limits]
    keeps_order: bool
    """Whether consumers get a subject's events in the order in which they were published."""

    @staticmethod
    def size(event: Envelope) -> int:
        """Answer the bytes that count against the limits."""
        ...

    def publish(self, events: Sequence[Envelope]) -> list[Outcome]:
        """Send one batch within the limits; answer each event's outcome at its position. Never raises.

        What failed for the call as a whole is a `Failure` of the kind unavailable for each event: the shard pauses.
        What was not taken by itself is `NotTaken`; what is refused by itself, but might be let in, is transient.
        """
        ...


class PublisherKind(Publisher, Protocol):
    """What a destination's class offers before there is an instance.

    Importing its module must not import the destination's client library: the API, which checks sizes, is deployed
    without it.
    """

    layer: ClassVar[str | None]
    """The layer that the client library is in, if it is not in the one of dependencies."""

    @classmethod
    def check_at(cls, place: Place) -> None:
        """See that the place is one of this kind.

        Raises
        ------
        PublisherUrlError
            If it is not; the message says what is wrong.
        """
        ...

    @classmethod
    def needs_at(cls, place: Place) -> tuple[Need, ...]:
        """Answer what publishing there needs."""
        ...

    @classmethod
    def at(cls, place: Place, runtime: Runtime) -> Self:
        """Make the publisher for a place; whether anything is there shows when it publishes."""
        ...


_KINDS = {
    "amqp": "rabbitmq:RabbitMqPublisher",
    "amqps": "rabbitmq:RabbitMqPublisher",
    "eventbridge": "eventbridge:EventBridgePublisher",
    "kafka": "kafka:KafkaPublisher",
    "sns": "sns:SnsPublisher",
    "sqs": "sqs:SqsPublisher",
    "ymq": "ymq:YmqPublisher",
}
"""The class of each scheme, by the module in this package that it is in."""


@cache
def kind_of(url: str) -> tuple[type[PublisherKind], Place]:
    """Answer the class for a URL and the place it names.

    Raises
    ------
    PublisherUrlError
        If the scheme is unknown, or the place is none of its kind.
    """
    place = Place.of(url)
    if place.scheme not in _KINDS or not place.name:
        known = ", ".join(f"{name}://…" for name in sorted(_KINDS))
        raise place.wrong(f"it names no destination that Mailroom knows; known are {known}")
    module, _, name = _KINDS[place.scheme].partition(":")
    kind: type[PublisherKind] = getattr(import_module(f"mailroom.publishers.{module}"), name)
    kind.check_at(place)
    return kind, place


class ClientMissing(ImportError):
    """The destination's client library is not installed; the message says what to install."""


class Destination:
    """The port of the stage's one destination: `uses=[Destination]`."""

    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher

    @classmethod
    def needs(cls, runtime: Runtime) -> tuple[Need | LayerNeed, ...]:
        """Answer what publishing to the stage's URL needs."""
        kind, place = kind_of(runtime.settings.publisher_url)
        layers = () if kind.layer is None else (LayerNeed(kind.layer),)
        return (*kind.needs_at(place), *layers)

    @classmethod
    def connect(cls, runtime: Runtime) -> Self:
        """Connect to the stage's URL.

        Raises
        ------
        PublisherUrlError
            If it names no destination.
        ClientMissing
            If its client library is not installed.
        """
        kind, place = kind_of(runtime.settings.publisher_url)
        try:
            return cls(kind.at(place, runtime))
        except ModuleNotFoundError as error:
            if kind.layer is None:
                raise
            raise ClientMissing(
                f"publishing to {place.scheme}://… needs the module {error.name}: "
                f"pip install 'mailroom[{kind.layer}]', or on Lambda the layer {kind.layer}"  # both are called the same
            ) from error


def outcomes_of(publisher: Publisher, batch: Sequence[Envelope]) -> list[Outcome]:
    """Publish one batch within the limits, and return the outcome of each event at its position.

    An answer that fits no events is a verdict on the call, as when the destination is down: the shard pauses, no
    attempt is used, and what was taken all the same goes out again with its id.
    """
    answer: Any = publisher.publish(batch)
    if isinstance(answer, list) and len(answer) == len(batch) and all(isinstance(each, Outcome) for each in answer):
        return answer
    told = f"{len(answer)} entries" if isinstance(answer, list) else type(answer).__name__
    by = f"{type(publisher).__name__}.publish"
    message = f"{by} must return a list with Sent or a Failure for each of {len(batch)} events, not {told}"
    return [Failure(FailureKind.UNAVAILABLE, WrongReturn.__name__, message)] * len(batch)


def batches(events: Sequence[Envelope], publisher: Publisher) -> Iterator[list[Envelope]]:
    """Cut events into batches within a destination's limits, in order."""
    return within(publisher.limits, events, publisher.size)


def within(limits: Limits, entries: Iterable[E], size: Callable[[E], int]) -> Iterator[list[E]]:
    """Cut entries of whatever kind into as many as one call takes, in order."""
    batch: list[E] = []
    total = 0
    for entry in entries:
        bytes_more = size(entry)
        if batch and (len(batch) == limits.entries or total + bytes_more > limits.call_bytes):
            yield batch
            batch, total = [], 0
        batch.append(entry)
        total += bytes_more
    if batch:
        yield batch
