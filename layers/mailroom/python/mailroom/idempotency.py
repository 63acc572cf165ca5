"""Idempotency records: one model and one persistence layer under Powertools' decorator.

As shipped, Powertools completes a record after the work and unconditionally: a crash in between runs the work
twice. Here taking a record remembers it, the unit of work completes it in the business transaction under the
condition that it is still ours, and the later update has nothing left to do.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
from aws_lambda_powertools.utilities.idempotency.exceptions import (
    IdempotencyAlreadyInProgressError,
    IdempotencyItemAlreadyExistsError,
    IdempotencyItemNotFoundError,
    IdempotencyPersistenceLayerError,
    IdempotencyValidationError,
)
from aws_lambda_powertools.utilities.idempotency.persistence.base import BasePersistenceLayer
from aws_lambda_powertools.utilities.idempotency.persistence.datarecord import DataRecord
from botocore.exceptions import ClientError
from pynamodb.attributes import NumberAttribute, UnicodeAttribute
from pynamodb.expressions.update import Action
from pynamodb.indexes import AllProjection, GlobalSecondaryIndex

from mailroom import clients
from mailroom.attributes import TTLAttribute
from mailroom.checked_attributes import CountAttribute, FailureAttribute, MomentAttribute
from mailroom.clock import epoch_milliseconds, epoch_seconds, timestamp
from mailroom.failures import Failure, FailureKind, Unavailable, failure_of
from mailroom.history import HistoryAttribute
from mailroom.needs import Need
from mailroom.retry import retry
from mailroom.row import Row
from mailroom.runtime import Runtime
from mailroom.telemetry import LogEvent, log_error
from mailroom.transaction import Operation, OperationKind

INPROGRESS, COMPLETED, FAILED = "INPROGRESS", "COMPLETED", "FAILED"
NONE = "-"
"""What an attribute holds that would otherwise be missing."""
ENDED_SILENTLY = Failure(FailureKind.TRANSIENT, "TimedOut", "the attempt timed out or was killed")
"""What a record in progress means once its time is over."""


class FailingIndex(GlobalSecondaryIndex["IdempotencyRow"]):  # type: ignore[no-untyped-call]
    """The records of what fails, by consumer, oldest first: sparse, since only those have its keys."""

    class Meta:
        index_name = "failing"
        projection = AllProjection()

    failing = UnicodeAttribute(hash_key=True)
    failed_at = UnicodeAttribute(range_key=True)


class IdempotencyRow(Row):
    """What is known of one key: who works on it until when, or what came of it."""

    class Meta:
        short_name = "idempotency"

    id = UnicodeAttribute(hash_key=True)
    status = UnicodeAttribute()
    in_progress_until = NumberAttribute()
    """Milliseconds since 1970."""
    taker = UnicodeAttribute(null=True)
    """A random name of the attempt that took it last: by it an attempt knows its own writes."""
    before_status = UnicodeAttribute(null=True)
    before_failure = UnicodeAttribute(null=True)
    before_message_id = UnicodeAttribute(null=True)
    before_until = NumberAttribute(null=True)
    """What was known when it was taken last, or `-`: for a take whose answer was lost."""
    expires_at = TTLAttribute()
    fingerprint = UnicodeAttribute(null=True)
    response = UnicodeAttribute(null=True)
    attempts = CountAttribute(null=True)
    failure = FailureAttribute(null=True)
    message_id = UnicodeAttribute(null=True)
    failing = UnicodeAttribute(null=True)
    """The consumer that fails at it; only while it does."""
    failed_at = MomentAttribute(null=True)
    first_failed_at = MomentAttribute(null=True)
    sent_at = MomentAttribute(null=True)
    """When the message was sent that failed last: SQS counts its days from then on."""
    waits = CountAttribute(null=True)
    """How often in a row what the work depends on was not there; none of these is an attempt."""
    event_id = UnicodeAttribute(null=True)
    type = UnicodeAttribute(null=True)
    subject = UnicodeAttribute(null=True)
    redriven = CountAttribute(null=True)
    parent = UnicodeAttribute(null=True)
    """The event that this one is the mended copy of."""
    history = HistoryAttribute(null=True)
    """What operators did to it; JSON."""
    index = FailingIndex()


NEEDS = Need(("dynamodb:GetItem", "dynamodb:UpdateItem"), IdempotencyRow)
"""What taking, keeping and completing records takes, and looking after a commit in doubt."""
NEEDS_OF_BATCHES = Need(("dynamodb:BatchGetItem",), IdempotencyRow)
"""What looking for suspects in a batch takes besides."""
NEEDS_TO_FORGET = Need(("dynamodb:DeleteItem",), IdempotencyRow)
"""What removing the record of a failed attempt takes besides, where none is kept."""


class KeyReused(Exception):
    """The key belongs to another request."""


class StillRunning(Exception):
    """The first attempt is still at work.

    Parameters
    ----------
    retry_after
        Seconds until its time is over.
    """

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Superseded(Exception):
    """This attempt outlived its window and another took the work over; it wrote nothing."""


@dataclass(slots=True)
class Taken:
    """A record that this code works under.

    Parameters
    ----------
    taker
        The random name of this attempt.
    fingerprint
        The hash of what its request asks for.
    attempts
        How often the work was begun, this time included.
    before
        The failure of this delivery's attempt before, if there was one.
    ended_at
        When the time of the attempt before was over, in milliseconds since 1970, if the function died in it.
    noticed
        Whether that was found in a delivery before.
    starts_afresh
        The attempts before were another delivery's, of a message that was redriven since.
    failing_since
        When it failed first; None if it did not.
    waits
        How often in a row, before this time, what the work depends on was not there.
    """

    id: str
    taker: str
    fingerprint: str
    attempts: int = 1
    before: Failure | None = None
    ended_at: int | None = None
    noticed: bool = False
    starts_afresh: bool = False
    failing_since: str | None = None
    waits: int = 0
    completed: bool = False

    def completion(self, response: Any) -> Operation:
        """Answer the operation that completes the record with the business transaction."""
        row = IdempotencyRow
        actions = [
            row.status.set(COMPLETED),
            row.response.set(json.dumps(response)),
            row.failure.remove(),
            row.failing.remove(),
            row.failed_at.remove(),
            row.first_failed_at.remove(),
            row.waits.remove(),
        ]
        refused = Superseded(f"{self.id} was taken over by another attempt; this one wrote nothing")
        return Operation(OperationKind.UPDATE, row(self.id), refused, self.is_ours(), tuple(actions), decides=True)

    def note(self, *, waits: bool) -> None:
        """Note how this attempt failed: one that found what it depends on not there is a wait, and does not count."""
        self.attempts -= waits
        self.waits = self.waits + 1 if waits else 0

    def is_ours(self) -> Any:
        """Answer the condition that nobody else has taken or completed the record."""
        row = IdempotencyRow
        return (row.status == INPROGRESS) & (row.taker == self.taker)

    def was_completed(self) -> bool:
        """Read whether a commit in doubt did complete the record; what cannot be read stays in doubt, and is logged."""
        row = self._read()
        return row is not None and row.status == COMPLETED and row.taker == self.taker

    def completed_by_another(self) -> IdempotencyRow | None:
        """Read the record that another attempt at the same request has completed; None if none has yet."""
        row = self._read()
        return row if row and row.status == COMPLETED and row.fingerprint == self.fingerprint else None

    def _read(self) -> IdempotencyRow | None:
        try:
            return IdempotencyRow.get(self.id, consistent_read=True)
        except Exception as error:
            log_error(LogEvent.RECORD_UNREAD, error, record=self.id)
            return None


_taken: ContextVar[Taken | None] = ContextVar("taken", default=None)
_asked: ContextVar[_Asked] = ContextVar("asked")


def taken() -> Taken | None:
    """Answer the record that this code works under, if it does."""
    return _taken.get()


@dataclass(slots=True)
class _Asked:
    remaining_ms: int
    message_id: str | None
    about: Mapping[str, str]
    busy_for: float = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the work answered, and whether it was answered before."""

    value: Any
    replayed: bool


