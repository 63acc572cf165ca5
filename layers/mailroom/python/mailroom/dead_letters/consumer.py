"""Dead letters of one consumer: its records of what fails, and the messages in its dead-letter queue."""

from __future__ import annotations

from dataclasses import replace

from mailroom.cursor import read_cursor, write_cursor
from mailroom.dead_letters.letter import DeadLetter
from mailroom.dead_letters.queue import DeadMessage
from mailroom.dead_letters.queued import QueuedLetters
from mailroom.dead_letters.records import ConsumerRecords, Record
from mailroom.deployment import DEAD, Deployment
from mailroom.failures import Failure, FailureKind
from mailroom.idempotency import ENDED_SILENTLY, INPROGRESS, IdempotencyRow
from mailroom.needs import Need
from mailroom.paging import page_of
from mailroom.reading import read_page, row_of
from mailroom.runtime import Runtime

_RECORDS, _QUEUE = "records", "queue"
_UNTOLD = Failure(
    FailureKind.TRANSIENT,
    "NoRecord",
    "no record tells of it: its function was never started for it, its record has expired, or it was put here by hand",
)
_LEFT = Failure(
    FailureKind.TRANSIENT, "LeftBehind", "an operator dealt with it, and its message is still here: do so again"
)


class ConsumerLetters(QueuedLetters):
    """Lists what a consumer fails at: by its records, and by looking where these tell of fewer than the queue has."""

    NEEDS = (ConsumerRecords.NEEDS, Need(("dynamodb:Query",), IdempotencyRow.index))

    def __init__(self, name: str, runtime: Runtime, deployment: Deployment) -> None:
        queues = deployment.queues
        super().__init__(
            name, runtime, ConsumerRecords(name, runtime), queue=queues[name], dead=queues[f"{name}{DEAD}"]
        )

    def page(self, cursor: str | None = None, *, limit: int = 100) -> tuple[list[DeadLetter], str | None]:
        """Return what fails, the longest ago first, and the cursor of the next page.

        It reads an index. The queue is looked into after that, if it has more messages than records tell of.
        """
        known = 0

        def read(place: str, start: str | None, limit: int) -> tuple[list[DeadLetter], str | None]:
            nonlocal known
            if place == _QUEUE:
                return self._lying(start, limit, known=known)
            letters, following = self._recorded(start, limit)
            known += sum(letter.state == "dead" for letter in letters)
            return letters, following

        return page_of((_RECORDS, _QUEUE), read, cursor=cursor, limit=limit)

    def get(self, event_id: str) -> DeadLetter | None:
        """Return what is known of one event or message that fails."""
        found = self.records.get(event_id)
        return self.records.letter(found) if found and row_of(found).failing else None

    def _recorded(self, start: str | None, limit: int) -> tuple[list[DeadLetter], str | None]:
        key = read_cursor(start, id=None, failing=self.name, failed_at=None)
        rows = IdempotencyRow.index.query(self.name, limit=limit, page_size=limit, last_evaluated_key=key)
        found, following = read_page(IdempotencyRow, rows)
        return [self.records.letter(each) for each in found], write_cursor(following)

    def _letter(self, message: DeadMessage, record: Record | None) -> DeadLetter:
        shown = super()._letter(message, record)
        if record is None or not row_of(record).failing:
            return shown
        return replace(self.records.letter(record), payload=shown.payload)

    def _is_listed(self, record: Record | None) -> bool:
        return record is not None and row_of(record).failing is not None

    def _failure_of(self, message: DeadMessage, record: IdempotencyRow | None) -> Failure:
        if record is None:
            return _UNTOLD
        if record.failure:
            return Failure.from_json(record.failure)
        return ENDED_SILENTLY if record.status == INPROGRESS else _LEFT

    def _attempts_at(self, message: DeadMessage, record: IdempotencyRow | None) -> int:
        return int(record.attempts or 0) if record else 0
