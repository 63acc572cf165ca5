"""Retrying a saga: an operator has its present step asked for again, whatever became of the last request."""

from __future__ import annotations

from mailroom.dead_letters.letter import Deed
from mailroom.reading import Unreadable, read_one
from mailroom.runtime import Runtime
from mailroom.saga import STARTING, ask_again
from mailroom.saga_row import SagaRow
from mailroom.trace import NothingKnown
from mailroom.transaction import CommitConflict
from mailroom.unit_of_work import RowChanged, UnitOfWork


class NotRetried(Exception):
    """A saga is finished, or moved at this very moment; nothing was written."""


def find(saga_id: str) -> SagaRow | Unreadable[SagaRow]:
    """Answer a saga, strongly consistent, be it one that cannot be read.

    Raises
    ------
    NothingKnown
        If there is none.
    """
    found = read_one(SagaRow, saga_id)
    if found is None:
        raise NothingKnown(f"there is no saga {saga_id}: there never was, or it ended long ago")
    return found


def retry(saga_id: str, deed: Deed, runtime: Runtime) -> SagaRow:
    """Ask for the step at which a saga stands, and note who did; answer the saga as it stands now.

    What is stuck goes on, and is stuck again if the cause is still there. Twice is harmless: of two requests for one
    step the second finds a saga that has moved on.

    Raises
    ------
    NothingKnown
        If there is no such saga.
    NotRetried
        If it is finished or cannot be read, or somebody else was faster.
    """
    row = find(saga_id)
    if isinstance(row, Unreadable):
        raise NotRetried(f"the saga {saga_id} cannot be read: {row.failure.message}: mend its row first")
    if row.unfinished is None:
        raise NotRetried(f"the saga {saga_id} is {row.status}: there is nothing left to do")
    work = UnitOfWork(runtime, STARTING)
    row.take_up(deed)
    ask_again(row, work)
    try:
        work.commit()
    except (RowChanged, CommitConflict) as error:
        raise NotRetried(f"the saga {saga_id} moved at this very moment: look again by `mailroom saga show`") from error
    return row
