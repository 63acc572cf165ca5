"""When to try again: the only back-off arithmetic in the house, and the loop that stands on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from mailroom.clock import Clock, wait
from mailroom.failures import Failure, FailureKind, failure_of

T = TypeVar("T")

_LARGEST_EXPONENT = 60  # 2**60 seconds outlasts any cap, and floats stay finite at any attempt


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off with jitter.

    Parameters
    ----------
    base
        Seconds before the first repetition.
    cap
        The longest wait in seconds, before jitter.
    attempts
        How often something is tried in all, the first time included.
    """

    base: float
    cap: float
    attempts: int

    def delay(self, attempt: int, random: Random) -> float:
        """Answer the seconds to wait after the failed attempt with this number, counted from 0."""
        full = self._full(attempt)
        return full + random.uniform(0, full / 2)

    def attempt_after(self, seconds: float) -> int:
        """Return the number of the attempt that so many seconds have passed for since the first: counted from 0."""
        attempt, passed = 0, self._full(0)
        while passed <= seconds and attempt < _LARGEST_EXPONENT:
            attempt += 1
            passed += self._full(attempt)
        return attempt

    def shortest_delay(self, attempt: int) -> float:
        """Return the seconds to wait after the failed attempt with this number, were there no jitter."""
        return self._full(attempt)

    def is_over(self, failure: Failure, attempts: int) -> bool:
        """Answer whether what failed so, for the so-maniest time, is not tried again."""
        return failure.kind is FailureKind.PERMANENT or attempts >= self.attempts

    def longest_delay(self) -> float:
        """Answer the longest wait in seconds, under the most jitter."""
        return 1.5 * self.cap

    def shortest_span(self) -> float:
        """Answer the seconds from the first attempt to the last, were there no jitter."""
        return sum(self._full(attempt) for attempt in range(self.attempts - 1))

    def longest_span(self) -> float:
        """Answer the seconds from the first attempt to the last under the most jitter."""
        return 1.5 * self.shortest_span()

    def _full(self, attempt: int) -> float:
        return min(self.cap, self.base * 2.0 ** min(attempt, _LARGEST_EXPONENT))


def retry(
    operation: Callable[[], T],
    *,
    backoff: Backoff,
    clock: Clock,
    random: Random,
    on: type[Exception] = Exception,
    until: Callable[[], bool] | None = None,
    deadline: float | None = None,
) -> T:
    """Call `operation` until it succeeds, and answer what it answered.

    Parameters
    ----------
    on
        The errors that are worth another attempt; others pass through.
    until
        Asked before each wait and in it; once true, the wait ends and nothing is tried any more (a shutdown).
    deadline
        A `clock.monotonic()` that no wait may reach, and from which nothing is tried again.

    Raises
    ------
    Exception
        The last error, its own cause chained: at once if it is permanent, else when the attempts or
        the time are used up, or `until` says so.
    """
    attempt = 0
    while True:
        try:
            return operation()
        except on as error:
            failure = failure_of(error)
            attempt += 1
            if failure.kind is FailureKind.PERMANENT or attempt >= backoff.attempts:
                raise
            seconds = max(backoff.delay(attempt - 1, random), failure.retry_after or 0)
            if not _waited(clock, seconds, until, deadline):
                raise


def _waited(clock: Clock, seconds: float, until: Callable[[], bool] | None, deadline: float | None) -> bool:
    """Wait, if there is time to; return whether there is time to go on."""
    if deadline is not None and clock.monotonic() + seconds >= deadline:
        return False
    if until is None:
        clock.sleep(seconds)
    elif not wait(clock, seconds, called_off=until):
        return False
    return deadline is None or clock.monotonic() < deadline  # the process may have stood still meanwhile
