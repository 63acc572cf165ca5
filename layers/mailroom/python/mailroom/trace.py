"""What became of an event, or of a subject's events: read back from the rows and records that there are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from mailroom import clients
from mailroom.clock import epoch_milliseconds
from mailroom.consumer import MESSAGE, record_prefix
from mailroom.dead_letters.letter import BECAME, OUTBOX, Action
from mailroom.dead_letters.records import Record
from mailroom.deployment import Deployment
from mailroom.failures import Failure
from mailroom.history import read_history
from mailroom.idempotency import COMPLETED, ENDED_SILENTLY, INPROGRESS, IdempotencyRow, record_id
from mailroom.outbox.event import shard_of_subject
from mailroom.outbox.listing import find_event
from mailroom.outbox.table import DEAD, DISCARDED, OutboxRow, pending, sent
from mailroom.reading import Unreadable, flaw_of, read_keys, row_of
from mailroom.runtime import Runtime

_SEARCHED_PAGES = 5
"""How many megabytes of a partition are searched, the newest first, for a subject whose row is gone."""


class NothingKnown(LookupError):
    """No row and no record tells of it; the message says where was looked."""


class UnknownSubject(LookupError):
    """The subject names no table of this stage; the message lists those there are."""


class StepKind(StrEnum):
    """What happened to an event."""

    WRITTEN = "written"
    WAITS = "waits"
    """For its next attempt, at the time given."""
    SENT = "sent"
    DIED = "died"
    FAILED = "failed"
    HANDLED = "handled"
    AT_WORK = "at work"
    REDRIVE = Action.REDRIVE.value
    EDIT = Action.EDIT.value
    DISCARD = Action.DISCARD.value


class RecordState(StrEnum):
    """Where a consumer stands with an event."""

    HANDLED = "handled"
    AT_WORK = "at work"
    RETRYING = "retrying"
    DEAD = "dead"
    SENT_AGAIN = "sent again"
    """By an operator; the consumer has not taken it yet."""
    GIVEN_UP = "given up"
    """By an operator."""
    REPLACED = "replaced"
    """By an operator, with a mended copy."""
    UNREADABLE = "cannot be read"


_AFTER = {Action.DISCARD.value: RecordState.GIVEN_UP, Action.EDIT.value: RecordState.REPLACED}
"""Where a consumer stands with an event after what an operator did last."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened to an event.

    Parameters
    ----------
    where
        `outbox`, or the consumer's name.
    """

    at: str
    where: str
    kind: StepKind
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ConsumerRecord:
    """What a consumer knows of an event."""

    consumer: str
    state: RecordState
    attempts: int
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class TracedEvent:
    """One event.

    Parameters
    ----------
    place
        The partition of the outbox that it lies in; None if it is not there any more.
    unreadable, row
        Why its row cannot be read, and the row with DynamoDB's types; None if it can be read.
    parent, became
        The event that it is the mended copy of; the mended copy that took its place.
    steps
        What happened to it, in order.
    """

    id: str
    type: str | None = None
    subject: str | None = None
    place: str | None = None
    unreadable: Failure | None = None
    row: dict[str, Any] | None = field(default=None, repr=False)
    after: str | None = None
    parent: str | None = None
    became: str | None = None
    payload: str | None = field(default=None, repr=False)
    records: list[ConsumerRecord] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    @property
    def is_known(self) -> bool:
        """Whether anything tells of it."""
        return self.place is not None or bool(self.records)

    def to_dict(self, *, payload: bool = False) -> dict[str, Any]:
        """Answer it as JSON values; the payload, a JSON text, only if asked for."""
        values = asdict(self)
        if not payload:
            del values["payload"]
            if self.row is not None:
                values["row"].pop("payload", None)
        return values


@dataclass(frozen=True, slots=True)
class Trace:
    """The events that led to one, by `after` and by mending.

    Parameters
    ----------
    events
        The oldest first.
    more
        The id of an earlier one that was not followed any more; None if the chain was followed to its end.
    """

    key: str
    events: list[TracedEvent]
    more: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Answer it as JSON values, without payloads."""
        return {"key": self.key, "events": [each.to_dict() for each in self.events], "more": self.more}


