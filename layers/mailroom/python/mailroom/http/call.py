"""Calls: one request as a route sees it."""

from __future__ import annotations

from dataclasses import dataclass

from mailroom.http.caller import Caller
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
    """

    work: UnitOfWork
    caller: Caller
    deadline: float

    def out_of_time(self) -> bool:
        """Answer whether the route should come to its reply."""
        return self.work.runtime.clock.monotonic() >= self.deadline
