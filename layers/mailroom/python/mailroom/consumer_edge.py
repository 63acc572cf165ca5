"""Running a consumer on batches of SQS messages."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response

from mailroom import telemetry
from mailroom.breaker import Breaker
from mailroom.consumer import PARTS_QUEUE_VARIABLE, QUEUE_VARIABLE, Consumer, record_prefix
from mailroom.declarations import DECLARATION_VARIABLE, load
from mailroom.delivery import Delivery, GaveUp, HandedBack
from mailroom.failures import FailureKind, failure_of
from mailroom.idempotency import Idempotency, StillRunning
from mailroom.patience import Renewal
from mailroom.rate import Limit, Turns
from mailroom.runtime import Runtime
from mailroom.sources.source import Queue, Sink, longest_hiding, receives_of
from mailroom.sources.sqs import SqsSource
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
            answer = process_partial_response({**batch, "Records": records}, one, processor, context)
            self.breaker.end_batch()
        return answer

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
        if isinstance(error, HandedBack):
            return error.wait
        if isinstance(error, GaveUp):
            return 0
        failure = failure_of(error)
        telemetry.log(LogEvent.MESSAGE_FAILED, failure=failure, **attempt.facts())
        telemetry.count(Metric.MESSAGES_FAILED)
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
