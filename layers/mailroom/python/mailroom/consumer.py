"""Consumers: `@consumer` declares one, and the edge that runs it on batches of SQS messages."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response

from mailroom import telemetry
from mailroom.declarations import DECLARATION_VARIABLE, Declaration, DeclarationError, declaring, load
from mailroom.failures import Failure, FailureKind, Permanent, failure_of
from mailroom.idempotency import Idempotency, StillRunning, Taken, taken
from mailroom.needs import Access, Port
from mailroom.outbox.event import Envelope, Event
from mailroom.retry import Backoff
from mailroom.row import Row
from mailroom.runtime import Runtime
from mailroom.sources.source import MAX_RECEIVES, Source, longest_hiding, receives_of
from mailroom.sources.sqs import SqsSource
from mailroom.telemetry import LogEvent, Metric
from mailroom.unit_of_work import UnitOfWork

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
    from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer(Declaration):
    """Work that an event causes, done once per event.

    Parameters
    ----------
    on
        The event that it waits for.
    batch_size
        How many messages one invocation takes at most (1 to 10,000; more than 10 want a batching window).
    max_concurrency
        How many invocations run side by side at most (2 to 1,000).
        https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html
    """

    on: type[Event]
    batch_size: int = 10
    max_concurrency: int = 10

    def __post_init__(self) -> None:
        for field, low, high in (("batch_size", 1, 10_000), ("max_concurrency", 2, 1_000)):
            if not low <= getattr(self, field) <= high:
                raise DeclarationError(f"{self.name}: {field} is {getattr(self, field)}, not within {low} and {high}")
        if not hasattr(self.on, "type"):
            raise DeclarationError(f"{self.name} waits for {self.on.__name__}, an event class without a type")


def consumer(
    *,
    on: type[Event],
    reads: Sequence[type[Row]] = (),
    writes: Sequence[type[Row]] = (),
    scans: Sequence[type[Row]] = (),
    publishes: Sequence[type[Event]] = (),
    uses: Sequence[type[Port]] = (),
    **options: Any,
) -> Callable[[Callable[..., None]], Consumer]:
    """Declare a consumer: `def name(event: TheEvent, work: UnitOfWork) -> None`.

    Parameters
    ----------
    reads, writes, scans, publishes, uses
        What it touches: see `Access`. Nothing else is granted.
    options
        `timeout`, `memory`, `batch_size`, `max_concurrency`: see `Consumer`.
    """

    access = Access.of(reads=reads, writes=writes, scans=scans, publishes=publishes, uses=uses)
    return declaring(Consumer, access, on=on, **options)


QUEUE_VARIABLE = "MAILROOM_QUEUE_URL"
"""Names the queue that a deployed consumer reads."""


class GaveUp(Exception):
    """A message whose attempts are used up: its handler is not called again, and SQS moves it on."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class HandedBack(Exception):
    """A message that there was no time left for: nothing was tried."""


class ConsumerEdge:
    """Runs one consumer on batches of SQS messages.

    Parameters
    ----------
    source
        Where the batches come from.
    """

    def __init__(self, declaration: Consumer, runtime: Runtime, source: Source) -> None:
        self._declaration = declaration
        self._runtime = runtime
        self._source = source
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

        def one(record: SQSRecord) -> None:
            remaining_ms = context.get_remaining_time_in_millis()
            self._handle(record, remaining_ms, in_time=self._runtime.clock.monotonic() < deadline)

        # Those that were handed back most often go first: SQS moves a message on after so many deliveries.
        records = sorted(batch["Records"], key=receives_of, reverse=True)
        with telemetry.flushed_metrics():
            return process_partial_response({**batch, "Records": records}, one, processor, context)

    def _handle(self, record: SQSRecord, remaining_ms: int, *, in_time: bool) -> None:
        attempt = _Attempt(self._declaration, self._runtime, record, in_time=in_time)
        try:
            attempt.hand_back_if_late()
            outcome = self._idempotency.run(
                key=attempt.key,
                act=attempt.run,
                remaining_ms=remaining_ms,
                message_id=record.message_id,
                about=attempt.about(),
            )
        except Exception as error:
            self._postpone(record, self._wait_after(error, attempt))
            raise
        event = LogEvent.MESSAGE_REPEATED if outcome.replayed else LogEvent.MESSAGE_HANDLED
        telemetry.log(event, **attempt.facts())

    def _wait_after(self, error: Exception, attempt: _Attempt) -> float:
        """Answer the seconds after which a message that was not handled is delivered again."""
        if isinstance(error, StillRunning):
            return error.retry_after
        if isinstance(error, GaveUp | HandedBack):
            return 0
        failure = failure_of(error)
        telemetry.log(LogEvent.MESSAGE_FAILED, failure=failure, **attempt.facts())
        telemetry.count(Metric.MESSAGES_FAILED)
        backoff = self._runtime.timings.consumer_backoff
        if is_final(failure, attempt.number, backoff):
            return 0
        return max(backoff.delay(attempt.number - 1, self._runtime.random), failure.retry_after or 0)

    def _postpone(self, record: SQSRecord, seconds: float) -> None:
        seconds = min(seconds, longest_hiding(record.raw_event, self._runtime.clock.now()))
        failed = self._source.hide({record.receipt_handle: seconds})
        for failure in failed.values():
            # It comes back all the same, when the queue's own visibility time-out is over.
            telemetry.log(LogEvent.MESSAGE_NOT_POSTPONED, failure=failure, message_id=record.message_id)


