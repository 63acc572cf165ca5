"""Dead letters of the outbox: events that could not be published."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from mailroom import clients
from mailroom.clock import epoch_seconds, moment
from mailroom.cursor import read_cursor, write_cursor
from mailroom.dead_letters.letter import OUTBOX, Action, DeadLetter, Deed, Fate, Result, Search
from mailroom.dead_letters.mending import Mended, mended_copy
from mailroom.dead_letters.outbox_row import Found, as_it_was, history_of, letter_of
from mailroom.failures import Failure
from mailroom.needs import Need
from mailroom.outbox.event import EventRefused, shard_of_id
from mailroom.outbox.room import fitted
from mailroom.outbox.table import DEAD, DISCARDED, OVER_WHEN_DEAD, EventMoved, OutboxRow, pending, sent
from mailroom.reading import Unreadable, item_of, read_keys, read_one, read_page, row_of
from mailroom.runtime import Runtime
from mailroom.transaction import Operation, OperationKind, write


class OutboxLetters:
    """Lists, redrives, edits and discards dead events. Each deed is one conditional transaction: of two, one wins.

    An event that waits since it was not sent can be edited and discarded too, in good time before its next attempt.
    """

    name = OUTBOX
    NEEDS_TO_COUNT = Need(("dynamodb:Query",), OutboxRow)
    NEEDS = Need(
        ("dynamodb:BatchGetItem", "dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query"),
        OutboxRow,
    )

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def page(self, cursor: str | None = None, *, limit: int = 100) -> tuple[list[DeadLetter], str | None]:
        """Answer dead events, oldest first, and the cursor of the next page."""
        start = read_cursor(cursor, partition=DEAD, event_id=None)
        rows = OutboxRow.query(DEAD, consistent_read=True, limit=limit, page_size=limit, last_evaluated_key=start)
        found, following = read_page(OutboxRow, rows)
        return [letter_of(each) for each in found], write_cursor(following)

    def get(self, event_id: str) -> DeadLetter | None:
        """Answer one dead event."""
        found = read_one(OutboxRow, DEAD, event_id)
        return letter_of(found) if found else None

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
            rows = {row_of(each).event_id: each for each in read_keys(OutboxRow, [(DEAD, each) for each in some])}
            for event_id in some:
                if stop():
                    yield Result(event_id, OUTBOX, Fate.NOT_TRIED, "the time was up: try again")
                    continue
                yield self._redrive_one(event_id, rows.get(event_id), deed)

    def discard(self, ids: Sequence[str], deed: Deed) -> Iterator[Result]:
        """Give up events that are dead, or wait since they were not sent: kept for a while with the reason."""
        for event_id in ids:
            found = self._stopped(event_id)
            if isinstance(found, Result):
                yield found
                continue
            yield self._move(found, [self._discarded(found, Action.DISCARD, deed)])

    def doubt(self, event_id: str) -> Fate | None:
        """Answer None: a dead event was never published, so that nothing can happen twice."""
        return None

    def fate(self, event_id: str) -> Failure | bool | None:
        """Answer what became of an event: True is sent, a failure is one, None is not known yet."""
        shard = shard_of_id(event_id)
        keys = [(partition, event_id) for partition in (sent(shard), DEAD, pending(shard))]
        for found in read_keys(OutboxRow, keys):
            row = row_of(found)
            if row.partition == sent(shard):
                return True
            if row.untaken_since and not row.retry_count:
                return None  # that it alone is throttled uses no attempt
            if row.partition == DEAD or row.failure:
                return letter_of(found).failure
        return None

    def edit(self, event_id: str, payload: str | None, deed: Deed, mended: Mended | None = None) -> Result:
        """Put a mended copy in the place of an event that is dead, or waits since it was not sent.

        The copy is a new event that names its parent, and comes after all that is about its subject by now.

        Parameters
        ----------
        payload
            The new payload, a JSON object; None keeps the event's own.
        mended
            What takes the place of attributes that cannot be read.
        """
        found = self._stopped(event_id)
        if isinstance(found, Result):
            return found
        try:
            copy = mended_copy(found, payload, mended or Mended(), deed, self._runtime)
        except EventRefused as error:
            return Result(event_id, OUTBOX, Fate.FAILED, str(error))
        result = self._move(found, [self._discarded(found, Action.EDIT, deed, became=copy.event_id), copy])
        return Result(event_id, OUTBOX, result.fate, copy.event_id) if result.ok else result

    def _stopped(self, event_id: str) -> Found | Result:
        """Return an event that no relay sends for now: a dead one, or one that waits; else why not."""
        found = read_one(OutboxRow, DEAD, event_id)
        if found is not None:
            return found
        absent = self._absent(event_id)
        found = read_one(OutboxRow, pending(shard_of_id(event_id)), event_id) if absent.fate is Fate.NOT_DEAD else None
        if found is None or isinstance(found, Unreadable) or not found.failure or not found.next_attempt_at:
            return absent
        # A relay that finds it due sends it, and marks it under its lease: by then the deed has to be done.
        if moment(found.next_attempt_at) - self._runtime.clock.now() > timedelta(seconds=self._runtime.timings.lease):
            return found
        told = f"it is about to be sent again, at {found.next_attempt_at}: if it waits after that, try again then"
        return Result(event_id, OUTBOX, Fate.NOT_DEAD, told)

    def _redrive_one(self, event_id: str, found: Found | None, deed: Deed) -> Result:
        if found is None:
            return self._absent(event_id)
        if isinstance(found, Unreadable):
            return Result(event_id, OUTBOX, Fate.UNREADABLE, f"{found.failure.message}: edit it, or discard it")
        kept = {name: typed for name, typed in item_of(found).items() if name not in _OVER}
        alive = {
            **kept,
            "partition": {"S": pending(shard_of_id(event_id))},
            "history": {"S": history_of(found, Action.REDRIVE, deed)},
            "redriven": {"N": str(int(found.redriven or 0) + 1)},
        }
        return self._move(found, [OutboxRow.as_it_is(fitted(alive))])

    def _move(self, found: Found, places: Sequence[OutboxRow]) -> Result:
        row = row_of(found)
        moved = EventMoved(f"{row.event_id} is no longer where it was")
        operations = [Operation(OperationKind.DELETE, row, moved, as_it_was(found))]
        operations += [Operation(OperationKind.PUT, place, moved) for place in places]
        try:
            write(operations, self._runtime)
        except EventMoved as error:
            return Result(row.event_id, OUTBOX, Fate.NOT_DEAD, str(error))
        except Exception as error:  # one letter's trouble is not the next one's
            return Result(row.event_id, OUTBOX, Fate.FAILED, f"{type(error).__name__}: {error}")
        return Result(row.event_id, OUTBOX, Fate.DONE)

    def _discarded(self, found: Found, action: Action, deed: Deed, *, became: str | None = None) -> OutboxRow:
        until = self._runtime.clock.now() + timedelta(seconds=self._runtime.timings.discarded_retention)
        gone = {
            **{name: typed for name, typed in item_of(found).items() if name not in OVER_WHEN_DEAD},
            "partition": {"S": DISCARDED},
            "history": {"S": history_of(found, action, deed, became=became)},
            "expires_at": {"N": str(epoch_seconds(until))},
        }
        return OutboxRow.as_it_is(fitted(gone))

    def _absent(self, event_id: str) -> Result:
        try:
            shard = shard_of_id(event_id)
        except ValueError as error:
            return Result(event_id, OUTBOX, Fate.UNKNOWN, str(error))
        for partition in (pending(shard), sent(shard), DISCARDED):
            if read_one(OutboxRow, partition, event_id):
                return Result(event_id, OUTBOX, Fate.NOT_DEAD, f"it is in {partition}")
        return Result(event_id, OUTBOX, Fate.UNKNOWN, "the outbox has no such event (sent ones are forgotten in time)")


_READ_AT_ONCE = 25
"""A BatchGetItem answers 16 MB at most, and an event has up to 380 KB."""


_OVER = frozenset({"retry_count", "next_attempt_at", "untaken_since", "failure", "died_at"})
"""What a redriven event leaves behind: its history has it."""
