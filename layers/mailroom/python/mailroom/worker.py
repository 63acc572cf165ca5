"""The worker: the same consumers outside Lambda, in a container or on a laptop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from threading import Event, RLock, Thread
from typing import Any

from mailroom import telemetry
from mailroom.consumer import Consumer, ConsumerEdge
from mailroom.failures import Failure, FailureKind, failure_of
from mailroom.invocation import Invocation
from mailroom.runtime import Runtime
from mailroom.shutdown import Shutdown
from mailroom.sources.source import (
    MAX_BATCH,
    MAX_RECEIVES,
    Record,
    Sink,
    Source,
    SourceRefused,
    longest_hiding,
    receives_of,
)
from mailroom.telemetry import LogEvent, Metric

Handler = Callable[[dict[str, Any], Any], Mapping[str, Any] | None]
"""What Lambda would call with a batch: it answers the messages that are to come again as `batchItemFailures`."""

_DELETE_WITHIN = 1
"""Seconds from the start of a handled message for which its deletion may wait for others."""
_NAP = 0.5
"""The longest wait in seconds that goes by without a look at whether to end."""


@dataclass(slots=True)
class Tally:
    """What became of the messages of one worker."""

    handled: int = 0
    failed: int = 0
    handed_back: int = 0


@dataclass(slots=True)
class _Held:
    """A message that was received; nobody else gets it before `hidden_until`, by the monotonic clock."""

    record: Record
    hidden_until: float

    @property
    def receipt(self) -> str:
        receipt: str = self.record["receiptHandle"]
        return receipt

    @property
    def message_id(self) -> str:
        message_id: str = self.record["messageId"]
        return message_id

    @property
    def is_last_chance(self) -> bool:
        """Whether it is delivered for the last time: given back, it would be dead without having been tried."""
        return receives_of(self.record) >= MAX_RECEIVES


class Worker:
    """Receives messages, handles one after the other, and deletes each after its effect.

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
        self._waiting: list[_Held] = []
        self._visibility = RLock()  # guards what waits, and makes changes of its visibility one at a time
        self._handled: list[_Held] = []
        self._handled_since = 0.0
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
            while not self._stopping.is_set():
                with telemetry.flushed_metrics():
                    self._work_on(self._receive())
        finally:
            telemetry.log(LogEvent.WORKER_STOPPED, consumer=self._name, **asdict(self._tally))
            self._ended.set()

    def stop(self) -> None:
        """Receive nothing more and give back at once what has not begun; what runs goes on. Any thread may call it."""
        self._stopping.set()
        self._give_back()

    def shutdown(self, timeout: float) -> bool:
        """Stop, and answer whether all that ran has ended within so many seconds. Another thread calls it."""
        self.stop()
        return self._ended.wait(timeout)

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
        until = self._clock.monotonic() + pause
        while (left := until - self._clock.monotonic()) > 0 and not self._stopping.is_set():
            self._clock.sleep(min(left, _NAP))

    def _work_on(self, records: Sequence[Record]) -> None:
        hidden_until = self._clock.monotonic() + self._hiding
        with self._visibility:
            # Those that were handed back most often go first: SQS moves a message on after so many deliveries.
            ordered = sorted(records, key=receives_of, reverse=True)
            self._waiting = [_Held(record, hidden_until) for record in ordered]
        while (message := self._next()) is not None:
            self._handle(message)
        self._delete_handled()

    def _next(self) -> _Held | None:
        """Answer the next message, hidden for as long as its handler may take."""
        with self._visibility:
            if self._stopping.is_set():
                self._give_back()
            self._keep_hidden()
            return self._waiting.pop(0) if self._waiting else None

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
                self._log_failure(LogEvent.MESSAGE_NOT_KEPT, each, failed[each.receipt])
            elif each.receipt in wanted:
                each.hidden_until = now + wanted[each.receipt]
        # A stale one is somebody else's by now; whether it is, is not known of one that SQS did not answer for.
        self._waiting = [each for each in self._waiting if not _is_stale(failed.get(each.receipt))]

    def _hiding_for(self, message: _Held, now: float) -> int | None:
        """Answer the seconds to hide a message for; None if that would not hide it for longer."""
        if message.hidden_until - now >= self._needed:
            return None
        seconds = int(min(self._hiding, longest_hiding(message.record, self._clock.now())))
        return seconds if now + seconds > max(now, message.hidden_until) else None

    def _handle(self, message: _Held) -> None:
        began = self._clock.monotonic()
        invocation = Invocation(self._clock, request_id=message.message_id, seconds=self._timeout)
        try:
            answer = self._handler({"Records": [message.record]}, invocation)
            failed = bool((answer or {}).get("batchItemFailures"))
        except Exception as error:
            telemetry.log_error(LogEvent.HANDLER_FAILED, error, consumer=self._name, message_id=message.message_id)
            failed = True
        if failed:
            self._tally.failed += 1
        else:
            self._tally.handled += 1
            self._handled_since = self._handled_since if self._handled else began
            self._handled.append(message)
        if self._handled and self._clock.monotonic() - self._handled_since >= _DELETE_WITHIN:
            self._delete_handled()

    def _delete_handled(self) -> None:
        handled, self._handled = self._handled, []
        if not handled:
            return
        failed = self._source.delete([each.receipt for each in handled])
        for each in handled:
            if each.receipt in failed:
                # It comes again, and its record answers that it was handled.
                telemetry.count(Metric.MESSAGES_NOT_DELETED)
                self._log_failure(LogEvent.MESSAGE_NOT_DELETED, each, failed[each.receipt])

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
                self._log_failure(LogEvent.MESSAGE_NOT_RETURNED, each, failed[each.receipt])

    def _log_failure(self, event: LogEvent, message: _Held, failure: Failure) -> None:
        if _is_stale(failure):
            telemetry.count(Metric.RECEIPTS_STALE)
        telemetry.log(event, failure=failure, consumer=self._name, message_id=message.message_id)