class Tracer:
    """Reads what a stage knows of events."""

    def __init__(self, runtime: Runtime, deployment: Deployment) -> None:
        self._runtime = runtime
        self._deployment = deployment

    def trace(self, key: str, *, limit: int = 20) -> Trace:
        """Follow an event, or a subject from its latest event on, back to where it began.

        Parameters
        ----------
        key
            An event's id, a message's `message/<id>`, or a subject such as `repos/42`.
        limit
            How many events are followed at most.

        Raises
        ------
        NothingKnown, UnknownSubject
            If there is nothing to follow.
        """
        is_subject = "/" in key and not key.startswith(MESSAGE)
        start = self._latest_of(key) if is_subject else key
        found: dict[str, TracedEvent] = {}
        ahead = [start]
        while ahead and len(found) < limit:
            event = self.event(ahead.pop(0))
            found[event.id] = event
            led = (event.became, event.parent, event.after)
            ahead += [each for each in led if each and each not in found and each not in ahead]
        if not any(event.is_known for event in found.values()):
            raise NothingKnown(f"nothing tells of {key}: neither the outbox nor a consumer's record")
        return Trace(key, [found[each] for each in sorted(found)], ahead[0] if ahead else None)

    def event(self, event_id: str) -> TracedEvent:
        """Answer what is known of one event, be it nothing."""
        found = find_event(event_id)
        row = row_of(found) if found else None
        records = self._records(event_id)
        about = [row_of(each) for each in records]
        rows: list[OutboxRow | IdempotencyRow] = [*([row] if row else []), *about]
        steps = [step for record in records for step in self._record_steps(record)]
        return TracedEvent(
            id=event_id,
            type=row.type if row else next((each.type for each in about if each.type), None),
            subject=row.subject if row else next((each.subject for each in about if each.subject), None),
            place=row.partition if row else None,
            unreadable=flaw_of(found),
            row=found.document() if isinstance(found, Unreadable) else None,
            after=row.after if row else None,
            parent=next((each.parent for each in rows if each.parent), None),
            became=next(filter(None, map(_became, rows)), None),
            payload=row.payload if row else None,
            records=[self._record(each) for each in records],
            steps=sorted([*(_outbox_steps(row) if row else ()), *steps], key=lambda step: step.at),
        )

    # The outbox

    def _latest_of(self, subject: str) -> str:
        latest = self._latest_by_row(subject) or self._latest_by_search(subject)
        if latest is None:
            raise NothingKnown(
                f"{subject} has no row with an event, and none of the newest events in the outbox is about it: "
                "trace an event by its id"
            )
        return latest

    def _latest_by_row(self, subject: str) -> str | None:
        short_name, _, key = subject.partition("/")
        tables = self._deployment.tables
        if short_name not in tables:
            known = ", ".join(f"{name}/…" for name in sorted(tables))
            raise UnknownSubject(f"{subject} is about no table of this stage; a subject begins with one of {known}")
        table = clients.dynamodb().describe_table(TableName=tables[short_name])["Table"]
        (hash_key,) = (part["AttributeName"] for part in table["KeySchema"] if part["KeyType"] == "HASH")
        types = {each["AttributeName"]: each["AttributeType"] for each in table["AttributeDefinitions"]}
        rows = clients.dynamodb().query(
            TableName=tables[short_name],
            KeyConditionExpression="#key = :key",
            ExpressionAttributeNames={"#key": hash_key},
            ExpressionAttributeValues={":key": {types[hash_key]: key}},
            ProjectionExpression="last_event_id",
            ConsistentRead=True,
        )["Items"]
        return max((each["S"] for row in rows if "S" in (each := row.get("last_event_id", {}))), default=None)

    def _latest_by_search(self, subject: str) -> str | None:
        shard = shard_of_subject(subject)
        places = (pending(shard), sent(shard), DEAD, DISCARDED)
        return max(filter(None, (_newest_about(subject, place) for place in places)), default=None)

    # The consumers

    def _records(self, event_id: str) -> list[Record]:
        ids = [record_id(record_prefix(name), event_id) for name in self._deployment.consumers]
        found = {row_of(each).id: each for each in read_keys(IdempotencyRow, ids)}
        return [found[each] for each in ids if each in found]

    def _record(self, found: Record) -> ConsumerRecord:
        row, flaw = row_of(found), flaw_of(found)
        failure = flaw or self._failure_of(row)
        state = RecordState.UNREADABLE if flaw else self._state_of(row, failure)
        return ConsumerRecord(_consumer_of(row), state, int(row.attempts or 0), failure)

    def _state_of(self, row: IdempotencyRow, failure: Failure | None) -> RecordState:
        if row.status == COMPLETED:
            return RecordState.HANDLED
        if row.status == INPROGRESS and failure is None:
            return RecordState.AT_WORK
        if row.status != INPROGRESS and not row.failing:
            deeds = read_history(row.history)
            return _AFTER.get(deeds[-1]["action"] if deeds else "", RecordState.SENT_AGAIN)
        backoff = self._runtime.timings.consumer_backoff
        final = failure is not None and backoff.is_over(failure, int(row.attempts or 0))
        return RecordState.DEAD if final else RecordState.RETRYING

    def _failure_of(self, row: IdempotencyRow) -> Failure | None:
        if row.failure:
            return Failure.from_json(row.failure)
        over = int(row.in_progress_until) <= epoch_milliseconds(self._runtime.clock.now())
        return ENDED_SILENTLY if row.status == INPROGRESS and over else None

    def _record_steps(self, found: Record) -> Iterator[Step]:
        row = row_of(found)
        failure = flaw_of(found) or self._failure_of(row)
        name, attempts = _consumer_of(row), int(row.attempts or 0)
        yield from _deeds(row.history, name)
        if row.first_failed_at and row.first_failed_at != row.failed_at:
            yield Step(row.first_failed_at, name, StepKind.FAILED, "for the first time")
        if row.failed_at and failure:
            yield Step(row.failed_at, name, StepKind.FAILED, f"{_attempts(attempts)}: {_said(failure)}")
        if isinstance(found, Unreadable):
            return
        # The record is to live so long from the moment at which its last attempt began; only the second is known,
        # and written so it sorts after what is known to have happened within it.
        life = timedelta(seconds=self._runtime.timings.consumer_record_life)
        began = (row.expires_at - life).strftime("%Y-%m-%dT%H:%M:%SZ")
        if row.status == COMPLETED:
            yield Step(began, name, StepKind.HANDLED, _attempts(attempts))
        elif row.status == INPROGRESS:
            kind = StepKind.AT_WORK if failure is None else StepKind.FAILED
            yield Step(began, name, kind, f"{_attempts(attempts)}{f': {_said(failure)}' if failure else ''}")


