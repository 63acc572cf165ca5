"""Its settings."""

from typing import ClassVar

from mailroom.settings import Environment


class WorkerAppSettings(Environment):
    """A table, and what to hold a message by."""

    prefix: ClassVar[str] = "WORKER_APP"

    effects_table: str
    gate: str
    """A named pipe: whoever reads it waits until somebody opens it to write. No file, no waiting."""
    hold: str
    """Which messages wait there, by their numbers in a process, e.g. `3` or `1,2`."""
