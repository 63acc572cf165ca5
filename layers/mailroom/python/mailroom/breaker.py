"""The breaker of a consumer: while what it depends on is not there, its queue is left alone and probed.

A consumer notes here that a whole batch failed so; the job `breakers` decides each minute what is due, and switches
the consumer's event source mapping. The row says what is to be, and the job makes it so, again each minute: a crash
between the two, or an older run that switches late, leaves nobody paused for ever and nobody running who should not.
An operator's own pause is in the row too, and no probe ends it; resuming by an operator is a probe that is due at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import reduce
from operator import and_
from random import Random
from typing import Any

from pynamodb.attributes import BooleanAttribute, NumberAttribute, UnicodeAttribute
from pynamodb.exceptions import UpdateError

from mailroom.clock import moment, timestamp
from mailroom.failures import Failure
from mailroom.needs import Need
from mailroom.row import Row
from mailroom.runtime import Runtime
from mailroom.telemetry import LogEvent, log_error
from mailroom.timings import Timings

_NOTED_EVERY = 20
"""Seconds for which a process does not say again that it fails."""
_LONG_AGO = timestamp(datetime(1970, 1, 1, tzinfo=UTC))


class BreakerRow(Row):
    """What is known of one consumer's dependency, and what is to be done about its queue. Moments are written."""

    class Meta:
        short_name = "breakers"

    consumer = UnicodeAttribute(hash_key=True)
    opened_at = UnicodeAttribute(null=True)
    """When it was found not there; absent while it is there."""
    failed_at = UnicodeAttribute(null=True)
    """When it was found so last, within a while."""
    failure = UnicodeAttribute(null=True)
    pauses = NumberAttribute(null=True)
    """How often the queue was paused since it opened."""
    probe_at = UnicodeAttribute(null=True)
    """Until when the queue is paused; absent once it is read."""
    resumed_at = UnicodeAttribute(null=True)
    """When it was last read again, as a probe."""
    held = BooleanAttribute(null=True)
    """An operator paused it: nobody else resumes it."""


NEEDS = Need(("dynamodb:UpdateItem",), BreakerRow)
"""What noting a failure takes."""
NEEDS_TO_JUDGE = Need(("dynamodb:Scan", "dynamodb:UpdateItem"), BreakerRow)
"""What deciding takes."""
NEEDS_TO_SHOW = Need(("dynamodb:BatchGetItem",), BreakerRow)
"""What telling of it takes."""


class Breaker:
    """Notes, for one consumer in one process, that what it depends on is not there."""

    def __init__(self, runtime: Runtime, *, consumer: str) -> None:
        self._runtime = runtime
        self._consumer = consumer
        self._failures = 0
        self._next_note = self._next_receive = 0.0
        self._handled = False
        self._missing: Failure | None = None

    def handled(self) -> None:
        """Hear that a message went well: what the consumer depends on is there, and busy at most."""
        self._handled = True

    def missing(self, failure: Failure) -> None:
        """Hear that what the consumer depends on was not there for a message."""
        self._missing = failure

    def end_batch(self) -> None:
        """Note that a batch found it not there, if nothing of the batch went well."""
        handled, missing = self._handled, self._missing
        self._handled, self._missing = False, None
        if handled:
            self._failures = 0
        elif missing is not None:
            now = self._runtime.clock.monotonic()
            backoff, random = self._runtime.timings.pause_backoff, self._runtime.random
            self._next_receive = now + backoff.delay(self._failures, random)
            self._failures += 1
            self._note(missing, now)

    def pause(self) -> float:
        """Return the seconds for which a worker should receive nothing more, until its own next probe."""
        return self._next_receive - self._runtime.clock.monotonic() if self._failures else 0

    def _note(self, failure: Failure, now: float) -> None:
        if now < self._next_note:
            return
        self._next_note = now + _NOTED_EVERY
        row, written = BreakerRow, timestamp(self._runtime.clock.now())
        opened, told = row.opened_at.set(row.opened_at | written), row.failure.set(failure.to_json())
        try:
            row(self._consumer).update([opened, row.failed_at.set(written), told])
        except Exception as error:
            log_error(LogEvent.BREAKER_NOT_WRITTEN, error, consumer=self._consumer)