def _outbox_steps(row: OutboxRow) -> Iterator[Step]:
    if row.created_at:
        yield Step(row.created_at, OUTBOX, StepKind.WRITTEN, f"mended copy of {row.parent}" if row.parent else "")
    failure = Failure.from_json(row.failure) if row.failure else None
    why = f": {_said(failure)}" if failure else ""
    attempts = _attempts(int(row.retry_count or 0))
    if row.died_at:
        yield Step(row.died_at, OUTBOX, StepKind.DIED, f"{attempts}{why}")
    # A mended copy inherits the deeds done to its parent: those are told there.
    yield from _deeds(row.history, OUTBOX, since=(row.created_at or "") if row.parent else "")
    if row.sent_at:
        yield Step(row.sent_at, OUTBOX, StepKind.SENT)
    elif row.next_attempt_at:
        yield Step(row.next_attempt_at, OUTBOX, StepKind.WAITS, f"until then, after {attempts}{why}")


def _deeds(history: str | None, where: str, *, since: str = "") -> Iterator[Step]:
    for deed in read_history(history):
        if deed["at"] <= since:
            continue
        detail = f"by {deed['by']}: {deed['why']}"
        if became := deed.get(BECAME):
            detail += f"; became {became}"
        if failure := deed.get("failure"):
            detail += f"; had failed: {failure['type']}: {failure['message']}"
        yield Step(deed["at"], where, StepKind(deed["action"]), detail)


def _became(row: OutboxRow | IdempotencyRow) -> str | None:
    return next((deed[BECAME] for deed in reversed(read_history(row.history)) if BECAME in deed), None)


def _newest_about(subject: str, place: str) -> str | None:
    rows = OutboxRow.query(
        place, filter_condition=OutboxRow.subject == subject, scan_index_forward=False, consistent_read=True
    )
    for _ in range(_SEARCHED_PAGES):
        try:
            page = next(rows.page_iter)
        except StopIteration:
            return None
        if page["Items"]:
            newest: str = page["Items"][0]["event_id"]["S"]
            return newest
    return None


def _consumer_of(row: IdempotencyRow) -> str:
    return re.fullmatch(f"{record_prefix('(.*)')}#[^#]*", row.id)[1]  # type: ignore[index]


def _attempts(count: int) -> str:
    return f"{count} attempt{'' if count == 1 else 's'}"


def _said(failure: Failure) -> str:
    return f"{failure.type}: {failure.message}"
