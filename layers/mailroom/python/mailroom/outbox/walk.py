"""How far a relay has come in a shard, and what came of one turn at it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from mailroom.lease import HeldLease
from mailroom.outbox.table import PAGE_SIZE
from mailroom.row import Item


@dataclass(slots=True)
class Walk:
    """One way through a shard's pending events, from the oldest on; it may be made in several turns.

    Parameters
    ----------
    unclean
        The lease was left by a holder that may have published what it did not mark: every page is checked
        against `sent`, and the first events go one by one, each counted before it is sent.
    careful
        How many events still go one by one.
    """

    cursor: Item | None = None
    unclean: bool = False
    careful: int = 0
    token: int = 0
    finished: bool = False

    def resume(self, held: HeldLease) -> None:
        """Go on under a lease: afresh and with caution, unless the only one to leave it unclean is this walk."""
        only_unfinished = self.unclean and held.token == self.token + 1
        if not held.was_clean and not only_unfinished:
            self.cursor, self.unclean, self.careful = None, True, PAGE_SIZE
        self.token = held.token

    def failed(self) -> None:
        """Forget that the walk went well so far: the next turn starts afresh."""
        self.unclean, self.finished = False, False


@dataclass(slots=True)
class Drained:
    """What one turn at a shard came to.

    Parameters
    ----------
    ours
        False if another relay holds the shard: nothing was done.
    more
        Whether there are more pages.
    next_due
        When the first event that waits, or the shard's pause, is due.
    """

    ours: bool = True
    more: bool = False
    sent: int = 0
    retried: int = 0
    dead: int = 0
    next_due: datetime | None = None

    def waits_until(self, due: datetime) -> None:
        """Note that something falls due then."""
        self.next_due = due if self.next_due is None else min(self.next_due, due)
