"""One turn at a shard: what a relay does between taking the shard's lease and giving it back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from datetime import datetime, timedelta
from functools import partial

from mailroom import telemetry
from mailroom.clock import moment, timestamp
from mailroom.failures import Failure, FailureKind, failure_of
from mailroom.lease import HeldLease, LeaseLost
from mailroom.outbox.lanes import Lanes
from mailroom.outbox.table import BATCH_WRITE, OutboxTable, PendingEvent, pending, sent
from mailroom.outbox.walk import Drained, Walk
from mailroom.outbox.wave import Sender
from mailroom.publishers.publisher import NotTaken, Outcome, Publisher, Sent
from mailroom.runtime import Runtime
from mailroom.telemetry import LogEvent, Metric

PAUSED_UNTIL = "paused_until"
"""Where a shard's lease keeps until when the shard is left alone, since its destination is down."""
_PAUSES = "pauses"
_KILLED = Failure(
    FailureKind.PERMANENT,
    "RelayKilled",
    "the relay ended during each attempt to send it: memory, time-out or crash",
)


class Turn:
    """One hold of a shard's lease."""

    def __init__(
        self,
        runtime: Runtime,
        publisher: Publisher,
        threads: Executor,
        *,
        shard: int,
        held: HeldLease,
        walk: Walk,
        deadline: float | None,
    ) -> None:
        self.drained = Drained()
        self._runtime = runtime
        self._table = OutboxTable(runtime)
        self._shard = shard
        self._held = held
        self._walk = walk
        self._deadline = deadline
        self._confirmed = True
        self._lost = False
        self._paused = False
        self._taken = False
        self._first_untaken: Failure | None = None
        self._sender = Sender(
            runtime, publisher, threads, ensure=self._ensure, paused=lambda: self._paused, deadline=deadline
        )
        walk.resume(held)

    def run(self, pages: int | None) -> None:
        """Walk page by page until the end is reached, pages or time are used up, or the destination is down.

        Raises
        ------
        LeaseLost
            Nothing was marked since.
        """
        if self._still_paused():
            return
        while pages is None or pages > 0:
            page = self._table.page(self._shard, self._walk.cursor)
            self._deliver(page.events)
            if self._paused or self._out_of_time():
                return
            self._walk.cursor, self._walk.finished = page.cursor, page.cursor is None
            if self._walk.finished:
                return
            pages = None if pages is None else pages - 1
        self.drained.more = True

    def release(self) -> None:
        """Give the lease back: clean only if every write was confirmed and an unclean walk has seen every page."""
        if self._lost:
            return
        clean = self._confirmed and (self._walk.finished or not self._walk.unclean)
        if not self._confirmed:
            self._walk.failed()
        if not clean:
            telemetry.log(LogEvent.RELAY_LEFT_UNCLEAN, shard=self._shard)
        try:
            self._held.release(clean=clean)
        except LeaseLost as error:
            telemetry.log_error(LogEvent.RELAY_LEASE_LOST, error, shard=self._shard)

    # A page

    def _deliver(self, events: list[PendingEvent]) -> None:
        if not events:
            return
        self._ensure()
        self._taken, self._first_untaken = False, None
        confirmed, self._confirmed = self._confirmed, False  # until this page's marks are
        if self._walk.unclean:
            published = self._table.among(sent(self._shard), [event.id for event in events])
            confirmed = self._remove(published) and confirmed
            events = [event for event in events if event.id not in published]
        lanes = self._lanes(events)
        if self._walk.careful:
            confirmed = self._deliver_carefully(lanes) and confirmed
        self._confirmed = self._deliver_in_waves(lanes) and confirmed
        if self._first_untaken is not None and not self._taken:
            self._pause(self._first_untaken)

    def _lanes(self, events: list[PendingEvent]) -> Lanes:
        here = {event.id for event in events}
        elsewhere = [event.after for event in events if event.after is not None and event.after not in here]
        blocked = self._table.among(pending(self._shard), elsewhere)
        lanes = Lanes(events, now=timestamp(self._now()), blocked=blocked)
        for due_at in lanes.waiting_until:
            self.drained.waits_until(moment(due_at))
        return lanes

    def _deliver_in_waves(self, lanes: Lanes) -> bool:
        done: list[PendingEvent] = []
        try:
            while not self._paused and not self._out_of_time() and (wave := self._readable(lanes)):
                self._sender.send(wave, partial(self._judge, lanes, done))
        except LeaseLost:
            raise
        except Exception:
            self._mark(done)  # what was published must not be published again because of another event's error
            raise
        return self._mark(done)

    def _readable(self, lanes: Lanes) -> list[PendingEvent]:
        """Answer the next wave; what cannot be read is set aside where its turn comes, and lets the next go."""
        while unreadable := [event for event in lanes.wave() if event.flaw is not None]:
            for event in unreadable:
                self._set_aside(event, lanes)
        return lanes.wave()

    def _deliver_carefully(self, lanes: Lanes) -> bool:
        """Send one by one, counting each attempt before it and marking each event after it.

        So an event that kills the relay is known by its count, and takes no event before it along.
        """
        confirmed = True
        while self._walk.careful and not self._paused and not self._out_of_time() and (event := lanes.oldest()):
            attempts = event.attempts + 1
            if event.flaw is not None:
                self._set_aside(event, lanes)
            elif attempts > self._runtime.timings.relay_backoff.attempts:
                self._bury(event, _KILLED, event.attempts, lanes)
            elif self._table.record_attempt(event, attempts):
                confirmed = self._send_one(event, attempts, lanes) and confirmed
            else:
                lanes.hold(event)
            self._walk.careful -= 1
        return confirmed

    def _send_one(self, event: PendingEvent, attempts: int, lanes: Lanes) -> bool:
        done: list[PendingEvent] = []
        self._sender.send([event], partial(self._judge, lanes, done, attempts=attempts))
        if self._paused:
            self._table.record_attempt(event, attempts - 1)  # a destination that is down burns nobody's attempts
        return self._mark(done)

    # An event

    def _judge(
        self,
        lanes: Lanes,
        done: list[PendingEvent],
        event: PendingEvent,
        outcome: Outcome,
        *,
        attempts: int | None = None,
    ) -> None:
        attempts = event.attempts + 1 if attempts is None else attempts
        if isinstance(outcome, NotTaken):
            outcome = self._as_it_counts(event, outcome)
        if isinstance(outcome, Sent):
            self._taken = True
            event.attempts = attempts
            done.append(event)
            lanes.passed(event)
        elif isinstance(outcome, NotTaken):
            lanes.hold(event)
            self._hold(event, outcome, attempts - 1)
        elif outcome.kind is FailureKind.UNAVAILABLE:
            lanes.hold(event)
            self._pause(outcome)
        elif outcome.kind is FailureKind.PERMANENT or attempts >= self._runtime.timings.relay_backoff.attempts:
            self._bury(event, outcome, attempts, lanes)
        else:
            lanes.hold(event)
            self._retry(event, outcome, attempts)

    def _as_it_counts(self, event: PendingEvent, failure: NotTaken) -> Failure:
        """Return what it means that an event is not taken: nothing at first, an attempt after an outage's time."""
        if self._untaken_for(event) < self._runtime.timings.outage_to_outlive:
            return failure
        return Failure(FailureKind.TRANSIENT, failure.type, failure.message, retry_after=failure.retry_after)

    def _untaken_for(self, event: PendingEvent) -> float:
        since = event.untaken_since
        return 0 if since is None else max((self._now() - moment(since)).total_seconds(), 0)

    def _hold(self, event: PendingEvent, failure: NotTaken, attempts: int) -> None:
        """Let an event wait that was not taken, and use none of its attempts."""
        if event.untaken_since is None:
            self._first_untaken = self._first_untaken or failure
        since = self._now() if event.untaken_since is None else moment(event.untaken_since)
        before = self._runtime.timings.relay_backoff.attempt_after(self._untaken_for(event))
        self._wait(event, failure, attempts, before=before, untaken_since=since)

    def _retry(self, event: PendingEvent, failure: Failure, attempts: int) -> None:
        self._wait(event, failure, attempts, before=attempts - 1)

    def _wait(
        self,
        event: PendingEvent,
        failure: Failure,
        attempts: int,
        *,
        before: int,
        untaken_since: datetime | None = None,
    ) -> None:
        """Note when an event is due again, and why it was not sent; the more failed `before`, the longer it waits."""
        delay = self._runtime.timings.relay_backoff.delay(before, self._runtime.random)
        due_at = self._now() + timedelta(seconds=max(delay, failure.retry_after or 0))
        if not self._table.record_attempt(event, attempts, due_at=due_at, failure=failure, untaken_since=untaken_since):
            return
        self.drained.retried += 1
        self.drained.waits_until(due_at)
        telemetry.count(Metric.EVENTS_RETRIED)
        telemetry.log(LogEvent.EVENT_RETRIED, failure=failure, attempt=attempts, **event.facts)

    def _set_aside(self, event: PendingEvent, lanes: Lanes) -> None:
        """Move a row that cannot be read to the dead, as it is; one that DynamoDB would not take there stays."""
        assert event.flaw is not None  # noqa: S101 - narrows the type: nothing else is set aside
        telemetry.count(Metric.ROWS_UNREADABLE)
        try:
            self._bury(event, event.flaw, event.attempts, lanes)
        except Exception as error:
            if failure_of(error).kind is not FailureKind.PERMANENT:
                raise
            lanes.hold(event)
            telemetry.log_error(LogEvent.ROW_UNREADABLE, error, flaw=event.flaw.message, **event.facts)

    def _bury(self, event: PendingEvent, failure: Failure, attempts: int, lanes: Lanes) -> None:
        if not self._table.bury(event, failure, attempts, self._now()):
            lanes.hold(event)
            return
        lanes.passed(event)
        self.drained.dead += 1
        telemetry.count(Metric.EVENTS_DEAD)
        telemetry.log(LogEvent.EVENT_DEAD, failure=failure, attempt=attempts, **event.facts)

    def _mark(self, done: Sequence[PendingEvent]) -> bool:
        """Put into `sent`, then delete from `pending` what was confirmed put; answer whether all of it was."""
        confirmed = True
        for start in range(0, len(done), BATCH_WRITE):
            self._ensure()
            batch = done[start : start + BATCH_WRITE]
            marked = self._table.mark_sent(self._shard, batch, self._now())
            confirmed = self._remove(marked) and len(marked) == len(batch) and confirmed
            self._report_sent([event for event in batch if event.id in marked])
        return confirmed

    def _report_sent(self, events: Sequence[PendingEvent]) -> None:
        if not events:
            return
        telemetry.log_each(LogEvent.EVENT_SENT, [{"attempt": event.attempts, **event.facts} for event in events])
        self.drained.sent += len(events)
        telemetry.count(Metric.EVENTS_PUBLISHED, len(events))
        lag = self._now() - moment(events[0].item["created_at"]["S"])
        telemetry.measure_seconds(Metric.RELAY_LAG_SECONDS, max(lag.total_seconds(), 0))
        if not self._paused:
            self._held.memo.pop(_PAUSES, None)
            self._held.memo.pop(PAUSED_UNTIL, None)

    def _remove(self, ids: Iterable[str]) -> bool:
        wanted = list(ids)
        return len(self._table.remove_pending(self._shard, wanted)) == len(wanted)

    # Time, the lease and the destination

    def _now(self) -> datetime:
        return self._runtime.clock.now()

    def _out_of_time(self) -> bool:
        return self._deadline is not None and self._runtime.clock.monotonic() >= self._deadline

    def _ensure(self) -> None:
        try:
            self._held.ensure()
        except LeaseLost:
            self._lost = True
            raise

    def _still_paused(self) -> bool:
        until = self._held.memo.get(PAUSED_UNTIL)
        if until is None or until <= timestamp(self._now()):
            return False
        self.drained.waits_until(moment(until))
        return True

    def _pause(self, failure: Failure) -> None:
        """Leave the shard alone for a while: the destination is down, or takes nothing, which is no event's fault."""
        if self._paused:
            return
        self._paused = True
        pauses = int(self._held.memo.get(_PAUSES, 0))
        delay = self._runtime.timings.pause_backoff.delay(pauses, self._runtime.random)
        until = self._now() + timedelta(seconds=max(delay, failure.retry_after or 0))
        self._held.memo.update({PAUSED_UNTIL: timestamp(until), _PAUSES: pauses + 1})
        self.drained.waits_until(until)
        telemetry.count(Metric.RELAY_PAUSED)
        telemetry.log(LogEvent.RELAY_PAUSED, failure=failure, shard=self._shard, until=timestamp(until))
