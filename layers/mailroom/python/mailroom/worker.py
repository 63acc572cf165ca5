"""The worker: the same consumers outside Lambda, in a container or on a laptop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from threading import Event, RLock
from typing import Any

from mailroom import telemetry
from mailroom.clock import wait
from mailroom.failures import Failure, FailureKind, failure_of
from mailroom.invocation import Invocation
from mailroom.runtime import Runtime
from mailroom.sources.deletions import Deletions
from mailroom.sources.held import Held, is_stale, log_failure
from mailroom.sources.source import MAX_BATCH, Record, Source, SourceRefused, longest_hiding, receives_of
from mailroom.telemetry import LogEvent, Metric

Handler = Callable[[dict[str, Any], Any], Mapping[str, Any] | None]
"""What Lambda would call with a batch: it answers the messages that are to come again as `batchItemFailures`."""


@dataclass(slots=True)
class Tally:
    """What became of the messages of one worker."""

    handled: int = 0
    failed: int = 0
    handed_back: int = 0


class Worker:
    """Receives messages, handles one after the other, and deletes each after its effect, beside the work.

    A message is hidden from others for as long as its handler may take, before that begins; and so are those that
    wait behind it. Nothing hides it for longer: what runs beyond its time-out may be handled elsewhere, and the
    idempotency record arbitrates.

    Parameters
    ----------
    handler
        Called with one message at a time, and as much of a Lambda context as the edges ask for.
    name
        The consumer, in log lines.
    timeout
        Seconds that the handler may take for a message; None is the stage's default.
    batch_size
        How many messages it receives at a time, 1 to 10.
    deletions
        Who deletes what was handled; a thread of its own if not given.
    pause
        Answers the seconds for which to receive nothing, since what the work depends on is not there.
    """

    def __init__(
        self,
        source: Source,
        handler: Handler,
        runtime: Runtime,
        *,
        name: str,
        timeout: int | None = None,
        batch_size: int = MAX_BATCH,
        deletions: Deletions | None = None,
        pause: Callable[[], float] = lambda: 0,
    ) -> None:
        timings = runtime.timings
        self._source = source
        self._handler = handler
        self._runtime = runtime
        self._clock = runtime.clock
        self._name = name
        self._timeout = timeout or timings.consumer_timeout
        self._batch_size = batch_size
        self._needed = self._timeout + timings.stop_margin
        self._hiding = int(self._needed + timings.stop_margin)  # more than needed, so that quick messages need no call
        self._tally = Tally()
        self._waiting: list[Held] = []
        self._visibility = RLock()  # guards what waits, and makes changes of its visibility one at a time
        self._deletions = deletions or Deletions(source, consumer=name, within=timings.deletion_gathering)
        self._running: Held | None = None
        self._pause = pause
        self._failed_receives = 0
        self._has_received = False
        self._stopping, self._ended = Event(), Event()
        self._ended.set()

    @property
    def tally(self) -> Tally:
        """What became of the messages so far."""
        return self._tally

    def run(self) -> None:
        """Receive and handle until told to stop.

        Raises
        ------
        SourceRefused
            If the source could not be read from the start.
        """
        self._ended.clear()
        telemetry.log(LogEvent.WORKER_STARTED, consumer=self._name)
        try:
            with self._deletions:
                while not self._stopping.is_set():
                    with telemetry.flushed_metrics():
                        self._work_on(self._receive())
                    self._wait_for_dependency()
        finally:
            self._log_end()
            self._ended.set()

    def stop(self) -> None:
        """Receive nothing more and give back at once what has not begun; what runs goes on. Any thread may call it."""
        told_before, running = self._stopping.is_set(), self._running
        self._stopping.set()
        if not told_before:
            telemetry.log(LogEvent.WORKER_STOPPING, consumer=self._name, **(running.names if running else {}))
        self._deletions.flush()
        self._give_back()

    def shutdown(self, timeout: float) -> bool:
        """Stop, and return whether all that ran has ended within so many seconds. Another thread calls it.

        What has not is told of, as being cut off: the process is expected to end.
        """
        self.stop()
        if self._ended.wait(timeout):
            return True
        self._log_cut_off()
        return False

    def _log_cut_off(self) -> None:
        with self._visibility:
            cut_off = [*([self._running] if self._running else []), *self._waiting]
        if cut_off:
            with telemetry.flushed_metrics():  # those of the run may never be
                telemetry.count(Metric.MESSAGES_CUT_OFF, len(cut_off))
        for each in cut_off:
            left = max(0, round(each.hidden_until - self._clock.monotonic()))
            why = f"it had not ended when the worker's time was over; its message is visible to others in {left} s"
            failure = Failure(FailureKind.TRANSIENT, "CutOff", why)
            telemetry.log(LogEvent.MESSAGE_CUT_OFF, failure=failure, consumer=self._name, **each.names)
        self._log_end(cut_off=len(cut_off))

    def _log_end(self, *, cut_off: int = 0) -> None:
        telemetry.log(LogEvent.WORKER_STOPPED, consumer=self._name, **asdict(self._tally), cut_off=cut_off)

    def _receive(self) -> list[Record]:
        wait = self._runtime.timings.poll_wait
        try:
            records = self._source.receive(self._batch_size, wait=wait, hidden=self._hiding)
        except Exception as error:
            if isinstance(error, SourceRefused) and not self._has_received:
                raise
            self._pause_after(error)
            return []
        self._has_received, self._failed_receives = True, 0
        return records

    def _pause_after(self, error: Exception) -> None:
        telemetry.count(Metric.RECEIVES_FAILED)
        pause = self._runtime.timings.pause_backoff.delay(self._failed_receives, self._runtime.random)
        self._failed_receives += 1
        telemetry.log(LogEvent.RECEIVE_FAILED, failure=failure_of(error), consumer=self._name, pause=pause)
        self._rest(pause)

    def _wait_for_dependency(self) -> None:
        pause = self._pause()
        if pause > 0 and not self._stopping.is_set():
            telemetry.log(LogEvent.WORKER_PAUSED, consumer=self._name, pause=pause)
            self._rest(pause)

    def _rest(self, seconds: float) -> None:
        wait(self._clock, seconds, called_off=self._stopping.is_set)

    def _work_on(self, records: Sequence[Record]) -> None:
        hidden_until = self._clock.monotonic() + self._hiding
        with self._visibility:
            # Those that were handed back most often go first: SQS moves a message on after so many deliveries.
            ordered = sorted(records, key=receives_of, reverse=True)
            self._waiting = [Held(record, hidden_until) for record in ordered]
        while (message := self._next()) is not None:
            self._handle(message)
        self._deletions.flush()

    def _next(self) -> Held | None:
        """Answer the next message, hidden for as long as its handler may take."""
        with self._visibility:
            if self._stopping.is_set():
                self._give_back()
            self._keep_hidden()
            self._running = self._waiting.pop(0) if self._waiting else None
            return self._running

    def _keep_hidden(self) -> None:
        now = self._clock.monotonic()
        wanted = {
            each.receipt: seconds for each in self._waiting if (seconds := self._hiding_for(each, now)) is not None
        }
        if not wanted:
            return
        failed = self._source.hide(wanted)
        for each in self._waiting:
            if each.receipt in failed:
                log_failure(LogEvent.MESSAGE_NOT_KEPT, each, failed[each.receipt], consumer=self._name)
            elif each.receipt in wanted:
                each.hidden_until = now + wanted[each.receipt]
        # A stale one is somebody else's by now; whether it is, is not known of one that SQS did not answer for.
        self._waiting = [each for each in self._waiting if not is_stale(failed.get(each.receipt))]

    def _hiding_for(self, message: Held, now: float) -> int | None:
        """Answer the seconds to hide a message for; None if that would not hide it for longer."""
        if message.hidden_until - now >= self._needed:
            return None
        seconds = int(min(self._hiding, longest_hiding(message.record, self._clock.now())))
        return seconds if now + seconds > max(now, message.hidden_until) else None

    def _handle(self, message: Held) -> None:
        began, delivery = self._clock.monotonic(), receives_of(message.record)
        telemetry.log(LogEvent.MESSAGE_BEGUN, consumer=self._name, delivery=delivery, **message.names)
        invocation = Invocation(self._clock, request_id=message.message_id, seconds=self._timeout)
        try:
            answer = self._handler({"Records": [message.record]}, invocation)
            failed = bool((answer or {}).get("batchItemFailures"))
        except Exception as error:
            telemetry.log_error(LogEvent.HANDLER_FAILED, error, consumer=self._name, **message.names)
            failed = True
        self._running = None
        if failed:
            self._tally.failed += 1
            return
        self._tally.handled += 1
        self._deletions.add(message)
        if self._stopping.is_set() or self._clock.monotonic() - began >= self._runtime.timings.deletion_gathering:
            self._deletions.flush()

    def _give_back(self) -> None:
        with self._visibility:
            back = [each for each in self._waiting if not each.is_last_chance]
            if not back:
                return
            self._waiting = [each for each in self._waiting if each.is_last_chance]
            failed = self._source.hide(dict.fromkeys((each.receipt for each in back), 0))
        self._tally.handed_back += len(back) - len(failed)
        for each in back:
            if each.receipt in failed:
                log_failure(LogEvent.MESSAGE_NOT_RETURNED, each, failed[each.receipt], consumer=self._name)
