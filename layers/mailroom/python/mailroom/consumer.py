"""Consumers: `@consumer` declares one, and the edge that runs it on batches of SQS messages."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response

from mailroom import idempotency, rate, telemetry
from mailroom.declarations import DECLARATION_VARIABLE, Declaration, DeclarationError, declaring, load
from mailroom.failures import Failure, FailureKind, Permanent, failure_of
from mailroom.idempotency import Idempotency, StillRunning, Superseded, Taken, taken
from mailroom.needs import Access, Need, Port
from mailroom.outbox.event import Envelope, Event, Part
from mailroom.patience import Judged, Renewal, as_it_counts
from mailroom.rate import DeclaredRate, Limit, Turns
from mailroom.returns import flaw_of, returned
from mailroom.row import Row
from mailroom.runtime import Runtime
from mailroom.sources.source import MAX_RECEIVES, Queue, Sink, longest_hiding, receives_of
from mailroom.sources.sqs import SqsSource
from mailroom.telemetry import LogEvent, Metric
from mailroom.unit_of_work import UnitOfWork

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
    from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord


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
        return (idempotency.NEEDS, *([rate.NEEDS] if self.rate is not None else []))

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


class GaveUp(Exception):
    """A message whose attempts are used up: its handler is not called again, and SQS moves it on."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class HandedBack(Exception):
    """A message that there was no time left for, or that has a later moment: nothing was tried.

    Parameters
    ----------
    wait
        Seconds after which it is to come again.
    """

    def __init__(self, message: str, wait: float = 0) -> None:
        super().__init__(message)
        self.wait = wait


class ConsumerEdge:
    """Runs one consumer on batches of SQS messages.

    Parameters
    ----------
    source
        Where the batches come from, and where copies of messages go that wait.
    parts
        Where the parts go into which its events are split.
    """

    def __init__(self, declaration: Consumer, runtime: Runtime, source: Queue, *, parts: Sink | None = None) -> None:
        self._declaration = declaration
        self._runtime = runtime
        self._source = source
        self._parts = parts
        self._renewal = Renewal(
            source,
            runtime,
            consumer=declaration.name,
            timeout=declaration.timeout or runtime.timings.consumer_timeout,
        )
        self._limit = Limit(declaration.rate, runtime, consumer=declaration.name) if declaration.rate else None
        self._idempotency = Idempotency(
            runtime,
            prefix=record_prefix(declaration.name),
            life=runtime.timings.consumer_record_life,
            failing_as=declaration.name,
        )

    def handle(self, batch: dict[str, Any], context: Any) -> PartialItemFailureResponse:
        """Answer which messages of a batch are to be delivered again.

        Raises
        ------
        KeyError
            If it is no SQS batch.
        """
        if not batch["Records"]:
            return {"batchItemFailures": []}
        processor = BatchProcessor(EventType.SQS, raise_on_entire_batch_failure=False)
        deadline = self._runtime.deadline(context)

        # Those that were handed back most often go first: SQS moves a message on after so many deliveries.
        records = sorted(batch["Records"], key=receives_of, reverse=True)
        turns = Turns(self._limit, records, self._runtime.clock, deadline=deadline)

        def one(record: SQSRecord) -> None:
            later = turns.wait_for(record.message_id)
            remaining_ms = context.get_remaining_time_in_millis()
            self._handle(record, remaining_ms, deadline, later)

        with telemetry.flushed_metrics():
            return process_partial_response({**batch, "Records": records}, one, processor, context)

    def _handle(self, record: SQSRecord, remaining_ms: int, deadline: float, later: float) -> None:
        attempt = _Attempt(self._declaration, self._runtime, record, deadline=deadline, parts=self._parts)
        try:
            attempt.hand_back_if_late(later)
            outcome = self._idempotency.run(
                key=attempt.key,
                act=attempt.run,
                remaining_ms=remaining_ms,
                message_id=record.message_id,
                about=attempt.about(),
            )
        except Exception as error:
            wait = self._wait_after(error, attempt)
            if isinstance(error, HandedBack):
                wait = min(wait, longest_hiding(record.raw_event, self._runtime.clock.now()))
            if _waits(error) and self._renewal.renew(record.raw_event, wait):
                return
            self._postpone(record, wait)
            raise
        event = LogEvent.MESSAGE_REPEATED if outcome.replayed else LogEvent.MESSAGE_HANDLED
        telemetry.log(event, **attempt.facts())

    def _wait_after(self, error: Exception, attempt: _Attempt) -> float:
        """Answer the seconds after which a message that was not handled is delivered again."""
        if isinstance(error, StillRunning):
            return error.retry_after
        if isinstance(error, HandedBack):
            return error.wait
        if isinstance(error, GaveUp):
            return 0
        failure = failure_of(error)
        telemetry.log(LogEvent.MESSAGE_FAILED, failure=failure, **attempt.facts())
        telemetry.count(Metric.MESSAGES_FAILED)
        backoff = self._runtime.timings.consumer_backoff
        if failure.kind is FailureKind.UNAVAILABLE:
            tries = attempt.waits
        elif backoff.is_over(failure, attempt.number):
            return 0
        else:
            tries = attempt.number
        return max(backoff.delay(tries - 1, self._runtime.random), failure.retry_after or 0)

    def _postpone(self, record: SQSRecord, seconds: float) -> None:
        seconds = min(seconds, longest_hiding(record.raw_event, self._runtime.clock.now()))
        failed = self._source.hide({record.receipt_handle: seconds})
        for failure in failed.values():
            # It comes back all the same, when the queue's own visibility time-out is over.
            telemetry.log(LogEvent.MESSAGE_NOT_POSTPONED, failure=failure, message_id=record.message_id)


