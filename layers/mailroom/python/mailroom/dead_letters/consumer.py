"""Dead letters of one consumer: its records of what fails, and the messages in its dead-letter queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pynamodb.exceptions import DeleteError, UpdateError
from pynamodb.expressions.update import Action as UpdateAction

from mailroom import clients
from mailroom.clock import epoch_milliseconds, moment
from mailroom.consumer import key_of, record_prefix
from mailroom.cursor import read_cursor, write_cursor
from mailroom.dead_letters.letter import Action, DeadLetter, Deed, Fate, Result, remembered
from mailroom.deployment import DEAD, Deployment
from mailroom.failures import Failure, FailureKind, Permanent
from mailroom.history import read_history
from mailroom.idempotency import COMPLETED, ENDED_SILENTLY, IdempotencyRow, record_id
from mailroom.outbox.event import Envelope
from mailroom.runtime import Runtime
from mailroom.sources.source import TENANT

if TYPE_CHECKING:
    from types_boto3_sqs.type_defs import SendMessageRequestTypeDef

_IN_HAND = 120
"""Seconds that a message is hidden from others while an operator's job has it."""
_RECEIVE = 10
_EMPTY_RECEIVES = 3
"""SQS answers from a sample of its servers: only several empty answers mean an empty queue.
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-short-and-long-polling.html"""


