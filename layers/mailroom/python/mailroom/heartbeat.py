"""Heartbeats: what has to be said again and again while something else is at work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread


@contextmanager
def heartbeat(beat: Callable[[], bool], *, period: float, name: str) -> Iterator[None]:
    """Call `beat` from a thread of its own while the block runs, until it answers that it was the last time.

    Parameters
    ----------
    beat
        Answers whether to go on; raises nothing.
    period
        Seconds between two beats, by the machine's own clock: it is for the moments in which nobody else asks.
    """
    over = Event()

    def keep_beating() -> None:
        while not over.wait(period) and beat():
            pass

    thread = Thread(target=keep_beating, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
