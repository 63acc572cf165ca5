"""Consumers: `@consumer` declares one, and what is needed to run it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from mailroom import breaker, idempotency, rate
from mailroom.declarations import Declaration, DeclarationError, declaring
from mailroom.failures import Failure, Permanent, cut
from mailroom.needs import Access, Need, Port
from mailroom.outbox.event import Envelope, Event, Part
from mailroom.rate import DeclaredRate
from mailroom.returns import flaw_of
from mailroom.row import Row
from mailroom.unit_of_work import UnitOfWork

if TYPE_CHECKING:
    pass


class GivesUp(Protocol):
    """What a consumer does when its work on an event has failed for the last time, before it becomes a dead letter."""

    def __call__(self, event: Event, failure: Failure, work: UnitOfWork) -> bool:
        """Collect what is to be written; answer whether that settles the matter.

        If so, it is committed with the event's record, which is done. If not, it is committed by itself, and the
        failure stands: the message becomes a dead letter.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer(Declaration):
    """Work that an event causes, done once per event.

    Parameters
    ----------
    on
        The events that it waits for, or the one kind of part.
    gives_up
        What to do when its work has failed for the last time: see `GivesUp`.
    batch_size
        How many messages one invocation takes at most (1 to 10,000; more than 10 want a batching window).
    max_concurrency
        How many invocations run side by side at most (2 to 1,000).
        https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html
    patience
        Seconds for which a message waits, without using attempts, while what the consumer as a whole depends on is
        not there: the stage's at most, and so if not given. At 0 it does not wait: an attempt is used instead.
    rate
        How many messages all invocations together handle in a while: `Rate(14, per=1)`, or a function that finds it
        in the runtime's settings. What is too many waits for its turn, or is handed back for it, and is not tried.
    """

    on: tuple[type[Event], ...]
    gives_up: GivesUp | None = None
    batch_size: int = 10
    max_concurrency: int = 10
    patience: int | None = None
    rate: DeclaredRate | None = None

    def __post_init__(self) -> None:
        self.check_function()
        if self.gives_up is not None and (flaw := flaw_of(self.gives_up, bool)):
            raise DeclarationError(f"{self.name}: {flaw}")
        for field, low, high in (("batch_size", 1, 10_000), ("max_concurrency", 2, 1_000)):
            if not low <= getattr(self, field) <= high:
                raise DeclarationError(f"{self.name}: {field} is {getattr(self, field)}, not within {low} and {high}")
        if self.patience is not None and self.patience < 0:
            raise DeclarationError(f"{self.name}: patience is {self.patience} s, and cannot be negative")
        self._check_events()

    def _check_events(self) -> None:
        if not self.on:
            raise DeclarationError(f"{self.name} waits for nothing: name an event")
        for event in self.on:
            if not hasattr(event, "type"):
                raise DeclarationError(f"{self.name} waits for {event.__name__}, an event class without a type")
        if len({event.type for event in self.on}) < len(self.on):
            raise DeclarationError(f"{self.name} waits for two events of one type")
        if len(self.on) > 1 and any(issubclass(event, Part) for event in self.on):
            raise DeclarationError(f"{self.name}: a consumer of parts waits for one kind of them, and for nothing else")

    @property
    def part(self) -> type[Part] | None:
        """The parts that it waits for; None if it waits for events."""
        (first, *_) = self.on
        return first if issubclass(first, Part) else None

    @property
    def needs(self) -> tuple[Need, ...]:
        """What running it takes, whatever its own code does."""
        always = (idempotency.NEEDS, idempotency.NEEDS_OF_BATCHES, breaker.NEEDS)
        return (*always, *([rate.NEEDS] if self.rate is not None else []))

    def read(self, envelope: Envelope) -> Event:
        """Read the event in an envelope.

        Raises
        ------
        Permanent
            If it is none of those that the consumer waits for.
        ValidationError
            If its payload does not fit.
        """
        for event in self.on:
            if event.type == envelope.type:
                return event.model_validate_json(envelope.payload)
        raise Permanent(f"{self.name} waits for {', '.join(event.type for event in self.on)}, not for {envelope.type}")


def consumer(
    *,
    on: type[Event] | Sequence[type[Event]],
    reads: Sequence[type[Row]] = (),
    writes: Sequence[type[Row]] = (),
    scans: Sequence[type[Row]] = (),
    publishes: Sequence[type[Event]] = (),
    splits_into: Sequence[type[Part]] = (),
    uses: Sequence[type[Port]] = (),
    needs: Sequence[Need] = (),
    **options: Any,
) -> Callable[[Callable[..., None]], Consumer]:
    """Declare a consumer: `def name(event: TheEvent, work: UnitOfWork) -> None`.

    Parameters
    ----------
    reads, writes, scans, publishes, splits_into, uses, needs
        What it touches: see `Access`. Nothing else is granted.
    options
        `timeout`, `memory`, `batch_size`, `max_concurrency`, `patience`, `rate`, `gives_up`: see
        `Consumer`.
    """

    access = Access.of(
        reads=reads, writes=writes, scans=scans, publishes=publishes, splits_into=splits_into, uses=uses, needs=needs
    )
    events = (on,) if isinstance(on, type) else tuple(on)
    return declaring(Consumer, access, on=events, **options)


QUEUE_VARIABLE = "MAILROOM_QUEUE_URL"
"""Names the queue that a deployed consumer reads."""


PARTS_QUEUE_VARIABLE = "MAILROOM_PARTS_QUEUE_URL"
"""Names the queue that a deployed consumer's parts go into, if it splits its events."""


MESSAGE = "message/"
"""What the key of a message begins with in which no event can be read."""


def key_of(envelope: Envelope | None, message_id: str) -> str:
    """Answer what an effect happens once for: the event, or the message where no event can be read from it."""
    return envelope.id if envelope else f"{MESSAGE}{message_id}"


def key_in(record: Mapping[str, Any]) -> str:
    """Return the same for a message as it was delivered."""
    try:
        envelope: Envelope | None = Envelope.from_json(record["body"])
    except Permanent:
        envelope = None
    return key_of(envelope, record["messageId"])


_MAX_NAME_BYTES = 1024
"""Of a type or a subject, what rows repeat: a message of others may have any length of them."""


def names_of(envelope: Envelope | None, message_id: str) -> dict[str, str]:
    """Return what rows and log lines call a message: `event_id`, `type`, and `subject` if it has one."""
    names = {"event_id": key_of(envelope, message_id), "type": "?"}
    if envelope is not None:
        names["type"] = cut(envelope.type, _MAX_NAME_BYTES)
    if envelope is not None and envelope.subject is not None:
        names["subject"] = cut(envelope.subject, _MAX_NAME_BYTES)
    return names


def record_prefix(consumer_name: str) -> str:
    """Answer what the ids of a consumer's records begin with."""
    return f"consumer/{consumer_name}"