def _is_stale(failure: Failure | None) -> bool:
    return failure is not None and failure.kind is FailureKind.PERMANENT


def workers_of(
    consumer: Consumer, runtime: Runtime, source: Source, *, count: int, parts: Sink | None = None
) -> list[Worker]:
    """Make workers of a consumer, to work side by side.

    Each has an edge of its own: Powertools' layers are not proven to be thread-safe. Where there are several, each
    takes one message at a time: none is to wait behind another while there are hands for it.

    Parameters
    ----------
    parts
        Where the parts go into which the consumer splits its events.
    """
    return [
        Worker(
            source,
            ConsumerEdge(consumer, runtime, source, parts=parts).handle,
            runtime,
            name=consumer.name,
            timeout=consumer.timeout,
            batch_size=MAX_BATCH if count == 1 else 1,
        )
        for _ in range(count)
    ]


def work_until(shutdown: Shutdown, workers: Iterable[Worker], runtime: Runtime, *, grace: float) -> bool:
    """Run workers side by side, each in a thread, until the process is to end.

    Parameters
    ----------
    grace
        Seconds for what runs to end in. Threads that need longer are left at work.

    Returns
    -------
    bool
        Whether all ended in time.

    Raises
    ------
    BaseException
        What ended a worker before it was told to; the others were stopped then.
    """
    lanes = [_Lane(worker, shutdown) for worker in workers]
    for lane in lanes:
        lane.start()
    shutdown.wait()
    deadline = runtime.clock.monotonic() + grace
    for lane in lanes:
        lane.worker.stop()
    ended = [lane.worker.shutdown(max(0, deadline - runtime.clock.monotonic())) for lane in lanes]
    for lane in lanes:
        if lane.error is not None:
            raise lane.error
    return all(ended)


class _Lane(Thread):
    """A worker's thread. An error in one ends the process: half a worker is worse than a restart."""

    def __init__(self, worker: Worker, shutdown: Shutdown) -> None:
        super().__init__(name="worker", daemon=True)
        self.worker = worker
        self.error: BaseException | None = None
        self._shutdown = shutdown

    def run(self) -> None:
        """Work until told to stop."""
        try:
            self.worker.run()
        except BaseException as error:
            self.error = error
        finally:
            self._shutdown.requested.set()
