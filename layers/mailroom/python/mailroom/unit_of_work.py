"""The unit of work: use cases collect rows and events in it, and the edge commits them at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from math import inf
from typing import Any, TypeVar

from pynamodb.expressions.condition import Condition
from pynamodb.expressions.update import Action
from pynamodb.indexes import Index
from ulid import ULID

from mailroom import idempotency, telemetry
from mailroom.clock import epoch_milliseconds, timestamp
from mailroom.needs import Access, Need, Port
from mailroom.outbox.event import Envelope, Event, EventIds, Part, payload_of
from mailroom.outbox.limits import check_size
from mailroom.outbox.table import OutboxRow
from mailroom.parts import Parts
from mailroom.reading import RowUnreadable, Unreadable, names_of, read_one, read_page
from mailroom.row import Row, SubjectRow
from mailroom.runtime import Runtime
from mailroom.sources.source import Sink
from mailroom.transaction import Operation, OperationKind, write

_WRITES_ORDER = (OperationKind.PUT, OperationKind.DELETE)
"""What keeps, or ends, the order of the events about a row: a mere check of it would forget the new one."""

NEEDS_TO_PUBLISH = Need(("dynamodb:PutItem",), OutboxRow)
"""What adding an event to the outbox takes."""

M = TypeVar("M", bound=Row)
P = TypeVar("P", bound=Port)


class NotDeclared(Exception):
    """Code touches what its declaration doesn't name, so that it would be denied once deployed."""


class RowChanged(Exception):
    """Someone else changed, made or removed the row since it was read; nothing was written."""


