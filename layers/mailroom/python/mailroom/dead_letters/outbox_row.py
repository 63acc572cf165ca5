"""A dead row of the outbox as operators see it, be it one that cannot be read."""

from __future__ import annotations

from pynamodb.expressions.condition import Condition

from mailroom.dead_letters.letter import OUTBOX, Action, DeadLetter, Deed, remembered
from mailroom.failures import Failure, FailureKind
from mailroom.history import read_history
from mailroom.outbox.table import OutboxRow
from mailroom.reading import Unreadable, flaw_of, item_of, row_of

Found = OutboxRow | Unreadable[OutboxRow]
_UNTOLD = Failure(FailureKind.TRANSIENT, "Unknown", "the row says no reason")


def letter_of(found: Found) -> DeadLetter:
    """Show a dead row as a letter, be it one that cannot be read."""
    row = row_of(found)
    stored = Failure.from_json(row.failure) if row.failure else _UNTOLD
    return DeadLetter(
        id=row.event_id,
        source=OUTBOX,
        state="dead",
        type=row.type or "?",
        subject=row.subject,
        failure=flaw_of(found) or stored,
        attempts=int(row.retry_count or 0),
        died_at=row.died_at or "",
        redriven=int(row.redriven or 0),
        history=read_history(row.history),
    )


def history_of(found: Found, action: Action, deed: Deed, *, became: str | None = None) -> str:
    """Return the history of a dead row with one deed more."""
    row = row_of(found)
    failure = Failure.from_json(row.failure) if row.failure else flaw_of(found)
    return remembered(row.history, action, deed, failure, int(row.retry_count or 0), became=became)


def as_it_was(found: Found) -> Condition:
    """Return the condition that a row is there, has died no other time, and was not tried since it was read."""
    died_at = OutboxRow.died_at
    known = row_of(found).died_at
    due_at = row_of(found).next_attempt_at
    if known is None and due_at is not None:
        return OutboxRow.next_attempt_at == due_at
    if known is not None:
        return died_at == known
    return OutboxRow.event_id.exists() & (died_at.exists() if "died_at" in item_of(found) else died_at.does_not_exist())
