"""Deleting what was handled, beside the work: no message waits with its deletion for the next one's handler."""

from __future__ import annotations

from threading import Condition, Thread
from types import TracebackType
from typing import Self

from mailroom import telemetry
from mailroom.sources.held import Held, log_failure
from mailroom.sources.source import MAX_BATCH, Source
from mailroom.telemetry import LogEvent, Metric


class Deletions:
    """Deletes handled messages from a thread of its own, as many in a call as there are within a while.

    The thread lives as long as the `with` block, whose end waits until all is deleted.

    Parameters
    ----------
    consumer
        Whose messages they are, in log lines.
    within
        Seconds, by the machine's own clock, for which a deletion waits for others to go with it.
    """

    def __init__(self, source: Source, *, consumer: str, within: float) -> None:
        self._source = source
        self._consumer = consumer
        self._within = within
        self._handled: list[Held] = []
        self._changed = Condition()
        self._at_once = self._over = False

    def __enter__(self) -> Self:
        self._over = False
        self._thread = Thread(target=self._run, name="deletions", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._over = True
            self._changed.notify()
        self._thread.join()

    def add(self, message: Held) -> None:
        """Delete a message soon."""
        with self._changed:
            self._handled.append(message)
            self._changed.notify()

    def flush(self) -> None:
        """Let what there is wait for nothing more; this waits for nothing either."""
        with self._changed:
            self._at_once = bool(self._handled)
            self._changed.notify()

    def delete(self, messages: list[Held]) -> None:
        """Delete messages now. One that is not deleted comes again, and its record answers that it was handled."""
        with telemetry.flushed_metrics():
            failed = self._source.delete([each.receipt for each in messages])
            if failed:
                telemetry.count(Metric.MESSAGES_NOT_DELETED, len(failed))
            for each in messages:
                if each.receipt in failed:
                    log_failure(LogEvent.MESSAGE_NOT_DELETED, each, failed[each.receipt], consumer=self._consumer)

    def _run(self) -> None:
        while messages := self._next():
            try:
                self.delete(messages)
            except Exception as error:
                names = [each.names for each in messages]
                telemetry.log_error(LogEvent.MESSAGE_NOT_DELETED, error, consumer=self._consumer, messages=names)

    def _next(self) -> list[Held]:
        """Wait for messages to delete; none means that there will be no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._handled or self._over)
            self._changed.wait_for(self._is_due, timeout=self._within)
            self._at_once = False
            due, self._handled = self._handled, []
            return due

    def _is_due(self) -> bool:
        return self._at_once or self._over or len(self._handled) >= MAX_BATCH
