"""Rows of a unit of work: each is written, removed or depended on under its version and condition."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.owners import Owner
from app.repos import Repo
from mailroom.failures import FailureKind, failure_of
from mailroom.needs import Access
from mailroom.outbox.table import OutboxRow, pending
from mailroom.reading import RowUnreadable
from mailroom.row import UpdateWithoutVersion
from mailroom.runtime import Runtime
from mailroom.transaction import (
    Operation,
    OperationKind,
)
from mailroom.unit_of_work import RowChanged, UnitOfWork
from tests.lagging_reads import LaggingReads
from tests.log_lines import Lines
from tests.spoilt import spoil_row

from ..conftest import CallCounter
from .conftest import ACCESS, created, repo


def test_a_stale_row_is_refused(runtime: Runtime, work: UnitOfWork) -> None:
    work.save(repo())
    work.commit()
    one, other = Repo.get("1", consistent_read=True), Repo.get("1", consistent_read=True)
    for row in (one, other):
        row.name = "renamed"
    winner, loser = UnitOfWork(runtime, ACCESS), UnitOfWork(runtime, ACCESS)
    winner.save(one)
    winner.commit()
    loser.save(other)
    with pytest.raises(RowChanged):
        loser.commit()
    assert Repo.get("1", consistent_read=True).version == 2


def test_a_deleted_row_is_gone(runtime: Runtime, work: UnitOfWork) -> None:
    work.save(repo())
    work.commit()
    work.delete(Repo.get("1", consistent_read=True))
    work.commit()
    assert list(Repo.scan(consistent_read=True)) == []


def test_a_row_that_was_changed_since_is_not_deleted(runtime: Runtime, work: UnitOfWork) -> None:
    work.save(repo())
    work.commit()
    stale, current = Repo.get("1", consistent_read=True), Repo.get("1", consistent_read=True)
    work.save(current)
    work.commit()
    work.delete(stale)
    with pytest.raises(RowChanged, match="repos 1"):
        work.commit()
    assert Repo.get("1", consistent_read=True).version == 2


@pytest.mark.parametrize("holds", [True, False])
def test_a_row_is_deleted_under_its_version_and_the_callers_condition(work: UnitOfWork, holds: bool) -> None:
    work.save(repo())
    work.commit()
    work.delete(Repo.get("1", consistent_read=True), condition=Repo.name == ("tool" if holds else "other"))
    if holds:
        work.commit()
    else:
        with pytest.raises(RowChanged):
            work.commit()
    assert [row.id for row in Repo.scan(consistent_read=True)] == ([] if holds else ["1"])


@pytest.mark.parametrize("write", [UnitOfWork.delete, UnitOfWork.save])
def test_a_stale_row_is_neither_deleted_nor_saved__though_the_callers_condition_holds(
    work: UnitOfWork, write: Callable[..., None]
) -> None:
    work.save(repo())
    work.commit()
    stale = Repo.get("1", consistent_read=True)
    work.save(Repo.get("1", consistent_read=True))
    work.commit()
    write(work, stale, condition=Repo.name == "tool")
    with pytest.raises(RowChanged):
        work.commit()


def test_a_row_is_not_saved__when_the_callers_condition_does_not_hold(work: UnitOfWork) -> None:
    work.save(repo())
    work.commit()
    work.save(Repo.get("1", consistent_read=True), condition=Repo.name == "other", refused=ValueError("another name"))
    with pytest.raises(ValueError, match="another name"):
        work.commit()


def test_a_commit_may_depend_on_a_row_that_it_does_not_write(work: UnitOfWork) -> None:
    work.save(repo())
    work.commit()
    read = Repo.get("1", consistent_read=True)
    work.unchanged(read)
    work.save(Owner("owner-1"))
    work.commit()
    work.save(Repo.get("1", consistent_read=True))
    work.commit()
    work.unchanged(read)
    work.save(Owner("owner-2"))
    with pytest.raises(RowChanged, match="repos 1"):
        work.commit()
    assert [owner.id for owner in Owner.scan(consistent_read=True)] == ["owner-1"]


def test_a_row_that_is_written_may_be_depended_on(runtime: Runtime) -> None:
    work = UnitOfWork(runtime, Access(writes=(Repo,)))
    work.unchanged(repo())
    work.commit()


def test_a_commit_depends_on_a_row_by_its_whole_key(work: UnitOfWork) -> None:
    there = OutboxRow(pending(0), work.publish(created()))
    there.partition = pending(int(there.event_id.rpartition("-")[2]))
    work.commit()
    missing = ValueError("the event is gone")
    work.save(Owner("owner-1"))
    work.depend_on(Operation(OperationKind.CHECK, there, missing, OutboxRow.event_id.exists()))
    work.commit()
    work.save(Owner("owner-2"))
    work.depend_on(Operation(OperationKind.CHECK, OutboxRow(there.partition, "x"), missing, OutboxRow.type.exists()))
    with pytest.raises(ValueError, match="gone"):
        work.commit()
    assert [owner.id for owner in Owner.scan(consistent_read=True)] == ["owner-1"]


@pytest.mark.parametrize("version", [0, 1])
def test_a_row_that_events_are_about_is_not_updated__whether_it_was_read_or_not(
    work: UnitOfWork, calls: CallCounter, version: int
) -> None:
    row = repo()
    row.version = version
    with pytest.raises(UpdateWithoutVersion, match=r"repos 1 .* save it"):
        work.update(row, [Repo.name.set("other")])
    assert not work.has_changes
    assert calls.calls == []


def test_a_row_that_events_are_about_is_not_updated__past_the_unit_of_work(work: UnitOfWork) -> None:
    with pytest.raises(UpdateWithoutVersion, match="repos 1"):
        repo().update([Repo.name.set("other")])
    assert Repo.count(consistent_read=True) == 0


def test_a_row_that_events_are_about_is_not_updated__as_what_a_commit_depends_on(work: UnitOfWork) -> None:
    with pytest.raises(UpdateWithoutVersion):
        work.depend_on(Operation(OperationKind.UPDATE, repo(), ValueError(), actions=(Repo.name.set("other"),)))


# Rows that cannot be read


def test_a_row_that_cannot_be_read_is_named__and_is_a_failure_for_good(work: UnitOfWork) -> None:
    repo().save()
    spoil_row(Repo, "1", owner_id={"N": "1"})
    with pytest.raises(RowUnreadable, match=r"repos 1 cannot be read: owner_id is a number \(N\)") as told:
        work.get(Repo, "1")
    assert failure_of(told.value).kind is FailureKind.PERMANENT


def test_a_row_is_read__though_it_lacks_what_a_newer_one_has(work: UnitOfWork) -> None:
    repo().save()
    spoil_row(Repo, "1", name=None)
    row = work.get(Repo, "1")
    assert row is not None
    assert (row.owner_id, row.name) == ("owner-1", None)


def test_a_page_has_the_rows_that_can_be_read__and_the_others_are_told(
    work: UnitOfWork, logs: Lines, lagging_reads: LaggingReads
) -> None:
    for number in range(3):
        repo(repo_id=f"{number}").save()
    spoil_row(Repo, "1", name={"N": "1"})
    lagging_reads.catch_up_indexes()
    rows, following = work.page(Repo, Repo.of_owner, "owner-1", after=None, limit=10)
    assert [row.id for row in rows] == ["0", "2"]
    assert following is None
    assert [line["row"] for line in logs()] == ["repos 1"]
