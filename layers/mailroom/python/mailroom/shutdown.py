"""How a process learns that it should end: SIGTERM from a platform, SIGINT from a terminal."""

from __future__ import annotations

import _thread
import os
import signal
import threading
from typing import Any, NoReturn

FORCED = 1
"""The exit code of a process that was told twice, or ran out of grace: what ran was cut off."""


class Shutdown:
    """The wish that this process ends. The first signal asks for it; the second ends the process at once.

    Attributes
    ----------
    requested
        Set from the first signal on.
    signals
        How many have come.
    """

    def __init__(self) -> None:
        self.requested = threading.Event()
        self.signals = 0
        self._before: dict[signal.Signals, Any] = {}

    def install(self) -> None:
        """Listen to SIGTERM and SIGINT from now on.

        Raises
        ------
        ValueError
            If this is not the main thread: Python lets no other one listen.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._told)

    def uninstall(self) -> None:
        """Leave the signals to whoever had them before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the first signal; answer whether it has come."""
        return self.requested.wait(timeout)

    def _told(self, number: int, frame: object) -> None:
        self.signals += 1
        if self.signals > 1:
            end_at_once()
        # The main thread may hold the event's lock right here, and would wait for itself: another one sets it.
        _thread.start_new_thread(self.requested.set, ())


def end_at_once() -> NoReturn:
    """End this process whatever its threads are at; nothing less does while they are."""
    os._exit(FORCED)
