"""One run of a handler outside Lambda: as much of Lambda's context as the edges ask for."""

from __future__ import annotations

from mailroom.clock import Clock


class Invocation:
    """A run that may take so long, and can be told to end sooner.

    Parameters
    ----------
    request_id
        Names the run in log lines.
    seconds
        How long it may take, from now on.
    """

    def __init__(self, clock: Clock, *, request_id: str, seconds: float) -> None:
        self.aws_request_id = request_id
        self._clock = clock
        self._ends = clock.monotonic() + seconds

    def get_remaining_time_in_millis(self) -> int:
        """Answer the milliseconds left, as Lambda's context does; 0 when the time is over."""
        return max(0, int((self._ends - self._clock.monotonic()) * 1000))

    def end(self) -> None:
        """Leave it no more time: it finishes what it has begun, and begins nothing more."""
        self._ends = min(self._ends, self._clock.monotonic())
