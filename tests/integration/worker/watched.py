"""The consumer that a worker works for in these tests, and a queue that tells what is asked of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.events import RepoCreated
from app.owners import Owner
from mailroom.consumer import consumer
from mailroom.failures import Failure
from mailroom.outbox.event import Envelope
from mailroom.runtime import Runtime
from mailroom.sources.memory import InMemorySource
from mailroom.sources.source import Record
from mailroom.testing import ManualClock, unavailable
from mailroom.unit_of_work import UnitOfWork
from mailroom.worker import Worker
from mailroom.workers import workers_of

TIMEOUT = 20
BOUND = 20
"""Seconds after which a thread that should have ended fails its test."""


def do_nothing(event: RepoCreated) -> None:
    """Behave as the consumer under test does unless told otherwise."""


class Work:
    """What the consumer under test was called with, and what it does before its effect is committed."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.behave: Callable[[RepoCreated], None] = do_nothing


WORK = Work()


@consumer(on=RepoCreated, writes=[Owner], timeout=TIMEOUT)
def adding(event: RepoCreated, work: UnitOfWork) -> None:
    WORK.begun.append(event.name)
    work.update(Owner(event.name), [Owner.repo_count.add(1)])
    WORK.behave(event)


def effects() -> dict[str, int]:
    return {row.id: int(row.repo_count) for row in Owner.scan()}


def name_in(body: str) -> str:
    return str(json.loads(Envelope.from_json(body).payload)["name"])


def check_effects(names: list[str]) -> None:
    """See that nothing is deleted before its effect."""
    assert set(names) <= effects().keys()


class WatchedSource(InMemorySource):
    """A queue that tells what is asked of it, and can be told to misbehave."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.on_empty: Callable[[], Any] = lambda: None
        self.on_receive: Callable[[], Any] = lambda: None
        self.on_reply: Callable[[], Any] = lambda: None
        self.before_delete: Callable[[list[str]], Any] = check_effects
        self.fail_delete = self.fail_hide = False
        self.deletions: list[int] = []
        self.hidings: list[dict[str, float]] = []
        self._names: dict[str, str] = {}

    def put(self, *names: str) -> None:
        """Put events in, one for each name."""
        for name in names:
            payload = json.dumps({"repo_id": "1", "name": name, "owner_id": "owner-1"})
            event_id = f"01JDW3NDEKTSV4RRFFQ69G{name:0>4.4}-03"
            self.send(
                Envelope(event_id, "repo.created", "test", "repos/1", "2030-01-01T00:00:00.000Z", payload).to_json()
            )

    def receive(self, limit: int, *, wait: int, hidden: int) -> list[Record]:
        self.on_receive()
        records = super().receive(limit, wait=0, hidden=hidden)
        if not records:
            self.on_empty()
        self._names.update((each["receiptHandle"], name_in(each["body"])) for each in records)
        self.on_reply()
        return records

    def hide(self, seconds: Mapping[str, float]) -> dict[str, Failure]:
        self.hidings.append(dict(seconds))
        return dict.fromkeys(seconds, unavailable()) if self.fail_hide else super().hide(seconds)

    def delete(self, receipts: Sequence[str]) -> dict[str, Failure]:
        self.before_delete([self._names[receipt] for receipt in receipts])
        self.deletions.append(len(receipts))
        return dict.fromkeys(receipts, unavailable()) if self.fail_delete else super().delete(receipts)

    @property
    def visible_names(self) -> list[str]:
        return sorted(map(name_in, self.visible))

    @property
    def hidden_names(self) -> list[str]:
        return sorted(map(name_in, self.hidden))


def another(source: WatchedSource, runtime: Runtime) -> Worker:
    """Start a second one after the first."""
    (worker,) = workers_of(adding, runtime, source, count=1)
    source.on_empty = worker.stop
    return worker


def at(count: int, act: Callable[[], Any]) -> Callable[[RepoCreated], None]:
    """Make a behaviour that does something in the so-maniest message."""

    def behave(event: RepoCreated) -> None:
        if len(WORK.begun) == count:
            act()

    return behave


TEN = list("abcdefghij")
