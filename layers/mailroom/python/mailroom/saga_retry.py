"""Retrying a saga: an operator has its present step asked for again, whatever became of the last request."""

from __future__ import annotations

from mailroom.dead_letters.letter import Deed
from mailroom.runtime import Runtime
from mailroom.saga import STARTING, ask_again
from mailroom.saga_row import SagaRow
from mailroom.trace import NothingKnown
from mailroom.transaction import CommitConflict
from mailroom.unit_of_work import RowChanged, UnitOfWork


class NotRetried(Exception):
    """A saga is finished, or moved at this very moment; nothing was written."""


def find(saga_id: str) -> SagaRow:
    """Answer a saga, strongly consistent.

    Raises
    ------
    NothingKnown
        If there is none.
    """
    try:
        return SagaRow.get(saga_id, consistent_read=True)
    except SagaRow.DoesNotExist as error:
        raise NothingKnown(f"there is no saga {saga_id}: there never was, or it ended long ago") from error


def retry(saga_id: str, deed: Deed, runtime: Runtime) -> SagaRow:
    """Ask for the step at which a saga stands, and note who did; answer the saga as it stands now.

    What is stuck goes on, and is stuck again if the cause is still there. Twice is harmless: of two requests for one
    step the second finds a saga that has moved on.

    Raises
    ------
    NothingKnown
        If there is no such saga.
    NotRetried
        If it is finished, or somebody else was faster.
    """
    row = find(saga_id)
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
