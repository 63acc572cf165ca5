"""Running a consumer on batches of SQS messages."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response

from mailroom import telemetry
from mailroom.breaker import Breaker
from mailroom.consumer import PARTS_QUEUE_VARIABLE, QUEUE_VARIABLE, Consumer, record_prefix
from mailroom.declarations import DECLARATION_VARIABLE, load
from mailroom.delivery import Delivery, EndedSilently, GaveUp, HandedBack
from mailroom.failures import FailureKind, failure_of
from mailroom.idempotency import Idempotency, StillRunning
from mailroom.patience import Renewal
from mailroom.rate import Limit, Turns
from mailroom.runtime import Runtime
from mailroom.sources.source import Queue, Sink, longest_hiding
from mailroom.sources.sqs import SqsSource
from mailroom.suspects import in_order
from mailroom.telemetry import LogEvent, Metric

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
    from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord


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
        self.breaker = Breaker(runtime, consumer=declaration.name)
        """Whether what the consumer depends on is there, as this process knows."""
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
        ValueError
            If it is no batch of SQS messages.
        """
        if not _is_batch(batch):
            raise ValueError(f"{self._declaration.name} was called with something else than a batch of SQS messages")
        if not batch["Records"]:
            return {"batchItemFailures": []}
        with telemetry.flushed_metrics():
            return self._handle_batch(batch, context)

    def _handle_batch(self, batch: dict[str, Any], context: Any) -> PartialItemFailureResponse:
        processor = BatchProcessor(EventType.SQS, raise_on_entire_batch_failure=False)
        deadline = self._runtime.deadline(context)
        clean, suspects = in_order(batch["Records"], self._declaration.name, self._runtime)
        # One suspect runs, alone and last: if it kills the function, it takes no other message with it.
        last, others = suspects[:1], {each["messageId"] for each in suspects[1:]}
        turns = Turns(self._limit, [*clean, *last], self._runtime.clock, deadline=deadline)
        handled: list[str] = []

        def one(record: SQSRecord) -> None:
            remaining_ms = context.get_remaining_time_in_millis()
            if last and record.message_id == last[0]["messageId"]:
                self._delete(handled)
            wait = remaining_ms / 1000 + 1 if record.message_id in others else turns.wait_for(record.message_id)
            self._handle(record, context.get_remaining_time_in_millis(), deadline, wait)
            handled.append(record.receipt_handle)

        records = [*clean, *suspects[1:], *last]
        answer = process_partial_response({**batch, "Records": records}, one, processor, context)
        self.breaker.end_batch()
        return answer

    def _delete(self, receipts: Sequence[str]) -> None:
        """Delete what was handled before a suspect runs; what is not deleted comes again and has no second effect."""
        for failure in self._source.delete(receipts).values():
            telemetry.log(LogEvent.MESSAGE_NOT_DELETED, failure=failure, consumer=self._declaration.name)

    def _handle(self, record: SQSRecord, remaining_ms: int, deadline: float, later: float) -> None:
        attempt = Delivery(self._declaration, self._runtime, record, deadline=deadline, parts=self._parts)
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
        if not outcome.replayed:
            self.breaker.handled()

    def _wait_after(self, error: Exception, attempt: Delivery) -> float:
        """Answer the seconds after which a message that was not handled is delivered again."""
        if isinstance(error, StillRunning):
            return error.retry_after
        if isinstance(error, HandedBack) and not isinstance(error, EndedSilently):
            return error.wait
        if isinstance(error, GaveUp):
            return 0
        failure = failure_of(error)
        telemetry.log(LogEvent.MESSAGE_FAILED, failure=failure, **attempt.facts())
        telemetry.count(Metric.MESSAGES_FAILED)
        if isinstance(error, EndedSilently):
            return error.wait
        backoff = self._runtime.timings.consumer_backoff
        if failure.kind is FailureKind.UNAVAILABLE:
            self.breaker.missing(failure)
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


def _is_batch(batch: Any) -> bool:
    """Return whether an invocation has the shape of a batch; an empty one has."""
    records = batch.get("Records") if isinstance(batch, dict) else None
    return isinstance(records, list) and all(isinstance(each, dict) and "receiptHandle" in each for each in records)


def _waits(error: Exception) -> bool:
    """Return whether a message was not tried, or not at fault: it may come again any number of times."""
    if isinstance(error, HandedBack):
        return error.wait > 0
    return failure_of(error).kind is FailureKind.UNAVAILABLE


def consumer_handler(make_runtime: Callable[[], Runtime]) -> Callable[[dict[str, Any], Any], Any]:
    """Make the Lambda handler of the one consumer that the environment names."""

    @cache
    def edge() -> ConsumerEdge:
        declaration = load(os.environ[DECLARATION_VARIABLE], Consumer)
        parts = SqsSource(os.environ[PARTS_QUEUE_VARIABLE]) if declaration.access.splits_into else None
        return ConsumerEdge(declaration, make_runtime(), SqsSource(os.environ[QUEUE_VARIABLE]), parts=parts)

    return lambda batch, context: edge().handle(batch, context)
