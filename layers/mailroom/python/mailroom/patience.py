"""Waiting for what a consumer depends on: no attempt is used, and the queue's own limits don't end it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from mailroom import telemetry
from mailroom.clock import epoch_milliseconds, moment
from mailroom.consumer import key_in, record_prefix
from mailroom.failures import Failure, FailureKind, failure_of
from mailroom.idempotency import ENDED_SILENTLY, FAILED, INPROGRESS, NONE, IdempotencyRow, record_id
from mailroom.runtime import Runtime
from mailroom.sources.source import MAX_RECEIVES, TENANT, Message, Queue, longest_hiding, receives_of
from mailroom.telemetry import LogEvent
from mailroom.timings import HOUR, MAX_DELAY

RENEWED_FROM = MAX_RECEIVES - 2
"""The delivery from which on a message that waits is renewed: SQS moves it on after the last, and a try may fail."""


def last_ended(row: IdempotencyRow, now: datetime) -> tuple[Failure, int] | None:
    """Return how the last attempt ended that has, and its number; None if none has, or it succeeded."""
    attempts = int(row.attempts or 0)
    if row.status == FAILED:
        return (Failure.from_json(row.failure), attempts) if row.failure else None
    if row.status != INPROGRESS:
        return None
    if row.in_progress_until < epoch_milliseconds(now):
        return ENDED_SILENTLY, attempts
    before = row.before_failure
    known = Failure.from_json(before) if before and before != NONE else ENDED_SILENTLY
    return (known, attempts - 1) if attempts > 1 else None


class Judged(Exception):
    """An error of a consumer's, as it counts for its message."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def as_it_counts(failure: Failure, *, failing_since: str | None, patience: int, now: datetime) -> Failure:
    """Return what a failure means for its message: what it has waited for long enough is final.

    Parameters
    ----------
    failing_since
        When the message failed first, as its record has it; None if it did not before.
    patience
        Seconds for which it waits in all. At 0 it does not: what is unavailable costs an attempt, as others do.
    """
    if failure.kind is not FailureKind.UNAVAILABLE:
        return failure
    if patience == 0:
        return replace(failure, kind=FailureKind.TRANSIENT)
    waited = (now - moment(failing_since)).total_seconds() if failing_since else 0
    if waited < patience:
        return failure
    told = f"not there for {waited / HOUR:.1f} h, and no message waits for longer: {failure.message}"
    return replace(failure, kind=FailureKind.PERMANENT, message=told)


class Renewal:
    """Puts a fresh copy of a message that waits into its queue, where the message itself cannot wait any longer.

    SQS moves a message on after so many deliveries, hides it for twelve hours in all, and deletes it when it is old;
    all three are counted from anew for a copy. It is put before the message is deleted, so that a crash in between
    leaves two: the consumer's record is by the event's id and lets one of them work.
    """

    def __init__(self, queue: Queue, runtime: Runtime, *, consumer: str, timeout: int) -> None:
        self._queue = queue
        self._runtime = runtime
        self._consumer = consumer
        self._notice = 2 * runtime.timings.longest_wait(timeout)
        """How long before SQS would delete a message for its age it is renewed."""

    def renew(self, record: Mapping[str, Any], wait: float) -> bool:
        """Put a copy of a message into the queue if that is due; return whether the message can be deleted.

        Parameters
        ----------
        record
            The message, as it was delivered.
        wait
            Seconds after which it is to be delivered again: of a copy `MAX_DELAY` at most.
        """
        if not self._is_due(record, wait) or self._is_dead(record):
            return False
        tenant = record["attributes"].get(TENANT)
        copy = Message(record["body"], tenant=tenant, delay=min(int(wait), MAX_DELAY))
        failure = self._put(copy)
        event = LogEvent.MESSAGE_RENEWED if failure is None else LogEvent.MESSAGE_NOT_RENEWED
        delivery = receives_of(record)
        telemetry.log(
            event, failure=failure, consumer=self._consumer, message_id=record["messageId"], delivery=delivery
        )
        return failure is None

    def _is_due(self, record: Mapping[str, Any], wait: float) -> bool:
        now = self._runtime.clock.now()
        if receives_of(record) >= RENEWED_FROM or wait > longest_hiding(record, now):
            return True
        age = (epoch_milliseconds(now) - int(record["attributes"].get("SentTimestamp", epoch_milliseconds(now)))) / 1000
        return age + self._notice > self._runtime.timings.source_retention

    def _is_dead(self, record: Mapping[str, Any]) -> bool:
        """Return whether a message's attempts are used up: its copy, under a new message id, would start afresh.

        A delivery that was handed back, or could not take the record, does not know. What cannot be read counts as no.
        """
        key = record_id(record_prefix(self._consumer), key_in(record))
        try:
            row = IdempotencyRow.get(key, consistent_read=True)
        except Exception:  # there is none, or none to be had: then a copy is better than a message that nobody tried
            return False
        if row.message_id != record["messageId"]:
            return False
        ended = last_ended(row, self._runtime.clock.now())
        return ended is not None and self._runtime.timings.consumer_backoff.is_over(*ended)

    def _put(self, copy: Message) -> Failure | None:
        try:
            failed = self._queue.put([copy])
        except Exception as error:
            return failure_of(error)
        return failed[0] if failed else None
