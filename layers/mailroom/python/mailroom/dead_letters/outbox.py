"""Dead letters of the outbox: events that could not be published."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from mailroom import clients
from mailroom.clock import timestamp
from mailroom.cursor import read_cursor, write_cursor
from mailroom.dead_letters.letter import OUTBOX, Action, DeadLetter, Deed, Fate, Result, Search, remembered
from mailroom.failures import Failure, FailureKind
from mailroom.history import read_history
from mailroom.outbox.event import Envelope, EventIds, first_unsendable, shard_of_id
from mailroom.outbox.limits import EventTooLarge, check_size
from mailroom.outbox.table import DEAD, DISCARDED, EventMoved, OutboxRow, pending, sent
from mailroom.runtime import Runtime
from mailroom.transaction import Operation, OperationKind, write

_UNTOLD = Failure(FailureKind.TRANSIENT, "Unknown", "the row says no reason")


class OutboxLetters:
    """Lists, redrives, edits and discards dead events. Each deed is one conditional transaction: of two, one wins."""

    name = OUTBOX

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def page(self, cursor: str | None = None, *, limit: int = 100) -> tuple[list[DeadLetter], str | None]:
        """Answer dead events, oldest first, and the cursor of the next page."""
        start = read_cursor(cursor, partition=DEAD, event_id=None)
        rows = OutboxRow.query(DEAD, consistent_read=True, limit=limit, page_size=limit, last_evaluated_key=start)
        letters = [letter_of(row) for row in rows]
        return letters, write_cursor(rows.last_evaluated_key)

    def get(self, event_id: str) -> DeadLetter | None:
        """Answer one dead event."""
        row = self._row(DEAD, event_id)
        return letter_of(row) if row else None

    def search(self, ids: Iterable[str]) -> Search:
        """Answer nothing: there is no dead event that is not found by its id."""
        return Search()

    def count(self, *, up_to: int) -> int:
        """Count dead events, no further than this."""
        counted, start = 0, None
        while counted < up_to:
            more: Any = {"ExclusiveStartKey": start} if start else {}
            answer = clients.dynamodb().query(
                TableName=OutboxRow.table_name(),
                KeyConditionExpression="#partition = :dead",
                ExpressionAttributeNames={"#partition": "partition"},
                ExpressionAttributeValues={":dead": {"S": DEAD}},
                Select="COUNT",
                Limit=up_to - counted,
                **more,
            )
            counted += answer["Count"]
            start = answer.get("LastEvaluatedKey")
            if start is None:
                break
        return counted

    def redrive(
        self, ids: Sequence[str], deed: Deed, *, force: bool = False, stop: Callable[[], bool] = lambda: False
    ) -> Iterator[Result]:
        """Make dead events pending again, with no attempts used and their history kept."""
        for start in range(0, len(ids), _READ_AT_ONCE):
            some = ids[start : start + _READ_AT_ONCE]
            rows = {
                row.event_id: row for row in OutboxRow.batch_get([(DEAD, each) for each in some], consistent_read=True)
            }
            for event_id in some:
                if stop():
                    yield Result(event_id, OUTBOX, Fate.NOT_TRIED, "the time was up: try again")
                    continue
                yield self._redrive_one(event_id, rows.get(event_id), deed)

    def discard(self, ids: Sequence[str], deed: Deed) -> Iterator[Result]:
        """Give dead events up: kept for a while with the reason, never sent."""
        for event_id in ids:
            row = self._row(DEAD, event_id)
            if row is None:
                yield self._absent(event_id)
                continue
            yield self._move(row, [self._discarded(row, Action.DISCARD, deed)])

    def doubt(self, event_id: str) -> Fate | None:
        """Answer None: a dead event was never published, so that nothing can happen twice."""
        return None

    def fate(self, event_id: str) -> Failure | bool | None:
        """Answer what became of an event: True is sent, a failure is one, None is not known yet."""
        shard = shard_of_id(event_id)
        keys = [(partition, event_id) for partition in (sent(shard), DEAD, pending(shard))]
        for row in OutboxRow.batch_get(keys, consistent_read=True):
            if row.partition == sent(shard):
                return True
            if row.failure:
                return Failure.from_json(row.failure)
        return None

    def edit(self, event_id: str, payload: str, deed: Deed) -> Result:
        """Put a mended copy in a dead event's place: a new event that names its parent.

        Parameters
        ----------
        payload
            The new payload, a JSON object.
        """
        row = self._row(DEAD, event_id)
        if row is None:
            return self._absent(event_id)
        if unsendable := first_unsendable(payload):
            return Result(event_id, OUTBOX, Fate.FAILED, f"the character U+{ord(unsendable):04X} cannot be sent")
        try:
            copy = self._mended(row, payload, deed)
        except EventTooLarge as error:
            return Result(event_id, OUTBOX, Fate.FAILED, str(error))
        result = self._move(row, [self._discarded(row, Action.EDIT, deed, became=copy.event_id), copy])
        return Result(event_id, OUTBOX, result.fate, copy.event_id) if result.ok else result

    def _redrive_one(self, event_id: str, row: OutboxRow | None, deed: Deed) -> Result:
        if row is None:
            return self._absent(event_id)
        alive = _copy(row)
        alive.partition = pending(shard_of_id(event_id))
        alive.history = _history(row, Action.REDRIVE, deed)
        alive.redriven = int(row.redriven or 0) + 1
        alive.retry_count = alive.next_attempt_at = alive.failure = alive.died_at = None
        return self._move(row, [alive])

    def _move(self, row: OutboxRow, places: Sequence[OutboxRow]) -> Result:
        moved = EventMoved(f"{row.event_id} is no longer dead")
        still_so = OutboxRow.died_at == row.died_at
        operations = [Operation(OperationKind.DELETE, row, moved, still_so)]
        operations += [Operation(OperationKind.PUT, place, moved) for place in places]
        try:
            write(operations, self._runtime)
        except EventMoved as error:
            return Result(row.event_id, OUTBOX, Fate.NOT_DEAD, str(error))
        except Exception as error:  # one letter's trouble is not the next one's
            return Result(row.event_id, OUTBOX, Fate.FAILED, f"{type(error).__name__}: {error}")
        return Result(row.event_id, OUTBOX, Fate.DONE)

    def _discarded(self, row: OutboxRow, action: Action, deed: Deed, *, became: str | None = None) -> OutboxRow:
        gone = _copy(row)
        gone.partition = DISCARDED
        gone.history = _history(row, action, deed, became=became)
        gone.expires_at = self._runtime.clock.now() + timedelta(seconds=self._runtime.timings.discarded_retention)
        return gone

    def _mended(self, row: OutboxRow, payload: str, deed: Deed) -> OutboxRow:
        runtime = self._runtime
        event_id, moment = EventIds(runtime.clock, runtime.random).next(row.subject, row.event_id)
        envelope = Envelope(
            id=event_id,
            type=row.type,
            source=row.source,
            subject=row.subject,
            time=timestamp(moment),
            payload=payload,
            traceparent=row.traceparent,
            after=row.after,
        )
        copy = OutboxRow.pending(envelope)
        check_size(envelope, copy, runtime)
        copy.parent, copy.history = row.event_id, _history(row, Action.EDIT, deed)
        return copy

    def _absent(self, event_id: str) -> Result:
        try:
            shard = shard_of_id(event_id)
        except ValueError as error:
            return Result(event_id, OUTBOX, Fate.UNKNOWN, str(error))
        for partition in (pending(shard), sent(shard), DISCARDED):
            if self._row(partition, event_id):
                return Result(event_id, OUTBOX, Fate.NOT_DEAD, f"it is in {partition}")
        return Result(event_id, OUTBOX, Fate.UNKNOWN, "the outbox has no such event (sent ones are forgotten in time)")

    @staticmethod
    def _row(partition: str, event_id: str) -> OutboxRow | None:
        try:
            return OutboxRow.get(partition, event_id, consistent_read=True)
        except OutboxRow.DoesNotExist:
            return None


_READ_AT_ONCE = 25
"""A BatchGetItem answers 16 MB at most, and an event has up to 380 KB."""


def letter_of(row: OutboxRow) -> DeadLetter:
    """Show a dead row as a letter."""
    return DeadLetter(
        id=row.event_id,
        source=OUTBOX,
        state="dead",
        type=row.type,
        subject=row.subject,
        failure=Failure.from_json(row.failure) if row.failure else _UNTOLD,
        attempts=int(row.retry_count or 0),
        died_at=row.died_at,
        redriven=int(row.redriven or 0),
        history=read_history(row.history),
    )


def _history(row: OutboxRow, action: Action, deed: Deed, *, became: str | None = None) -> str:
    failure = Failure.from_json(row.failure) if row.failure else None
    return remembered(row.history, action, deed, failure, int(row.retry_count or 0), became=became)


def _copy(row: OutboxRow) -> OutboxRow:
    return OutboxRow(**row.attribute_values)
