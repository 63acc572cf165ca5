"""What a consumer's records tell of its dead letters, and what is noted in them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from pynamodb.exceptions import DeleteError, PutError, UpdateError
from pynamodb.expressions.update import Action as UpdateAction

from mailroom.clock import epoch_milliseconds, moment
from mailroom.consumer import MESSAGE, names_of, record_prefix
from mailroom.dead_letters.letter import BECAME, Action, DeadLetter, Deed, Fate, remembered
from mailroom.dead_letters.queue import DeadMessage
from mailroom.failures import Failure, FailureKind, cut
from mailroom.history import read_history
from mailroom.idempotency import COMPLETED, ENDED_SILENTLY, FAILED, IdempotencyRow, record_id
from mailroom.needs import Need
from mailroom.outbox.event import MAX_ID_BYTES, Envelope, moment_of_id
from mailroom.reading import Unreadable, flaw_of, read_keys, read_one, row_of
from mailroom.runtime import Runtime

_AT_WORK = Failure(FailureKind.TRANSIENT, "InProgress", "another attempt is at work")
_MARGIN = timedelta(days=1)
"""More than clocks can differ, of the age by which a record may have been forgotten."""
_CONDITION = "ConditionalCheckFailedException"


Record = IdempotencyRow | Unreadable[IdempotencyRow]


def became_of(record: IdempotencyRow) -> str | None:
    """Return the mended copy that took an event's place, unless something was done to the event after that."""
    deeds = read_history(record.history)
    return deeds[-1].get(BECAME) if deeds else None