class UnitOfWork:
    """Rows and events that are written together or not at all.

    Parameters
    ----------
    access
        What the code that gets it may touch.
    cause
        The event that is being consumed, if one is.
    parts
        Where the parts go into which that is split.
    deadline
        The `clock.monotonic()` from which nothing new is begun.
    """

    def __init__(
        self,
        runtime: Runtime,
        access: Access,
        *,
        cause: Envelope | None = None,
        parts: Sink | None = None,
        deadline: float = inf,
    ) -> None:
        self.runtime = runtime
        self.cause = cause
        self._deadline = deadline
        self._access = access
        self._parts = Parts(runtime, parts)
        self._operations: list[Operation] = []
        self._subjects: list[SubjectRow] = []
        self._once_written: list[Callable[[], None]] = []
        self._ids = EventIds(runtime.clock, runtime.random)

    @property
    def cause_id(self) -> str:
        """The id of the event that is being consumed; an effect outside our tables carries it.

        Raises
        ------
        LookupError
            If no event is.
        """
        return self.consumed.id

    @property
    def consumed(self) -> Envelope:
        """The event that is being consumed, as it came.

        Raises
        ------
        LookupError
            If no event is.
        """
        if self.cause is None:
            raise LookupError("no event is being consumed here")
        return self.cause

    def now(self) -> datetime:
        """Answer the present moment in UTC."""
        return self.runtime.clock.now()

    def out_of_time(self) -> bool:
        """Answer whether the work should stop, done or not: soon the invocation is stopped."""
        return self.runtime.clock.monotonic() >= self._deadline

    def new_id(self) -> str:
        """Answer an id for a new row: a ULID."""
        milliseconds = epoch_milliseconds(self.now())
        return str(ULID.from_bytes(milliseconds.to_bytes(6, "big") + self.runtime.random.randbytes(10)))

    def use(self, port: type[P]) -> P:
        """Answer an outward port that the declaration names.

        Raises
        ------
        NotDeclared
            If it does not name it.
        """
        _declared(port in self._access.uses, port, "uses")
        return self.runtime.use(port)

    def get(self, model: type[M], hash_key: str, range_key: str | None = None) -> M | None:
        """Read a row, strongly consistent; None if there is none.

        Raises
        ------
        NotDeclared
            If the declaration does not read or write the model.
        RowUnreadable
            If what an attribute holds is not what the model says.
        """
        _declared(model in self._access.reads + self._access.writes, model, "reads")
        found = read_one(model, hash_key, range_key, without=names_of(model))
        if isinstance(found, Unreadable):
            raise RowUnreadable(found)
        return found

    def page(
        self,
        model: type[M],
        index: Index[M],
        hash_key: str,
        *,
        after: Mapping[str, Any] | None,
        limit: int,
        unreadable: Callable[[Unreadable[M]], None] = Unreadable.tell,
    ) -> tuple[list[M], dict[str, Any] | None]:
        """Read one page of an index, and the key that the next page starts after; None after the last one.

        An index follows its table within moments: a row may be missing yet, or be there still. The next page may
        turn out empty.

        Parameters
        ----------
        unreadable
            Called for each row that cannot be read, which is not on the page; as a rule it is logged and counted.

        Raises
        ------
        NotDeclared
            If the declaration does not read or write the model.
        """
        _declared(model in self._access.reads + self._access.writes, model, "reads")
        rows = index.query(hash_key, limit=limit, last_evaluated_key=None if after is None else dict(after))
        found, following = read_page(model, rows, without=names_of(model))
        for each in found:
            if isinstance(each, Unreadable):
                unreadable(each)
        rows_read = [each for each in found if not isinstance(each, Unreadable)]
        return rows_read, None if following is None else dict(following)

    def save(self, row: Row, *, condition: Condition | None = None, refused: Exception | None = None) -> None:
        """Write a new or changed row; one that events are about is written under its version.

        Parameters
        ----------
        refused
            What to raise when the condition does not hold; `RowChanged` if not given.
        """
        if isinstance(row, SubjectRow):
            condition = _unchanged(row) & condition if condition is not None else _unchanged(row)
            row.version += 1
        self._add(Operation(OperationKind.PUT, row, refused or _changed(row), condition))

    def delete(self, row: Row, *, condition: Condition | None = None, refused: Exception | None = None) -> None:
        """Remove a row; one that events are about is removed under its version."""
        if isinstance(row, SubjectRow):
            condition = _unchanged(row) & condition if condition is not None else _unchanged(row)
        self._add(Operation(OperationKind.DELETE, row, refused or _changed(row), condition))

    def update(
        self,
        row: Row,
        actions: Sequence[Action],
        *,
        condition: Condition | None = None,
        refused: Exception | None = None,
    ) -> None:
        """Change attributes of a row without having read it, or make it: only its key counts.

        Raises
        ------
        UpdateWithoutVersion
            If events are about the row: it is read, changed and saved.
        """
        self._add(Operation(OperationKind.UPDATE, row, refused or _changed(row), condition, tuple(actions)))

    def unchanged(self, row: SubjectRow) -> None:
        """Make the commit depend on a row's being as it was read; it raises `RowChanged` if it is not.

        Raises
        ------
        NotDeclared
            If the declaration does not read or write the model.
        """
        _declared(type(row) in self._access.reads + self._access.writes, type(row), "reads")
        self.depend_on(Operation(OperationKind.CHECK, row, _changed(row), _unchanged(row)))

    def depend_on(self, check: Operation) -> None:
        """Make the commit depend on a row that it does not write."""
        self._operations.append(check)

    def once_written(self, tell: Callable[[], None]) -> None:
        """Call something as soon as what was collected is written: a log line, or a count of what did happen."""
        self._once_written.append(tell)

    def forget(self) -> None:
        """Take back all that was collected, so that something else can be committed."""
        self._operations, self._subjects, self._once_written = [], [], []
        self._parts.forget()

    @property
    def has_changes(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self._operations)

    def publish(self, event: Event, about: SubjectRow | None = None) -> str:
        """Add an event to the outbox and answer its id.

        Parameters
        ----------
        about
            The row that it is about, which this unit of work must save or delete: events about one row are
            published in the order in which they were committed. Without it the event has no order.

        Raises
        ------
        EventRefused
            If it could never be delivered: too large, too deep, characters or numbers that cannot be sent.
        NaiveMoment
            If it has a moment without a time zone.
        """
        _declared(type(event) in self._access.publishes, type(event), "publishes")
        subject = None if about is None else about.subject
        after = None if about is None else about.last_event_id
        event_id, moment = self._ids.next(subject, after)
        envelope = Envelope(
            id=event_id,
            type=event.type,
            source=self.runtime.settings.source,
            subject=subject,
            time=timestamp(moment),
            payload=payload_of(event),
            traceparent=telemetry.traceparent(),
            after=after,
        )
        row = OutboxRow.pending(envelope)
        check_size(envelope, row, self.runtime)
        self._operations.append(Operation(OperationKind.PUT, row, _changed(row)))
        if about is not None:
            about.last_event_id = event_id
            self._subjects.append(about)
        return event_id

    def split(self, part: Part, *, key: str, tenant: str | None = None) -> str:
        """Hand a part of the event on to the consumer that waits for such parts; answer its id.

        Parts leave before the commit: after a crash in between they leave again with the same ids, by which their
        consumer does each once.

        Parameters
        ----------
        key
            Tells the parts of one event from each other, and is the same in every attempt.
        tenant
            Whose it is: while one tenant holds much of what is in flight, the others' parts come first.

        Raises
        ------
        EventRefused
            If the part could never be delivered, its key was used before, or no queue takes the tenant's name.
        """
        _declared(type(part) in self._access.splits_into, type(part), "splits_into")
        return self._parts.add(part, of=self.consumed, key=key, tenant=tenant)

    def commit(self, response: Any = None, *, completes: bool = True) -> None:
        """Write all that was collected in one transaction, and with it that the record taken here is completed.

        Parameters
        ----------
        response
            What a repetition of this request is answered with; JSON.
        completes
            Whether the work is done with it, so that the record taken here is completed.

        Raises
        ------
        Exception
            `Superseded` if the record was taken over; else the `refused` of the first condition that does not hold;
            `TooManyItems`, `CommitConflict`, or what AWS answers. Nothing was written then.
        """
        for subject in self._subjects:
            if not any(each.row is subject and each.kind in _WRITES_ORDER for each in self._operations):
                raise LookupError(f"an event is about {subject.subject}, which this unit of work does not write")
        self._parts.hand_on()
        taken = idempotency.taken() if completes else None
        operations = [*self._operations, *([taken.completion(response)] if taken else [])]
        if operations:
            write(operations, self.runtime, took_effect=taken.was_completed if taken else lambda: False)
        if taken:
            taken.completed = True
        told = self._once_written
        self.forget()
        for tell in told:
            tell()

    def _add(self, operation: Operation) -> None:
        _declared(type(operation.row) in self._access.writes, type(operation.row), "writes")
        self._operations.append(operation)


def _unchanged(row: SubjectRow) -> Condition:
    version = type(row).version
    return version.does_not_exist() if row.version == 0 else version == row.version


def _changed(row: Row) -> RowChanged:
    return RowChanged(f"{row.label} was changed by someone else; read it again")


def _declared(holds: bool, what: type, word: str) -> None:
    if not holds:
        raise NotDeclared(f"{what.__name__} is not declared: add {word}=[{what.__name__}], which grants it too")