class ConsumerLetters:
    """Lists what a consumer fails at, and moves messages out of its dead-letter queue.

    A message that was received is hidden from everyone else: of two operators, one has it. It is sent before it is
    deleted, so that a crash in between leaves two, and the consumer's record makes one effect of them.
    """

    def __init__(self, name: str, runtime: Runtime, deployment: Deployment) -> None:
        self.name = name
        self._runtime = runtime
        self._queue = deployment.queues[name]
        self._dead = deployment.queues[f"{name}{DEAD}"]

    def page(self, cursor: str | None = None, *, limit: int = 100) -> tuple[list[DeadLetter], str | None]:
        """Answer what fails, the longest ago first, and the cursor of the next page: reads the index alone."""
        start = read_cursor(cursor, id=None, failing=self.name, failed_at=None)
        rows = IdempotencyRow.index.query(self.name, limit=limit, page_size=limit, last_evaluated_key=start)
        letters = [self._letter(row) for row in rows]
        return letters, write_cursor(rows.last_evaluated_key)

    def get(self, event_id: str) -> DeadLetter | None:
        """Answer what is known of one event or message that fails."""
        row = self.record(event_id)
        return self._letter(row) if row and row.failing else None

    def record(self, event_id: str) -> IdempotencyRow | None:
        """Answer the consumer's record of an event."""
        try:
            return IdempotencyRow.get(self._record_id(event_id), consistent_read=True)
        except IdempotencyRow.DoesNotExist:
            return None

    def redrive(
        self, ids: Sequence[str], deed: Deed, *, force: bool = False, stop: Callable[[], bool] = lambda: False
    ) -> Iterator[Result]:
        """Send messages to the consumer again, each under a new message id, so that its attempts start afresh.

        Parameters
        ----------
        force
            Also run what succeeded before, and what nobody knows about any more.
        stop
            Asked before each look into the queue: a deep one may take longer than a request has.
        """
        wanted = dict.fromkeys(ids)
        for event_id in list(wanted):
            refusal = self._refusal(event_id, force=force)
            if refusal is not None:
                del wanted[event_id]
                yield refusal
        yield from self._take_out(wanted, Action.REDRIVE, deed, send=True, stop=stop)

    def discard(self, ids: Sequence[str], deed: Deed) -> Iterator[Result]:
        """Give messages up: out of the dead-letter queue, with the reason in the record."""
        yield from self._take_out(dict.fromkeys(ids), Action.DISCARD, deed, send=False, stop=lambda: False)

    def doubt(self, event_id: str) -> Fate | None:
        """Answer why sending it again may make its effect happen twice; None if nothing says so."""
        row = self.record(event_id)
        if row is None:
            return Fate.RECORD_EXPIRED
        return Fate.SUCCEEDED_BEFORE if row.status == COMPLETED else None

    def fate(self, event_id: str) -> Failure | bool | None:
        """Answer what became of an event: True is handled, a failure is one, None is not known yet."""
        row = self.record(event_id)
        if row is None or row.status == COMPLETED:
            return None if row is None else True
        return Failure.from_json(row.failure) if row.failure and row.failing else None

    def _refusal(self, event_id: str, *, force: bool) -> Result | None:
        doubt = self.doubt(event_id)
        if doubt is not None and not force:
            return Result(event_id, self.name, doubt, "it might run twice: use force if that is meant")
        if doubt is Fate.SUCCEEDED_BEFORE:
            self._forget_success(event_id)
        return None

    def _forget_success(self, event_id: str) -> None:
        """Delete the record that would keep the consumer from running it again."""
        try:
            IdempotencyRow(self._record_id(event_id)).delete(condition=IdempotencyRow.status == COMPLETED)
        except DeleteError as error:
            if error.cause_response_code != "ConditionalCheckFailedException":
                raise  # otherwise it is gone already, as after a lost answer to this same call, or at work again

    def _take_out(
        self, wanted: dict[str, None], action: Action, deed: Deed, *, send: bool, stop: Callable[[], bool]
    ) -> Iterator[Result]:
        set_aside: list[str] = []
        empty = 0
        while wanted and empty < _EMPTY_RECEIVES and not stop():
            messages = self._receive()
            empty = 0 if messages else empty + 1
            for message in messages:
                event_id = _id_of(message)
                if event_id not in wanted:
                    set_aside.append(message["ReceiptHandle"])
                    continue
                del wanted[event_id]
                yield self._take_one(event_id, message, action, deed, send=send)
        self._give_back(set_aside)
        for event_id in wanted:
            yield self._not_found(event_id, looked_through=empty >= _EMPTY_RECEIVES)

    def _not_found(self, event_id: str, *, looked_through: bool) -> Result:
        if looked_through:
            return Result(event_id, self.name, Fate.NOT_IN_QUEUE, "its message is not in the dead-letter queue")
        return Result(event_id, self.name, Fate.NOT_TRIED, "the time was up before its message was found: try again")

    def _take_one(self, event_id: str, message: Any, action: Action, deed: Deed, *, send: bool) -> Result:
        try:
            if send:
                clients.sqs().send_message(**_sent_again(message, self._queue))
            self._remember(event_id, message["MessageId"], action, deed)
            clients.sqs().delete_message(QueueUrl=self._dead, ReceiptHandle=message["ReceiptHandle"])
        except Exception as error:  # one letter's trouble is not the next one's
            return Result(event_id, self.name, Fate.FAILED, f"{type(error).__name__}: {error}")
        return Result(event_id, self.name, Fate.DONE)

    def _remember(self, event_id: str, message_id: str, action: Action, deed: Deed) -> None:
        """Note the deed, and take the letter off the list unless the consumer has the new message already."""
        record, row = self.record(event_id), IdempotencyRow
        if record is None:
            return
        failure = Failure.from_json(record.failure) if record.failure else None
        history = remembered(record.history, action, deed, failure, int(record.attempts or 0))
        noted: list[UpdateAction] = [row.history.set(history)]
        if action is Action.REDRIVE:
            noted.append(row.redriven.set(int(record.redriven or 0) + 1))
        unlisted: list[UpdateAction] = [row.failing.remove(), row.failed_at.remove(), row.first_failed_at.remove()]
        try:
            row(record.id).update([*noted, *unlisted], condition=row.message_id == message_id)
        except UpdateError as error:
            if error.cause_response_code != "ConditionalCheckFailedException":
                raise
            row(record.id).update(noted, condition=row.id.exists())

    def _receive(self) -> list[Any]:
        answer = clients.sqs().receive_message(
            QueueUrl=self._dead,
            MaxNumberOfMessages=_RECEIVE,
            VisibilityTimeout=_IN_HAND,
            WaitTimeSeconds=0,
            MessageSystemAttributeNames=[TENANT],
        )
        return list(answer.get("Messages", []))

    def _give_back(self, receipts: Sequence[str]) -> None:
        for start in range(0, len(receipts), _RECEIVE):
            some = receipts[start : start + _RECEIVE]
            clients.sqs().change_message_visibility_batch(
                QueueUrl=self._dead,
                Entries=[
                    {"Id": str(position), "ReceiptHandle": receipt, "VisibilityTimeout": 0}
                    for position, receipt in enumerate(some)
                ],
            )

    def _record_id(self, event_id: str) -> str:
        return record_id(record_prefix(self.name), event_id)

    @property
    def _longest_wait(self) -> float:
        """The seconds after which SQS would have delivered a message again, were it still in the consumer's queue.

        Not every message dies of a last failure: SQS also moves one whose deliveries were used up otherwise.
        """
        timings = self._runtime.timings
        return timings.consumer_backoff.longest_delay() + timings.visibility(timings.consumer_timeout)

    def _letter(self, row: IdempotencyRow) -> DeadLetter:
        silent_for = epoch_milliseconds(self._runtime.clock.now()) / 1000 - int(row.in_progress_until) / 1000
        failure = Failure.from_json(row.failure) if row.failure else _AT_WORK if silent_for < 0 else ENDED_SILENTLY
        attempts = int(row.attempts or 0)
        dead = self._runtime.timings.consumer_backoff.is_over(failure, attempts) or silent_for > self._longest_wait
        retention = timedelta(seconds=self._runtime.timings.dead_letter_retention)
        return DeadLetter(
            id=row.event_id or row.id,
            source=self.name,
            state="dead" if dead else "retrying",
            type=row.type or "?",
            subject=row.subject,
            failure=failure,
            attempts=attempts,
            died_at=row.failed_at or "",
            redriven=int(row.redriven or 0),
            expires_at=moment(row.first_failed_at) + retention if row.first_failed_at else None,
            history=read_history(row.history),
        )


_AT_WORK = Failure(FailureKind.TRANSIENT, "InProgress", "another attempt is at work")


def _sent_again(message: Any, queue_url: str) -> SendMessageRequestTypeDef:
    again: SendMessageRequestTypeDef = {"QueueUrl": queue_url, "MessageBody": message["Body"]}
    if tenant := message.get("Attributes", {}).get(TENANT):
        again[TENANT] = tenant
    return again


def _id_of(message: Any) -> str:
    try:
        envelope: Envelope | None = Envelope.from_json(message["Body"])
    except Permanent:
        envelope = None
    return key_of(envelope, message["MessageId"])
