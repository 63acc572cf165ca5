"""The sweep: every shard in turn, a page at a time, for as long as something falls due."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime

from mailroom.clock import wait
from mailroom.guard import Guard
from mailroom.outbox.event import SHARDS
from mailroom.outbox.relay import Relay
from mailroom.outbox.walk import Drained, Walk
from mailroom.runtime import Runtime
from mailroom.telemetry import LogEvent, Metric


def sweep(relay: Relay, runtime: Runtime, *, deadline: float, out_of_time: Callable[[], bool]) -> int:
    """Deliver what wake-ups missed and what is due for another attempt; answer how many were sent.

    Each round begins at a random shard, so that no shard is always the last; no lease is held between rounds.

    Parameters
    ----------
    deadline
        The `clock.monotonic()` from which nothing new is begun.
    out_of_time
        Asked before each page.

    Raises
    ------
    ExceptionGroup
        At its end, if something went wrong in a shard: the others were swept.
    """
    clock, sent, guard = runtime.clock, 0, Guard(LogEvent.RELAY_FAILED, Metric.SHARDS_FAILED)
    while True:
        round_sent, next_due = _round(relay, runtime, deadline, out_of_time, guard)
        sent += round_sent
        if next_due is None:
            break
        seconds = max(runtime.timings.sweep_tick, (next_due - clock.now()).total_seconds())
        if clock.monotonic() + seconds >= deadline or not _nap(runtime, seconds, out_of_time):
            break
    guard.tell()
    return sent


def _nap(runtime: Runtime, seconds: float, out_of_time: Callable[[], bool]) -> bool:
    """Wait in naps of a tick or longer; answer whether there is time to go on: it may be called off meanwhile."""
    naps = max(1, int(seconds // runtime.timings.sweep_tick))
    return wait(runtime.clock, seconds, called_off=out_of_time, nap=seconds / naps)


def _round(
    relay: Relay, runtime: Runtime, deadline: float, out_of_time: Callable[[], bool], guard: Guard
) -> tuple[int, datetime | None]:
    start = runtime.random.randrange(SHARDS)
    walks = {shard % SHARDS: Walk() for shard in range(start, start + SHARDS)}
    waiting = deque(shard for shard in walks if _has_mail(relay, shard, guard))
    sent, dues = 0, []
    while waiting and not out_of_time():
        shard, turn = waiting.popleft(), Drained()
        with guard.over(shard=f"{shard:02d}"):
            turn = relay.drain(shard, walk=walks[shard], pages=1, deadline=deadline)
        sent += turn.sent
        if turn.next_due is not None:
            dues.append(turn.next_due)
        if turn.more:
            waiting.append(shard)
    return sent, min(dues, default=None)


def _has_mail(relay: Relay, shard: int, guard: Guard) -> bool:
    with guard.over(shard=f"{shard:02d}"):
        return relay.has_mail(shard)
    return False
