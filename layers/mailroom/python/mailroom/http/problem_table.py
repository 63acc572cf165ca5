"""The one table that says what an error means to the caller of an API."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeVar

from mailroom.failures import Failure, FailureKind, failure_of
from mailroom.http import kinds
from mailroom.http.idempotency_key import HEADER
from mailroom.http.precondition import Stale
from mailroom.http.problem import Problem, ProblemKind
from mailroom.idempotency import KeyReused, StillRunning, Superseded
from mailroom.outbox.event import EventRefused
from mailroom.outbox.limits import EventTooLarge
from mailroom.unit_of_work import RowChanged

T = TypeVar("T")

ERRORS: Mapping[type[Exception], ProblemKind] = {
    KeyReused: kinds.KEY_REUSED,
    StillRunning: kinds.STILL_RUNNING,
    Superseded: kinds.STILL_RUNNING,
    RowChanged: kinds.CONFLICT,
    Stale: kinds.STALE,
    EventTooLarge: kinds.TOO_LARGE,
    EventRefused: kinds.EVENT_REFUSED,
}
"""The machinery's own errors that callers can do something about."""

DETAILS: Mapping[type[Exception], str] = {
    Superseded: "the first request with this key took longer than it may, and another one does its work now",
    RowChanged: "what the request is about was changed at the same time: read it again",
}
"""What callers are told where an error's own text names keys and tables; for all others that text is the detail."""

COME_BACK = frozenset({kinds.STILL_RUNNING, kinds.UNAVAILABLE})
"""Kinds of problem that go away by themselves: their answers have Retry-After."""


class ProblemTable:
    """Turns errors into problems.

    Parameters
    ----------
    domain
        What the application's own errors mean, each for its subclasses too.
    """

    def __init__(self, domain: Mapping[type[Exception], ProblemKind]) -> None:
        self._kinds = {**ERRORS, **domain}

    def problem_of(self, error: Exception) -> Problem:
        """Answer the problem that an error is; what the table does not know is ours to mend, and hidden."""
        if isinstance(error, Problem):
            return error
        kind = _by_class(self._kinds, error)
        if kind is not None:
            detail = _by_class(DETAILS, error) or str(error)
            return Problem(kind, detail, headers=_headers(kind, getattr(error, "retry_after", None)))
        return _unforeseen(failure_of(error))


def _by_class(found: Mapping[type[Exception], T], error: Exception) -> T | None:
    return next((found[base] for base in type(error).__mro__ if base in found), None)


def _unforeseen(failure: Failure) -> Problem:
    if failure.kind is FailureKind.UNAVAILABLE or failure.retry_after is not None:
        kind = kinds.UNAVAILABLE
        # A commit whose answer was lost may have taken effect: only the same key tells.
        detail = f"send the same request again, with the same {HEADER} if it has one"
        return Problem(kind, detail, headers=_headers(kind, failure.retry_after))
    return Problem(kinds.INTERNAL, "the error was logged under this request's trace id")


def _headers(kind: ProblemKind, retry_after: float | None) -> dict[str, str]:
    return {"Retry-After": str(max(1, math.ceil(retry_after or 1)))} if kind in COME_BACK else {}
