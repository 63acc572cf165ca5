"""Calls: one request as a route sees it."""

from __future__ import annotations

from dataclasses import dataclass

from mailroom.http.caller import Caller
from mailroom.http.cursors import Cursors
from mailroom.http.precondition import ANY, IfMatch
from mailroom.unit_of_work import UnitOfWork


@dataclass(frozen=True, slots=True)
class Call:
    """One request as a route sees it.

    Parameters
    ----------
    work
        Takes the rows and events of the request; the edge commits it once the route has replied.
    deadline
        The `clock.monotonic()` from which nothing new is begun.
    cursors
        Those of this route and this caller.
    if_match
        The versions that a PATCH or DELETE is for: the route has to hold them against what it finds.
    """

    work: UnitOfWork
    caller: Caller
    deadline: float
    cursors: Cursors
    if_match: IfMatch = ANY

    def out_of_time(self) -> bool:
        """Answer whether the route should come to its reply."""
        return self.work.runtime.clock.monotonic() >= self.deadline
