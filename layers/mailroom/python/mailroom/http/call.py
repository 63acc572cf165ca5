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
    """

    work: UnitOfWork
    caller: Caller