def record_id(prefix: str, key: str) -> str:
    """Answer the id of a key's record: Powertools' own, the prefix and a hash of the key's JSON."""
    return f"{prefix}#{hashlib.sha256(json.dumps(key).encode()).hexdigest()}"


class Idempotency:
    """Runs work once per key.

    Make one at start for each route or consumer: Powertools' layers are not to be reconfigured by threads.

    Parameters
    ----------
    prefix
        Keeps the keys of this work apart from others'; part of the record's id.
    life
        Seconds that a record is kept.
    failing_as
        Keep the record of a failed attempt, open for the next one and listed as failing under this name,
        instead of removing it.
    """

    def __init__(self, runtime: Runtime, *, prefix: str, life: int, failing_as: str | None = None) -> None:
        layer = _PersistenceLayer(runtime, life, failing_as)
        config = IdempotencyConfig(
            event_key_jmespath="key",
            payload_validation_jmespath="fingerprint",
            raise_on_no_idempotency_key=True,
            expires_after_seconds=life,
            hash_function="sha256",
            lambda_context=_Remaining(),  # type: ignore[arg-type]
            response_hook=lambda response, _: Outcome(response, replayed=True),
        )

        def run(*, request: dict[str, str], act: Callable[[], Any]) -> Any:  # noqa: ARG001 - the decorator reads it
            return act()

        self._run = idempotent_function(
            run, data_keyword_argument="request", persistence_store=layer, config=config, key_prefix=prefix
        )

    def run(
        self,
        *,
        key: str,
        act: Callable[[], Any],
        remaining_ms: int,
        fingerprint: str = "",
        message_id: str | None = None,
        about: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Do the work, or answer what it answered the first time.

        Parameters
        ----------
        act
            Does the work, ends with the commit of its unit of work, and answers what that stored.
        remaining_ms
            For how long the attempt may take: then the record may be taken over.
        fingerprint
            What the request asks for.
        message_id
            The queue's own id of the delivery.
        about
            What a kept failure says of the work: `event_id`, `type`, `subject`.

        Raises
        ------
        KeyReused, StillRunning
            Nothing was done.
        Superseded
            The attempt came too late and wrote nothing, and the one that took over is not done.
        Exception
            What the work raised.
        """
        asked = _Asked(remaining_ms, message_id, about or {})
        asked_before, taken_before = _asked.set(asked), _taken.set(None)
        try:
            answer = self._run(request={"key": key, "fingerprint": fingerprint}, act=act)
        except Superseded:
            record = _taken.get()
            if record is None or (done := record.completed_by_another()) is None:
                raise
            return Outcome(json.loads(done.response or "null"), replayed=True)
        except IdempotencyValidationError as error:
            raise KeyReused("the key was used for another request") from error
        except IdempotencyAlreadyInProgressError as error:
            raise StillRunning("the first request with this key is still being worked on", asked.busy_for) from error
        except IdempotencyPersistenceLayerError as error:
            if isinstance(error.__cause__, _RecordBusy):
                raise StillRunning("the first request with this key is being committed", 1) from error
            raise error.__cause__ or error from error
        finally:
            _taken.reset(taken_before)
            _asked.reset(asked_before)
        return answer if isinstance(answer, Outcome) else Outcome(answer, replayed=False)


class _Remaining:
    """What Powertools asks of a Lambda context: the time left, of whichever request this thread serves."""

    def get_remaining_time_in_millis(self) -> int:
        return _asked.get().remaining_ms


class _PersistenceLayer(BasePersistenceLayer):
    """Powertools' documented extension point over `IdempotencyRow`, by the house's clock and conditions."""

    def __init__(self, runtime: Runtime, life: int, failing_as: str | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._runtime = runtime
        self._life = life
        self._failing_as = failing_as

    def delete_record(self, data: dict[str, Any], exception: Exception) -> None:
        """Open the record of a failed attempt; what goes wrong in that is logged, and the attempt's error stands."""
        record = _taken.get()
        if record is None or record.completed:
            return
        try:
            if self._failing_as is not None:
                self._keep(record, failure_of(exception), self._failing_as)
            else:
                super().delete_record(data, exception)
        except Exception as error:
            log_error(LogEvent.RECORD_LEFT_OPEN, error, record=record.id)

    def _put_record(self, data_record: DataRecord) -> None:
        asked = _asked.get()
        now = self._runtime.clock.now()
        now_ms = epoch_milliseconds(now)
        until = now_ms + asked.remaining_ms
        values = {
            ":inprogress": {"S": INPROGRESS},
            ":failed": {"S": FAILED},
            ":until": {"N": str(until)},
            ":expires": {"N": str(epoch_seconds(now + timedelta(seconds=self._life)))},
            ":fingerprint": {"S": data_record.payload_hash},
            ":message": {"S": asked.message_id or NONE},
            ":none": {"S": NONE},
            ":taker": {"S": f"{self._runtime.random.getrandbits(96):024x}"},
            ":one": {"N": "1"},
            ":now": {"N": str(epoch_seconds(now))},
            ":now_ms": {"N": str(now_ms)},
        }
        answer = retry(
            lambda: self._take(data_record.idempotency_key, values),
            backoff=self._runtime.timings.commit_backoff,
            clock=self._runtime.clock,
            random=self._runtime.random,
            on=_RecordBusy,
        )
        claim = Taken(data_record.idempotency_key, values[":taker"]["S"], data_record.payload_hash)
        record = self._continued(claim, asked.message_id, answer)
        _taken.set(record)
        if record.starts_afresh:
            self._restart(record)

    def _continued(self, claim: Taken, message_id: str | None, old: dict[str, Any]) -> Taken:
        """Count on from what was known of the record when it was taken."""
        if "attempts" not in old:
            return claim
        attempts = int(old["attempts"]["N"])
        before = Failure.from_json(old["failure"]["S"]) if "failure" in old else None
        noticed = old["status"]["S"] == FAILED
        if before is None and old["status"]["S"] == INPROGRESS:
            before = ENDED_SILENTLY
        ended_at = None
        if before == ENDED_SILENTLY:
            ended_at = int(old["in_progress_until"]["N"])
        # Another message of the same event is a redriven one only after a last verdict: before that it is a copy, which
        # shares the attempts of its twin. Were each to start afresh, neither would ever come to its last.
        is_another = message_id is not None and old["message_id"]["S"] != message_id
        if is_another and before is not None and self._runtime.timings.consumer_backoff.is_over(before, attempts):
            return replace(claim, starts_afresh=True)
        waits = int(old["waits"]["N"]) if "waits" in old else 0
        since = old["first_failed_at"]["S"] if "first_failed_at" in old else None
        return replace(
            claim,
            attempts=attempts + 1,
            before=before,
            ended_at=ended_at,
            noticed=noticed,
            failing_since=since,
            waits=waits,
        )

    def _take(self, record_id: str, values: dict[str, Any]) -> dict[str, Any]:
        try:
            answer = clients.dynamodb().update_item(
                TableName=IdempotencyRow.table_name(),
                Key={"id": {"S": record_id}},
                UpdateExpression="SET #status = :inprogress, #until = :until, #expires = :expires,"
                " #fingerprint = :fingerprint, #message = :message, #taker = :taker,"
                " #before_status = if_not_exists(#status, :none), #before_failure = if_not_exists(#failure, :none),"
                " #before_message = if_not_exists(#message, :none), #before_until = if_not_exists(#until, :until)"
                " REMOVE #failure, #response ADD #attempts :one",
                ConditionExpression="attribute_not_exists(#id) OR #expires < :now OR #status = :failed"
                " OR (#status = :inprogress AND #until < :now_ms)",
                ExpressionAttributeNames={
                    "#id": "id",
                    "#status": "status",
                    "#until": "in_progress_until",
                    "#expires": "expires_at",
                    "#fingerprint": "fingerprint",
                    "#message": "message_id",
                    "#taker": "taker",
                    "#before_status": "before_status",
                    "#before_failure": "before_failure",
                    "#before_message": "before_message_id",
                    "#before_until": "before_until",
                    "#failure": "failure",
                    "#response": "response",
                    "#attempts": "attempts",
                },
                ExpressionAttributeValues=values,
                ReturnValues="ALL_OLD",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code == "TransactionConflictException":
                raise _RecordBusy(f"{record_id} is being committed") from error
            if code == "ConditionalCheckFailedException":
                item: dict[str, Any] = error.response["Item"]  # type: ignore[typeddict-item]
                if item["status"]["S"] == INPROGRESS and item.get("taker") == values[":taker"]:
                    return _before_our_take(item)
                raise self._exists(record_id, item, values) from error
            raise
        return dict(answer.get("Attributes", {}))

    def _exists(self, record_id: str, item: dict[str, Any], values: dict[str, Any]) -> Exception:
        _asked.get().busy_for = (int(item["in_progress_until"]["N"]) - int(values[":now_ms"]["N"])) / 1000
        # Without expiries: the condition has judged them by our clock, and Powertools would again by its own.
        old = DataRecord(
            idempotency_key=record_id,
            status=item["status"]["S"],
            response_data=item["response"]["S"] if "response" in item else "",
            payload_hash=item["fingerprint"]["S"],
        )
        try:
            self._validate_payload(DataRecord(record_id, payload_hash=values[":fingerprint"]["S"]), old)
        except IdempotencyValidationError as error:
            return error
        return IdempotencyItemAlreadyExistsError(old_data_record=old)

    def _restart(self, record: Taken) -> None:
        """Count from one again: the message was redriven, and its attempts are its own."""
        row = IdempotencyRow
        actions: list[Action] = [row.attempts.set(1), row.first_failed_at.remove(), row.waits.remove()]
        self._if_ours(lambda: row(record.id).update(actions, condition=record.is_ours()))

    def _keep(self, record: Taken, failure: Failure, failing_as: str) -> None:
        row, now = IdempotencyRow, timestamp(self._runtime.clock.now())
        actions = [
            row.status.set(FAILED),
            row.failure.set(failure.to_json()),
            row.attempts.set(record.attempts),
            row.waits.set(record.waits),
            *([row.in_progress_until.set(record.ended_at)] if record.ended_at is not None else []),
            row.failing.set(failing_as),
            row.failed_at.set(now),
            row.first_failed_at.set(row.first_failed_at | now),
            *(getattr(row, name).set(value) for name, value in _asked.get().about.items()),
        ]
        self._if_ours(lambda: row(record.id).update(actions, condition=record.is_ours()))

    def _delete_record(self, data_record: DataRecord) -> None:
        record = _taken.get()
        if record is not None:
            self._if_ours(lambda: IdempotencyRow(record.id).delete(condition=record.is_ours()))

    def _if_ours(self, change: Callable[[], Any]) -> None:
        try:
            change()
        except Exception as error:
            # Taken over meanwhile: the record is the other attempt's now.
            if getattr(error, "cause_response_code", None) != "ConditionalCheckFailedException":
                raise

    def _update_record(self, data_record: DataRecord) -> None:
        record = _taken.get()
        if record is None or not record.completed:
            raise RuntimeError("the work ended without committing its unit of work")

    def _get_record(self, idempotency_key: str) -> DataRecord:
        # Never needed: a refused take answers the record. Should it be asked for, there is none to be had.
        raise IdempotencyItemNotFoundError


def _before_our_take(item: Mapping[str, Any]) -> dict[str, Any]:
    """Answer the record as it was before our take, whose answer was lost."""
    if item["before_status"]["S"] == NONE:
        return {}
    before = {name: item[name] for name in ("first_failed_at", "waits") if name in item}
    before["attempts"] = {"N": str(int(item["attempts"]["N"]) - 1)}
    before["status"], before["message_id"] = item["before_status"], item["before_message_id"]
    before["in_progress_until"] = item["before_until"]
    if item["before_failure"]["S"] != NONE:
        before["failure"] = item["before_failure"]
    return before


class _RecordBusy(Unavailable):
    """A transaction is writing the record at this moment."""
