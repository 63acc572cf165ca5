"""What a unit of work reads and uses, and that nothing undeclared is touched."""

from __future__ import annotations

import re

import pytest
from ulid import ULID

from app.events import RepoCreated
from app.owners import Owner
from app.repos import Repo
from mailroom.needs import Access
from mailroom.outbox.event import Part, shard_of_id
from mailroom.outbox.relay import Relay
from mailroom.outbox.table import OutboxRow, pending
from mailroom.runtime import Runtime
from mailroom.testing import ManualClock
from mailroom.unit_of_work import NotDeclared, UnitOfWork
from tests.lagging_reads import LaggingReads

from .conftest import ACCESS, created, repo


class Slice(Part, type="test.slice"): ...


def test_a_row_is_read_by_its_whole_key__and_none_if_there_is_none(runtime: Runtime) -> None:
    work = UnitOfWork(runtime, Access(reads=(OutboxRow, Owner), publishes=(RepoCreated,)))
    event_id = work.publish(created())
    partition = pending(shard_of_id(event_id))
    assert work.get(OutboxRow, partition, event_id) is None
    work.commit()
    found = work.get(OutboxRow, partition, event_id)
    assert found is not None
    assert found.event_id == event_id
    assert work.get(OutboxRow, partition, "another") is None


def test_an_index_is_read_page_by_page(work: UnitOfWork, lagging_reads: LaggingReads) -> None:
    for number in range(5):
        work.save(repo(repo_id=str(number)))
    work.save(Repo("9", name="tool", owner_id="owner-2", created_at="2030-01-01T00:00:00.000Z"))
    work.commit()
    lagging_reads.catch_up_indexes()
    pages, after = [], None
    for _ in range(3):
        rows, after = work.page(Repo, Repo.of_owner, "owner-1", after=after, limit=2)
        pages.append([row.id for row in rows])
    assert pages == [["0", "1"], ["2", "3"], ["4"]]
    assert after is None


def test_a_declared_port_is_the_one_of_the_process(runtime: Runtime) -> None:
    work = UnitOfWork(runtime, Access(uses=(Relay,)))
    assert work.use(Relay) is runtime.use(Relay)


def test_new_ids_follow_the_clock(work: UnitOfWork, clock: ManualClock) -> None:
    first = work.new_id()
    assert ULID.from_str(first).datetime == clock.now()
    clock.advance(0.001)
    assert work.new_id() > first


def test_time_is_up__at_the_deadline(runtime: Runtime, clock: ManualClock) -> None:
    work = UnitOfWork(runtime, ACCESS, deadline=clock.monotonic() + 10)
    clock.advance(9)
    assert not work.out_of_time()
    clock.advance(1)
    assert work.out_of_time()


@pytest.mark.parametrize(
    ("touch", "what"),
    [
        (lambda work: work.get(Owner, "owner-1"), "reads=[Owner]"),
        (lambda work: work.page(Repo, Repo.of_owner, "owner-1", after=None, limit=1), "reads=[Repo]"),
        (lambda work: work.unchanged(repo()), "reads=[Repo]"),
        (lambda work: work.save(Owner("owner-1")), "writes=[Owner]"),
        (lambda work: work.publish(created()), "publishes=[RepoCreated]"),
        (lambda work: work.use(Relay), "uses=[Relay]"),
        (lambda work: work.split(Slice(), key="1"), "splits_into=[Slice]"),
    ],
)
def test_what_is_not_declared_is_refused__as_it_would_be_once_deployed(
    runtime: Runtime, touch: object, what: str
) -> None:
    with pytest.raises(NotDeclared, match=re.escape(f"add {what}")):
        touch(UnitOfWork(runtime, Access()))  # type: ignore[operator]
