"""Single flight: of the runs of one name one is in the air, in this process and in all others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Lock
from typing import Self

from mailroom import telemetry
from mailroom.heartbeat import heartbeat
from mailroom.lease import HeldLease, Lease, LeaseLost
from mailroom.needs import Need
from mailroom.runtime import Runtime
from mailroom.telemetry import LogEvent


@contextmanager
def single_flight(name: str, runtime: Runtime, *, at_most: float) -> Iterator[HeldLease | None]:
    """Hold the lease of a name while the block runs; None if another run has it: do nothing then.

    A run that this process itself has in the air is known without asking AWS. The lease is renewed by a heartbeat,
    and given back at the end: clean if the block ended well. What ends the process leaves it to run out.

    Parameters
    ----------
    at_most
        Seconds for which the lease is renewed: a run that hangs for longer loses it.
    """
    with runtime.use(Flights).entered(name) as entered:
        lease = Lease(name, runtime).acquire() if entered else None
        if lease is None:
            yield None
            return
        with _renewed(lease, runtime, at_most):
            try:
                yield lease
            except Exception:
                _give_back(lease, clean=False)
                raise
        _give_back(lease, clean=True)


class Flights:
    """The names that this process has in the air. It is a port that needs nothing: one for each `Runtime`."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._names: set[str] = set()

    @classmethod
    def needs(cls, runtime: Runtime) -> tuple[Need, ...]:
        """Need nothing."""
        return ()

    @classmethod
    def connect(cls, runtime: Runtime) -> Self:
        """Make one with nothing in the air."""
        return cls()

    @contextmanager
    def entered(self, name: str) -> Iterator[bool]:
        """Answer whether the name was free, and keep it taken while the block runs."""
        with self._lock:
            free = name not in self._names
            self._names.add(name)
        try:
            yield free
        finally:
            if free:
                self._names.discard(name)


def _renewed(lease: HeldLease, runtime: Runtime, at_most: float) -> AbstractContextManager[None]:
    ends = runtime.clock.monotonic() + at_most

    def beat() -> bool:
        if runtime.clock.monotonic() >= ends:
            return False
        try:
            lease.ensure()
        except LeaseLost as error:
            # The run learns it where it asks for the time, or at its commit, which is refused.
            telemetry.log_error(LogEvent.LEASE_NOT_RENEWED, error, lease=lease.name)
            return False
        return True

    return heartbeat(beat, period=runtime.timings.lease / 4, name=f"heartbeat {lease.name}")


def _give_back(lease: HeldLease, *, clean: bool) -> None:
    try:
        lease.release(clean=clean)
    except Exception as error:
        # It runs out by itself; what the run did or failed at is the news.
        telemetry.log_error(LogEvent.LEASE_NOT_RELEASED, error, lease=lease.name)
