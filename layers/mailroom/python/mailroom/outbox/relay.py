"""The relay: takes pending events to their destination, in order per subject, each once in steady state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Self

from mailroom import lease, telemetry
from mailroom.guard import Guard
from mailroom.lease import Lease, LeaseLost
from mailroom.needs import LayerNeed, Need
from mailroom.outbox.event import SHARDS
from mailroom.outbox.table import PENDING_PREFIX, OutboxTable, pending
from mailroom.outbox.turn import Turn
from mailroom.outbox.walk import Drained, Walk
from mailroom.outbox.wave import SIDE_BY_SIDE
from mailroom.publishers.publisher import Destination, Publisher
from mailroom.reading import unreadable
from mailroom.runtime import Runtime
from mailroom.telemetry import LogEvent, Metric


def lease_name(shard: int) -> str:
    """Answer the name of the lease under which a shard is drained."""
    return f"relay#{shard:02d}"


class Relay:
    """Delivers the outbox to one destination. It is a port: `uses=[Relay]`."""

    def __init__(self, runtime: Runtime, publisher: Publisher) -> None:
        self._runtime = runtime
        self._publisher = publisher
        self._table = OutboxTable(runtime)
        self._threads = ThreadPoolExecutor(SIDE_BY_SIDE, thread_name_prefix="relay")

    @classmethod
    def needs(cls, runtime: Runtime) -> tuple[Need | LayerNeed, ...]:
        """Return what its destination, its table and its leases need."""
        return (*Destination.needs(runtime), OutboxTable.NEEDS, lease.NEEDS)

    @classmethod
    def connect(cls, runtime: Runtime) -> Self:
        """Relay to the stage's destination."""
        return cls(runtime, runtime.use(Destination).publisher)

    def drain(
        self, shard: int, *, walk: Walk | None = None, pages: int | None = None, deadline: float | None = None
    ) -> Drained:
        """Publish what is due in a shard, oldest first.

        Parameters
        ----------
        walk
            Where an earlier turn stopped; without it the turn starts at the oldest event.
        pages
            How many pages this turn takes at most; without it all of them.
        deadline
            The `clock.monotonic()` from which no new wave is begun.

        Raises
        ------
        Exception
            What AWS answers to the relay's own reads and writes; what was published is marked before.
        """
        held = Lease(lease_name(shard), self._runtime).acquire()
        if held is None:
            return Drained(ours=False)
        turn = Turn(
            self._runtime,
            self._publisher,
            self._threads,
            shard=shard,
            held=held,
            walk=walk or Walk(),
            deadline=deadline,
        )
        try:
            turn.run(pages)
        except LeaseLost as error:
            # Someone else is at work here by now: to mark anything would be to write over them.
            telemetry.log_error(LogEvent.RELAY_LEASE_LOST, error, shard=shard)
        except Exception:
            turn.release()
            raise
        else:
            turn.release()
        return turn.drained

    def has_mail(self, shard: int) -> bool:
        """Answer whether anything is pending in a shard: one read."""
        page = self._table.page(shard, limit=1)
        return bool(page.events) or page.cursor is not None


def shards_with_mail(records: Iterable[dict[str, Any]]) -> list[int]:
    """Answer the shards that a batch of stream records tells of, each once; a row in the partition of none is told."""
    shards = {pending(shard): shard for shard in range(SHARDS)}
    woken = set()
    for record in records:
        keys = record["dynamodb"]["Keys"]
        partition = keys["partition"]["S"]
        if partition in shards:
            woken.add(shards[partition])
        elif partition.startswith(PENDING_PREFIX):
            _tell_of_nowhere(partition, keys.get("event_id", {}).get("S"))
    return sorted(woken)


def _tell_of_nowhere(partition: str, event_id: str | None) -> None:
    """Log that a row lies where no relay looks: only somebody who writes by hand puts it there."""
    failure = unreadable({"partition": f"is that of no shard: there are {SHARDS}"})
    telemetry.log(LogEvent.ROW_UNREADABLE, failure=failure, table="outbox", row=f"outbox {partition} {event_id}")
    telemetry.count(Metric.ROWS_UNREADABLE)


def relay_handler(make_runtime: Callable[[], Runtime]) -> Callable[[dict[str, Any], Any], None]:
    """Make the Lambda handler that the outbox table's stream wakes.

    A wake-up is only a hint: it never waits, and the sweep delivers whatever all of them missed.
    """

    runtime_once = cache(make_runtime)

    def handler(event: dict[str, Any], context: Any) -> None:
        runtime = runtime_once()
        relay, deadline = runtime.use(Relay), runtime.deadline(context)
        guard = Guard(LogEvent.RELAY_FAILED, Metric.SHARDS_FAILED)
        with telemetry.flushed_metrics():
            for shard in shards_with_mail(event["Records"]):
                with guard.over(shard=f"{shard:02d}"):
                    relay.drain(shard, deadline=deadline)
        guard.tell()

    return handler