class Step(StrEnum):
    """What is due at a breaker."""

    NOTHING = "nothing"
    PAUSE = "pause"
    STAY_PAUSED = "stay paused"
    PROBE = "probe"
    CLOSE = "close"


def step_of(row: BreakerRow, now: datetime, timings: Timings) -> Step:
    """Return what is due at a breaker.

    It opens for what has failed for a minute, closes when no probe has failed for as long as one takes, and pauses
    nothing any more once it has been open for as long as a message waits: then each is to be tried, before it is too
    old for its queue, and dies with the reason or goes on as a copy.
    """
    if row.held:
        return Step.STAY_PAUSED
    if row.probe_at is not None:
        return Step.PROBE if moment(row.probe_at) <= now else Step.STAY_PAUSED
    if row.opened_at is None or row.failed_at is None:
        return Step.NOTHING
    opened_at, failed_at = moment(row.opened_at), moment(row.failed_at)
    since = moment(row.resumed_at) if row.resumed_at else opened_at + timedelta(seconds=timings.breaker_opens_after)
    if now - max(failed_at, since) >= timedelta(seconds=timings.breaker_probe):
        return Step.CLOSE
    waited_out = now - opened_at >= timedelta(seconds=timings.patience)
    return Step.PAUSE if failed_at >= since and not waited_out else Step.NOTHING


def paused(row: BreakerRow, now: datetime, timings: Timings, random: Random) -> bool:
    """Write that a consumer's queue is paused; return False if its row was changed meanwhile."""
    pauses = int(row.pauses or 0)
    until = now + timedelta(seconds=timings.breaker_backoff.delay(pauses, random))
    actions = [BreakerRow.pauses.set(pauses + 1), BreakerRow.probe_at.set(timestamp(until))]
    if not _changed(row, actions):
        return False
    row.pauses, row.probe_at = pauses + 1, timestamp(until)
    return True


def resumed(row: BreakerRow, now: datetime) -> bool:
    """Write that a consumer's queue is read again, as a probe; return False if its row was changed meanwhile."""
    return _changed(row, [BreakerRow.probe_at.remove(), BreakerRow.resumed_at.set(timestamp(now))])


def closed(row: BreakerRow) -> bool:
    """Write that what a consumer depends on is there; return False if it failed, or was changed, meanwhile."""
    kept = ("opened_at", "failed_at", "failure", "pauses", "probe_at", "resumed_at")
    return _changed(row, [getattr(BreakerRow, name).remove() for name in kept], if_same=["failed_at"])


def hold(consumer: str) -> None:
    """Write that an operator pauses a consumer."""
    BreakerRow(consumer).update([BreakerRow.held.set(True)])


def release(consumer: str) -> None:
    """Write that an operator resumes a consumer, whatever paused it; the job `breakers` sees to it as well."""
    BreakerRow(consumer).update([BreakerRow.held.remove(), BreakerRow.probe_at.set(_LONG_AGO)])


def _changed(row: BreakerRow, actions: list[Any], *, if_same: Iterable[str] = ()) -> bool:
    """Change a row, unless an operator or another run did since it was read, or one of these is not the same."""
    as_read = reduce(and_, (_same(row, name) for name in ("held", "opened_at", "probe_at", *if_same)))
    try:
        BreakerRow(row.consumer).update(actions, condition=as_read)
    except UpdateError as error:
        if error.cause_response_code != "ConditionalCheckFailedException":
            raise
        return False
    return True


def _same(row: BreakerRow, name: str) -> Any:
    attribute, value = getattr(BreakerRow, name), getattr(row, name)
    return attribute.does_not_exist() if value is None else attribute == value