def _waits(error: Exception) -> bool:
    """Return whether a message was not tried, or not at fault: it may come again any number of times."""
    if isinstance(error, HandedBack):
        return error.wait > 0
    return failure_of(error).kind is FailureKind.UNAVAILABLE


class _Attempt:
    """One delivery of one message."""

    def __init__(
        self, declaration: Consumer, runtime: Runtime, record: SQSRecord, *, deadline: float, parts: Sink | None
    ) -> None:
        self._declaration = declaration
        self._runtime = runtime
        self._deadline = deadline
        self._in_time = runtime.clock.monotonic() < deadline
        self._parts = parts
        self._receives = receives_of(record.raw_event)
        self._message_id = record.message_id
        self.number = 1
        self.waits = self._receives  # unless the record knows better
        self._record: Taken | None = None
        self._envelope: Envelope | None = None
        self._unreadable: Exception | None = None
        try:
            self._envelope = Envelope.from_json(record.body)
        except Permanent as error:
            self._unreadable = error

    @property
    def key(self) -> str:
        """What the effect happens once for: the event, or the message where no event can be read from it."""
        return key_of(self._envelope, self._message_id)

    def about(self) -> dict[str, str]:
        """Answer what the record of a failure says of it."""
        known = self._envelope
        about = {
            "event_id": self.key,
            "type": known.type if known else "?",
            "subject": known.subject if known else None,
        }
        return {name: value for name, value in about.items() if value is not None}

    def hand_back_if_late(self, later: float) -> None:
        """Go no further when the invocation's time is up and the message will come again, or its turn is later.

        Raises
        ------
        HandedBack
            Then.
        """
        if not self._in_time and self._receives < MAX_RECEIVES:
            raise HandedBack("the invocation's time is up")
        if later > 0:
            raise HandedBack("its moment comes later", later)

    def facts(self) -> dict[str, Any]:
        """Answer what log lines say of it."""
        known = self._envelope
        return {
            "consumer": self._declaration.name,
            "message_id": self._message_id,
            "attempt": self.number,
            "event_id": known.id if known else None,
            "type": known.type if known else None,
            "subject": known.subject if known else None,
        }

    def run(self) -> None:
        """Do the work and commit what it collected, unless the message is beyond help."""
        traceparent = self._envelope.traceparent if self._envelope else None
        with telemetry.traced(traceparent, self._runtime.random):
            record = self._record = taken()
            if record is not None:
                self.number = record.attempts
                if self._is_over(record):
                    return
                self._stop_if_late(record)
            self._work()

    def _work(self) -> None:
        event = self._read()
        work = self._unit_of_work()
        try:
            self._declaration(event, work)
            work.commit()
        except Superseded:
            raise
        except Exception as error:
            failure = self._judge(error)
            if self._is_last(failure) and self._is_settled(failure):
                return
            if failure == failure_of(error):
                raise
            raise Judged(failure) from error

    def _judge(self, error: Exception) -> Failure:
        """Return what the failure of this attempt counts as, and note it in the record that is kept of it."""
        record = self._record
        patience = self._runtime.timings.patience_of(self._declaration.patience)
        since, now = record.failing_since if record else None, self._runtime.clock.now()
        failure = as_it_counts(failure_of(error), failing_since=since, patience=patience, now=now)
        if record is not None:
            record.note(waits=failure.kind is FailureKind.UNAVAILABLE)
            self.waits = record.waits
        return failure

    def _is_last(self, failure: Failure) -> bool:
        if failure.kind is FailureKind.UNAVAILABLE:
            return False
        return self._runtime.timings.consumer_backoff.is_over(failure, self.number)

    def _read(self) -> Event:
        if self._envelope is None:
            raise self._unreadable or Permanent("the message is no event")
        return self._declaration.read(self._envelope)

    def _unit_of_work(self) -> UnitOfWork:
        return UnitOfWork(
            self._runtime,
            self._declaration.access,
            cause=self._envelope,
            parts=self._parts,
            deadline=self._deadline,
        )

    def _is_over(self, record: Taken) -> bool:
        """Answer whether the attempts before were the last, and giving up settled it.

        Raises
        ------
        GaveUp
            If they were, and it did not.
        """
        earlier = record.attempts - 1
        if record.before is None:
            return False
        if not self._runtime.timings.consumer_backoff.is_over(record.before, earlier):
            return False
        record.attempts = self.number = earlier
        if self._is_settled(record.before):
            return True
        raise GaveUp(record.before)

    def _is_settled(self, failure: Failure) -> bool:
        """Do what the consumer does when it gives up; should that fail, the next delivery tries it again."""
        if self._declaration.gives_up is None:
            return False
        try:
            event, work = self._read(), self._unit_of_work()
            settled = returned(
                self._declaration.gives_up(event, failure, work), bool, by=f"{self._declaration.name}'s gives_up"
            )
            work.commit(completes=settled)
        except Exception as error:
            telemetry.log_error(LogEvent.NOT_GIVEN_UP, error, **self.facts())
            return False
        telemetry.log(LogEvent.MESSAGE_GIVEN_UP, failure=failure, settled=settled, **self.facts())
        return settled

    def _stop_if_late(self, record: Taken) -> None:
        if not self._in_time:
            record.attempts -= 1
            raise GaveUp(_NEVER_IN_TIME)


