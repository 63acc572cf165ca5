"""A guard over work at many things: one's trouble is not the others', and is told all the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mailroom import telemetry
from mailroom.telemetry import LogEvent, Metric


class Guard:
    """Lets the work at one thing fail alone: its error is logged and counted at once, and raised at the end.

    Parameters
    ----------
    event, metric
        What an error is logged and counted as.
    """

    def __init__(self, event: LogEvent, metric: Metric) -> None:
        self._event = event
        self._metric = metric
        self._errors: dict[str, Exception] = {}

    @contextmanager
    def over(self, **thing: Any) -> Iterator[None]:
        """Work at a thing in the block; an error ends the block alone.

        Parameters
        ----------
        thing
            What it is, as the log line says it, e.g. `shard="03"`.
        """
        try:
            yield
        except Exception as error:
            telemetry.log_error(self._event, error, **thing)
            telemetry.count(self._metric)
            named = ", ".join(f"{name} {value}" for name, value in thing.items())
            error.add_note(f"at {named}")
            self._errors[named] = error

    def tell(self) -> None:
        """Raise what went wrong, if anything did.

        Raises
        ------
        ExceptionGroup
            With the latest error at each thing.
        """
        if self._errors:
            raise ExceptionGroup(f"failed at {'; '.join(sorted(self._errors))}", list(self._errors.values()))