class _Attempt:
    """One delivery of one message."""

    def __init__(self, declaration: Consumer, runtime: Runtime, record: SQSRecord, *, in_time: bool) -> None:
        self._declaration = declaration
        self._runtime = runtime
        self._in_time = in_time
        self._receives = receives_of(record.raw_event)
        self._message_id = record.message_id
        self.number = 1
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

    def hand_back_if_late(self) -> None:
        """Go no further when the invocation's time is up and the message will be delivered again.

        Raises
        ------
        HandedBack
            Then.
        """
        if not self._in_time and self._receives < MAX_RECEIVES:
            raise HandedBack("the invocation's time is up")

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
        record = taken()
        if record is not None:
            self.number = record.attempts
            self._stop_if_final(record)
            self._stop_if_late(record)
        if self._envelope is None:
            raise self._unreadable or Permanent("the message is no event")
        with telemetry.traced(self._envelope.traceparent, self._runtime.random):
            event = self._declaration.on.model_validate_json(self._envelope.payload)
            work = UnitOfWork(self._runtime, self._declaration.access, cause=self._envelope)
            self._declaration(event, work)
            work.commit()

    def _stop_if_final(self, record: Taken) -> None:
        earlier = record.attempts - 1
        if record.before is None or record.starts_afresh:
            return
        if is_final(record.before, earlier, self._runtime.timings.consumer_backoff):
            record.attempts = earlier
            raise GaveUp(record.before)

    def _stop_if_late(self, record: Taken) -> None:
        if not self._in_time:
            record.attempts -= 1
            raise GaveUp(_NEVER_IN_TIME)


_NEVER_IN_TIME = Failure(
    FailureKind.PERMANENT,
    "NeverInTime",
    "there was no time left for it in any of its deliveries: give the consumer a smaller batch_size or more timeout",
)


def key_of(envelope: Envelope | None, message_id: str) -> str:
    """Answer what an effect happens once for: the event, or the message where no event can be read from it."""
    return envelope.id if envelope else f"message/{message_id}"


def record_prefix(consumer_name: str) -> str:
    """Answer what the ids of a consumer's records begin with."""
    return f"consumer/{consumer_name}"


def is_final(failure: Failure, attempts: int, backoff: Backoff) -> bool:
    """Answer whether a message that failed so for the so-maniest time is not tried again."""
    return failure.kind is FailureKind.PERMANENT or attempts >= backoff.attempts


def consumer_handler(make_runtime: Callable[[], Runtime]) -> Callable[[dict[str, Any], Any], Any]:
    """Make the Lambda handler of the one consumer that the environment names."""

    @cache
    def edge() -> ConsumerEdge:
        declaration = load(os.environ[DECLARATION_VARIABLE], Consumer)
        return ConsumerEdge(declaration, make_runtime(), SqsSource(os.environ[QUEUE_VARIABLE]))

    return lambda batch, context: edge().handle(batch, context)
