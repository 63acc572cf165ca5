"""An outbox with events in it, and a relay to an in-memory destination."""

from __future__ import annotations

import pytest

from mailroom.clock import timestamp
from mailroom.lease import LeaseRow
from mailroom.outbox.event import Envelope, EventIds, shard_of_subject
from mailroom.outbox.relay import Relay, lease_name
from mailroom.outbox.table import DEAD, OutboxRow, pending, sent
from mailroom.reading import read_page, row_of
from mailroom.runtime import Runtime
from mailroom.testing import FakePublisher, ManualClock

from ..lagging import lagging_reads  # noqa: F401 - for every test here

SHARD = 3


class Outbox:
    """Writes events into one shard, as commits would, and reads what became of them."""

    def __init__(self, runtime: Runtime, clock: ManualClock) -> None:
        self._runtime = runtime
        self._clock = clock
        self._ids = EventIds(clock, runtime.random)
        self._latest: dict[str, str] = {}
        self._subjects = (name for n in range(10**6) if shard_of_subject(name := f"things/{n}") == SHARD)

    def add(self, subject: str | None = None, *, payload: str = "{}", type_: str = "thing.happened") -> str:
        """Add an event about a subject, a fresh one of the shard if none is given; answer its id."""
        subject = subject or next(self._subjects)
        self._clock.advance(0.001)
        event_id, moment = self._ids.next(subject, self._latest.get(subject))
        envelope = Envelope(
            id=event_id,
            type=type_,
            source="test.service",
            subject=subject,
            time=timestamp(moment),
            payload=payload,
            after=self._latest.get(subject),
        )
        OutboxRow.pending(envelope).save()
        self._latest[subject] = event_id
        return event_id

    def subject(self) -> str:
        """Answer a fresh subject of the shard."""
        return next(self._subjects)

    def ids(self, partition: str) -> list[str]:
        found, _ = read_page(OutboxRow, OutboxRow.query(partition, consistent_read=True))
        return [row_of(each).event_id for each in found]

    @property
    def pending(self) -> list[str]:
        return self.ids(pending(SHARD))

    @property
    def sent(self) -> list[str]:
        return self.ids(sent(SHARD))

    @property
    def dead(self) -> list[str]:
        return self.ids(DEAD)

    def row(self, event_id: str, partition: str | None = None) -> OutboxRow:
        return OutboxRow.get(partition or pending(SHARD), event_id, consistent_read=True)

    @property
    def lease(self) -> LeaseRow:
        return LeaseRow.get(lease_name(SHARD), consistent_read=True)


@pytest.fixture
def outbox(runtime: Runtime, clock: ManualClock) -> Outbox:
    return Outbox(runtime, clock)


@pytest.fixture
def publisher() -> FakePublisher:
    return FakePublisher()


@pytest.fixture
def relay(runtime: Runtime, publisher: FakePublisher) -> Relay:
    return Relay(runtime, publisher)