class ConsumerRecords:
    """The records of one consumer."""

    NEEDS = Need(
        (
            "dynamodb:BatchGetItem",
            "dynamodb:DeleteItem",
            "dynamodb:GetItem",
            "dynamodb:PutItem",
            "dynamodb:UpdateItem",
        ),
        IdempotencyRow,
    )

    def __init__(self, consumer: str, runtime: Runtime) -> None:
        self._consumer = consumer
        self._runtime = runtime

    def get(self, event_id: str) -> Record | None:
        """Return the record of an event."""
        return read_one(IdempotencyRow, self._id(event_id))

    def of(self, event_ids: Iterable[str]) -> dict[str, Record]:
        """Return the records that there are, by event."""
        ids = {self._id(event_id): event_id for event_id in event_ids}
        return {ids[row_of(each).id]: each for each in read_keys(IdempotencyRow, ids)}

    def doubt(self, event_id: str) -> Fate | None:
        """Return why sending it again may make its effect happen twice; None if nothing says so."""
        return self.doubt_of(self.get(event_id), event_id)

    def doubt_of(self, record: Record | None, event_id: str) -> Fate | None:
        """Return the same by a record that was read already.

        A record outlives every message: an event without one that is younger than records get was never begun.
        """
        if isinstance(record, Unreadable):
            return Fate.UNREADABLE
        if record is not None:
            if record.status == COMPLETED:
                return Fate.SUCCEEDED_BEFORE
            return Fate.REPLACED if became_of(record) else None
        return Fate.RECORD_EXPIRED if self._may_be_forgotten(event_id) else None

    def fate(self, event_id: str) -> Failure | bool | None:
        """Return what became of an event: True is handled, a failure is one, None is not known yet."""
        row = self.get(event_id)
        if isinstance(row, Unreadable):
            return row.failure
        if row is None or row.status == COMPLETED:
            return None if row is None else True
        return Failure.from_json(row.failure) if row.failure and row.failing else None

    def forget(self, event_id: str) -> None:
        """Delete the record that would keep the consumer from running it again: it succeeded, or cannot be read."""
        unreadable = isinstance(self.get(event_id), Unreadable)
        row = IdempotencyRow
        try:
            row(self._id(event_id)).delete(condition=row.id.exists() if unreadable else row.status == COMPLETED)
        except DeleteError as error:
            if error.cause_response_code != _CONDITION:
                raise  # otherwise it is gone already, as after a lost answer to this same call, or at work again

    def remember(self, message: DeadMessage, action: Action, deed: Deed, *, became: str | None = None) -> None:
        """Note the deed, and take the letter off the list unless the consumer has a later message already."""
        found = self.get(message.id) or self.begin(message.id, message.envelope, message_id=message.message_id)
        record = row_of(found)
        row = IdempotencyRow
        failure = Failure.from_json(record.failure) if record.failure else None
        history = remembered(record.history, action, deed, failure, int(record.attempts or 0), became=became)
        noted: list[UpdateAction] = [row.history.set(history)]
        if action is Action.REDRIVE:
            noted.append(row.redriven.set(int(record.redriven or 0) + 1))
        unlisted: list[UpdateAction] = [row.failing.remove(), row.failed_at.remove(), row.first_failed_at.remove()]
        try:
            row(record.id).update([*noted, *unlisted], condition=row.message_id == message.message_id)
        except UpdateError as error:
            if error.cause_response_code != _CONDITION:
                raise
            row(record.id).update(noted, condition=row.id.exists())

    def begin(self, event_id: str, about: Envelope | None, *, message_id: str) -> IdempotencyRow:
        """Return the record of an event, made now if the consumer never began it: then nothing was attempted."""
        names = names_of(about, message_id)
        record = IdempotencyRow(
            self._id(event_id),
            status=FAILED,
            in_progress_until=0,
            expires_at=self._runtime.clock.now() + timedelta(seconds=self._runtime.timings.consumer_record_life),
            attempts=0,
            message_id=message_id,
            parent=cut(about.parent, MAX_ID_BYTES) if about and about.parent else None,
            event_id=event_id,
            type=names["type"],
            subject=names.get("subject"),
        )
        try:
            record.save(condition=IdempotencyRow.id.does_not_exist())
        except PutError as error:
            if error.cause_response_code != _CONDITION:
                raise
            return IdempotencyRow.get(record.id, consistent_read=True)
        return record

    def letter(self, found: Record) -> DeadLetter:
        """Show a record as a letter; of one that cannot be read it is not known whether it is being tried."""
        row = row_of(found)
        attempts = int(row.attempts or 0)
        failure, dead = flaw_of(found), True
        if failure is None:
            failure, silent_for = self._failure_of(row)
            over = self._runtime.timings.consumer_backoff.is_over(failure, attempts)
            dead = over or silent_for > self._longest(failure)
        return DeadLetter(
            id=row.event_id or row.id,
            source=self._consumer,
            state="dead" if dead else "retrying",
            type=row.type or "?",
            subject=row.subject,
            failure=failure,
            attempts=attempts,
            died_at=row.failed_at or "",
            redriven=int(row.redriven or 0),
            expires_at=self.leaves_at(moment(sent)) if (sent := row.sent_at or row.first_failed_at) else None,
            history=read_history(row.history),
        )

    def _failure_of(self, row: IdempotencyRow) -> tuple[Failure, float]:
        silent_for = epoch_milliseconds(self._runtime.clock.now()) / 1000 - int(row.in_progress_until) / 1000
        if row.failure:
            return Failure.from_json(row.failure), silent_for
        return _AT_WORK if silent_for < 0 else ENDED_SILENTLY, silent_for

    def leaves_at(self, sent_at: datetime) -> datetime:
        """Return when SQS deletes a dead letter for good; its days count from when it was sent first.

        https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/setting-up-dead-letter-queue-retention.html
        """
        return sent_at + timedelta(seconds=self._runtime.timings.dead_letter_retention)

    def _may_be_forgotten(self, event_id: str) -> bool:
        if event_id.startswith(MESSAGE):
            return False  # the key of a message, none of which is kept so long
        try:
            written_at = moment_of_id(event_id)
        except ValueError:
            return True
        life = timedelta(seconds=self._runtime.timings.consumer_record_life)
        return self._runtime.clock.now() - written_at > life - _MARGIN

    def _longest(self, failure: Failure) -> float:
        """Return the seconds after which SQS would have delivered a message again, were it in the consumer's queue.

        Not every message dies of a last failure: SQS also moves one whose deliveries were used up otherwise. One that
        waits for what is not there may lie in a queue that nobody reads meanwhile.
        """
        timings = self._runtime.timings
        if failure.kind is FailureKind.UNAVAILABLE:
            return timings.source_retention
        return timings.longest_wait(timings.consumer_timeout)

    def _id(self, event_id: str) -> str:
        return record_id(record_prefix(self._consumer), event_id)