_NEVER_IN_TIME = Failure(
    FailureKind.PERMANENT,
    "NeverInTime",
    "there was no time left for it in any of its deliveries: give the consumer a smaller batch_size or more timeout",
)


MESSAGE = "message/"
"""What the key of a message begins with in which no event can be read."""


def key_of(envelope: Envelope | None, message_id: str) -> str:
    """Answer what an effect happens once for: the event, or the message where no event can be read from it."""
    return envelope.id if envelope else f"{MESSAGE}{message_id}"


def record_prefix(consumer_name: str) -> str:
    """Answer what the ids of a consumer's records begin with."""
    return f"consumer/{consumer_name}"


def consumer_handler(make_runtime: Callable[[], Runtime]) -> Callable[[dict[str, Any], Any], Any]:
    """Make the Lambda handler of the one consumer that the environment names."""

    @cache
    def edge() -> ConsumerEdge:
        declaration = load(os.environ[DECLARATION_VARIABLE], Consumer)
        parts = SqsSource(os.environ[PARTS_QUEUE_VARIABLE]) if declaration.access.splits_into else None
        return ConsumerEdge(declaration, make_runtime(), SqsSource(os.environ[QUEUE_VARIABLE]), parts=parts)

    return lambda batch, context: edge().handle(batch, context)
