"""A dead letter, what an operator does to it, and what comes of that."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from mailroom.failures import Failure, cut
from mailroom.history import read_history, write_history

OUTBOX = "outbox"
"""The source of events that could not be published; the other sources are the consumers, by name, and what did not
reach their queues, `NAME-undelivered`."""
MAX_WHY = 200
"""Characters of a reason that somebody may write."""
_MAX_WHY_BYTES = 4 * MAX_WHY + 100
"""What they take in a row at most: characters have up to four bytes, and some are escaped in JSON."""
_MAX_BY_BYTES = 500


class Action(StrEnum):
    """What an operator does."""

    REDRIVE = "redrive"
    EDIT = "edit"
    DISCARD = "discard"


class Fate(StrEnum):
    """What came of it, for one letter."""

    DONE = "done"
    NOT_DEAD = "not dead"
    """It is pending, sent or handled: someone was faster, or it never was dead."""
    UNKNOWN = "unknown"
    """Nothing has this id."""
    NOT_IN_QUEUE = "not in the dead-letter queue"
    """SQS has not moved it there yet, or someone else is moving it at this moment."""
    NOT_FOUND = "not found"
    """It is not among the messages that were looked at, and the queue has more."""
    SUCCEEDED_BEFORE = "succeeded before"
    """Its effect has happened: only `force` runs it again."""
    REPLACED = "replaced"
    """A mended copy took its place: only `force` runs it."""
    RECORD_EXPIRED = "record expired"
    """Whether its effect has happened is not known any more: only `force` runs it."""
    UNREADABLE = "cannot be read"
    """Its row would only be set aside again: mend it, or give it up."""
    FAILED = "failed"
    """AWS or the consumer refused; the letter is where it was."""
    NOT_TRIED = "not tried"
    """The job stopped before it."""


@dataclass(frozen=True, slots=True)
class Deed:
    """Who does something to a dead letter or a saga, when, and why: of more than rows have room for, the beginning."""

    by: str
    at: str
    why: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "by", cut(self.by, _MAX_BY_BYTES))
        object.__setattr__(self, "why", cut(self.why, _MAX_WHY_BYTES))


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event that could not be published, or that a consumer could not handle.

    Parameters
    ----------
    id
        The event's id; `message/<id>` for a message in which no event could be read.
    source
        `outbox`, the consumer's name, or `NAME-undelivered`.
    state
        `dead`; or `retrying`, for a consumer that has attempts left and was heard of lately.
    died_at
        When it died, or failed last; of a message of which no record tells, when it was sent.
    expires_at
        When its message leaves the dead-letter queue for good; None is never.
    doubt
        Why sending it again may make its effect happen twice; None if nothing says so.
    payload
        What its message holds, where that was looked at: it is for nobody's list.
    """

    id: str
    source: str
    state: str
    type: str
    subject: str | None
    failure: Failure
    attempts: int
    died_at: str
    redriven: int = 0
    expires_at: datetime | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    doubt: Fate | None = None
    payload: str | None = field(default=None, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values, without the payload."""
        values = asdict(self)
        del values["payload"]
        values["failure"]["kind"] = self.failure.kind.value
        values["expires_at"] = self.expires_at and self.expires_at.isoformat()
        return values


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a deed for one letter.

    Parameters
    ----------
    detail
        The error, the id of the new event, or why not.
    """

    id: str
    source: str
    fate: Fate
    detail: str = ""

    @property
    def ok(self) -> bool:
        """Whether it is as it was meant to be."""
        return self.fate is Fate.DONE


@dataclass(frozen=True, slots=True)
class Search:
    """What a look through dead-letter queues came upon.

    Parameters
    ----------
    looked_at, of
        Messages that were looked at, and about how many there are.
    """

    letters: tuple[DeadLetter, ...] = ()
    looked_at: int = 0
    of: int = 0

    def __add__(self, other: Search) -> Search:
        """Return two as one."""
        return Search(self.letters + other.letters, self.looked_at + other.looked_at, self.of + other.of)


BECAME = "became"
"""Where a deed names the event that took this one's place."""


def remembered(
    history: str | None,
    action: Action,
    deed: Deed,
    failure: Failure | None,
    attempts: int,
    *,
    became: str | None = None,
) -> str:
    """Return a row's history with one deed more; the oldest go when there are too many."""
    deeds = read_history(history)
    entry = {"action": action.value, **asdict(deed), "attempts": attempts}
    if became is not None:
        entry[BECAME] = became
    if failure is not None:
        entry["failure"] = asdict(failure)
    return write_history([*deeds, entry])
