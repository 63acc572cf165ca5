"""What operators are shown, and what they send."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    Field,
    RootModel,
    SerializeAsAny,
    StringConstraints,
    model_validator,
)

from mailroom.dead_letters.filter import Filter
from mailroom.dead_letters.letter import MAX_WHY, Fate, Result
from mailroom.failures import Failure
from mailroom.history import read_history
from mailroom.http.command import Command
from mailroom.http.query import Limit, Query, Whole
from mailroom.legible_text import legible
from mailroom.outbox.event import SHARDS
from mailroom.outbox.listing import Found, Status
from mailroom.reading import Unreadable, flaw_of, row_of

MAX_IDS = 250
"""Letters that one request redrives: what fits the time of a request."""
USUAL_LIMIT = 100
"""Letters that one request redrives unless it says how many."""
_MAX_DETAIL = 300


class ListOutbox(Query):
    """Which events to list."""

    status: Status
    shard: Annotated[Whole, Field(ge=0, lt=SHARDS)] | None = None
    limit: Limit = 50
    cursor: str | None = None


class ListLetters(Query):
    """Which dead letters to list; without a source those of every source, one after the other."""

    source: str | None = None
    limit: Limit = 50
    cursor: str | None = None


_Id = Annotated[str, StringConstraints(min_length=1, max_length=128)]
_Text = Annotated[str, StringConstraints(min_length=1, max_length=256)]


class RedriveLetters(Command):
    """Which letters to send again, and why: those of a source by their ids, or all that are dead and pass the filters.

    Parameters
    ----------
    before, after
        The last and the first moment at which they died, with a time zone.
    limit
        How many are sent at most; 100 unless said, and none beside ids.
    """

    why: Annotated[str, StringConstraints(pattern=r"\S", max_length=MAX_WHY), AfterValidator(legible)]
    source: Annotated[str, StringConstraints(min_length=1, max_length=64)] | None = None
    ids: Annotated[list[_Id], Field(min_length=1, max_length=MAX_IDS)] | None = None
    type: _Text | None = None
    subject: _Text | None = None
    fingerprint: _Text | None = None
    before: AwareDatetime | None = None
    after: AwareDatetime | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_IDS)] | None = None
    force: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.ids is None:
            return self
        if self.source is None:
            raise ValueError("ids want the source that they died at")
        if self.limit is not None or not self.filter.keeps_all:
            raise ValueError("name ids, or filter and limit: not both")
        return self

    @property
    def filter(self) -> Filter:
        """The filter that is meant."""
        return Filter.of(
            type_=self.type,
            subject=self.subject,
            fingerprint=self.fingerprint,
            after=self.after,
            before=self.before,
        )


class Document(RootModel[dict[str, Any]]):
    """JSON values as they are."""


class Page(BaseModel):
    """Some items of a list; the last page has no `next_cursor`."""

    items: Sequence[SerializeAsAny[BaseModel]]
    next_cursor: str | None


class FailureView(BaseModel):
    """Why something failed."""

    kind: str
    type: str
    message: str
    excerpt: str | None
    fingerprint: str

    @classmethod
    def of(cls, written: str | None) -> Self | None:
        """Show a failure as rows keep it."""
        if written is None:
            return None
        failure = Failure.from_json(written)
        return cls(
            kind=failure.kind.value,
            type=failure.type,
            message=failure.message,
            excerpt=failure.excerpt or None,
            fingerprint=failure.fingerprint,
        )


class EventView(BaseModel):
    """An event of the outbox, without its payload.

    Parameters
    ----------
    unreadable
        Why its row cannot be read; null if it can. What of it cannot be read is null.
    """

    id: str
    status: str
    unreadable: FailureView | None
    type: str | None
    source: str | None
    subject: str | None
    created_at: str | None
    retry_count: int
    next_attempt_at: str | None
    sent_at: str | None
    died_at: str | None
    redriven: int
    failure: FailureView | None
    after: str | None
    parent: str | None
    expires_at: str | None

    @classmethod
    def of(cls, found: Found, **more: Any) -> Self:
        """Show an event."""
        row, flaw = row_of(found), flaw_of(found)
        return cls(
            id=row.event_id,
            status=row.status,
            unreadable=FailureView.of(flaw.to_json() if flaw else None),
            type=row.type,
            source=row.source,
            subject=row.subject,
            created_at=row.created_at,
            retry_count=int(row.retry_count or 0),
            next_attempt_at=row.next_attempt_at,
            sent_at=row.sent_at,
            died_at=row.died_at,
            redriven=int(row.redriven or 0),
            failure=FailureView.of(row.failure),
            after=row.after,
            parent=row.parent,
            expires_at=row.expires_at and row.expires_at.isoformat(),
            **more,
        )


class WholeEvent(EventView):
    """An event of the outbox with all that is known of it.

    Parameters
    ----------
    row
        The row with DynamoDB's types, where it cannot be read; else null.
    """

    payload: Any
    traceparent: str | None
    history: list[dict[str, Any]]
    row: dict[str, Any] | None

    @classmethod
    def of(cls, found: Found, **more: Any) -> Self:
        """Show an event."""
        row = row_of(found)
        return super().of(
            found,
            payload=None if row.payload is None else json.loads(row.payload),
            traceparent=row.traceparent,
            history=read_history(row.history),
            row=found.document() if isinstance(found, Unreadable) else None,
            **more,
        )


class ResultView(BaseModel):
    """What came of one letter."""

    id: str
    source: str
    fate: Fate
    detail: str

    @classmethod
    def of(cls, result: Result) -> Self:
        """Show a result."""
        return cls(id=result.id, source=result.source, fate=result.fate, detail=result.detail[:_MAX_DETAIL])


class Redriven(BaseModel):
    """What came of a redrive: also one that did nothing is answered with 200, so read `failed` and `more`."""

    retried: int
    done: int
    """The same, for callers of before."""
    failed: int
    more: bool
    """Whether letters may be left that were meant: ask again, under another key."""
    results: list[ResultView]

    @classmethod
    def of(cls, results: Sequence[Result], *, more: bool) -> Self:
        """Show results."""
        done = sum(result.ok for result in results)
        views = [ResultView.of(each) for each in results]
        return cls(retried=done, done=done, failed=len(results) - done, more=more, results=views)
