"""Relays, leases and commits against concurrent, atomic writes: tables of their own in the emulator."""

from __future__ import annotations

from collections import Counter
from typing import Any

from app.owners import Owner
from app.repos import Repo  # noqa: F401 - its table is made too
from mailroom.clients import Call, observed
from mailroom.clock import timestamp
from mailroom.idempotency import Idempotency, IdempotencyRow, StillRunning
from mailroom.lease import Lease
from mailroom.needs import Access
from mailroom.outbox.event import Envelope, EventIds, shard_of_subject
from mailroom.outbox.relay import Relay
from mailroom.outbox.table import OutboxRow, pending, sent
from mailroom.runtime import Runtime
from mailroom.testing import FakePublisher
from mailroom.unit_of_work import UnitOfWork

from .racing import at_once

SHARD = 5


def fill(runtime: Runtime, count: int) -> list[str]:
    subjects = [name for n in range(count * 30) if shard_of_subject(name := f"things/{n}") == SHARD][:count]
    ids = EventIds(runtime.clock, runtime.random)
    written = []
    with OutboxRow.batch_write() as batch:
        for subject in subjects:
            event_id, moment = ids.next(subject, None)
            batch.save(
                OutboxRow.pending(
                    Envelope(event_id, "thing.happened", "test.service", subject, timestamp(moment), '{"a":1}')
                )
            )
            written.append(event_id)
    return sorted(written)


def test_relays_at_once_publish_each_event_once(runtime: Runtime) -> None:
    events, publisher = fill(runtime, 300), FakePublisher()
    relays = [Relay(runtime, publisher) for _ in range(6)]

    def drain(number: int) -> int:
        return sum(relays[number].drain(SHARD).sent for _ in range(20))

    assert sum(at_once(6, drain)) == 300
    assert sorted(publisher.ids) == events
    assert [row.event_id for row in OutboxRow.query(sent(SHARD))] == events
    assert list(OutboxRow.query(pending(SHARD))) == []


def test_one_of_many_takers_gets_the_lease__and_tokens_only_grow(runtime: Runtime) -> None:
    def take(_: int) -> int | None:
        held = Lease("contended", runtime).acquire()
        if held is None:
            return None
        held.release(clean=True)
        return held.token

    tokens = [token for _ in range(10) for token in at_once(8, take) if token is not None]
    assert len(tokens) == len(set(tokens))
    alone = [held for held in at_once(8, lambda _: Lease("kept", runtime).acquire()) if held]
    assert len(alone) == 1


def test_work_at_once_under_one_key_is_done_once(runtime: Runtime) -> None:
    idempotency = Idempotency(runtime, prefix="e2e", life=86_400)

    def act() -> dict[str, str]:
        work = UnitOfWork(runtime, Access(writes=(Owner,)))
        work.update(Owner("owner-1"), [Owner.repo_count.add(1)])
        work.commit({"done": "yes"})
        return {"done": "yes"}

    def run(_: int) -> str:
        try:
            outcome = idempotency.run(key="key", act=act, remaining_ms=5000)
        except StillRunning:
            return "told to wait"
        return "replayed" if outcome.replayed else "done"

    results = Counter(at_once(20, run))
    assert results["done"] == 1
    assert Owner.get("owner-1").repo_count == 1
    (record,) = IdempotencyRow.scan()
    assert record.status == "COMPLETED"


class Counts:
    """Counts AWS calls by operation."""

    def __init__(self) -> None:
        self.by_operation: Counter[str] = Counter()

    def before(self, call: Call) -> None:
        self.by_operation[call.operation] += 1

    def after(self, call: Call, answer: dict[str, Any]) -> None: ...


def test_a_hundred_fresh_events_take_at_most_22_calls(runtime: Runtime) -> None:
    fill(runtime, 100)
    counts = Counts()
    with observed(counts):
        assert Relay(runtime, FakePublisher()).drain(SHARD).sent == 100
    assert counts.by_operation["BatchWriteItem"] == 8
    # The in-memory destination makes no calls; EventBridge takes ten entries in one.
    assert sum(counts.by_operation.values()) + 100 // 10 <= 22
