"""The double of DynamoDB's eventually consistent reads: what it shows, and to whom."""

from __future__ import annotations

import pkgutil

import pytest

from app.owners import Owner
from app.repos import Repo
from mailroom.dead_letters.outbox import OutboxLetters
from mailroom.idempotency import IdempotencyRow
from mailroom.needs import Access
from mailroom.outbox.table import DEAD, OutboxRow
from mailroom.runtime import Runtime
from mailroom.testing import ManualClock
from mailroom.unit_of_work import UnitOfWork
from tests.eventual_reads import EVENTUAL_READS
from tests.lagging_reads import INDEX_LAG, TABLE_LAG, LaggingReads

from .lagging import lagging_reads  # noqa: F401 - for every test here


def die(event_id: str) -> OutboxRow:
    row = OutboxRow(DEAD, event_id, type="thing.happened", source="test", payload="{}", created_at="2030")
    row.save()
    return row


def repo(repo_id: str) -> Repo:
    row = Repo(repo_id, owner_id="owner-1", name="tool", created_at="2030")
    row.save()
    return row


def listed(runtime: Runtime) -> list[str]:
    rows, _ = UnitOfWork(runtime, Access(reads=(Repo,))).page(Repo, Repo.of_owner, "owner-1", after=None, limit=10)
    return [row.id for row in rows]


def test_a_read_without_consistency_sees_the_past__until_the_lag_is_over(runtime: Runtime, clock: ManualClock) -> None:
    row = die("1")
    letters = OutboxLetters(runtime)
    assert letters.count(up_to=10) == 0
    clock.advance(TABLE_LAG)
    assert letters.count(up_to=10) == 1
    row.delete()
    assert letters.count(up_to=10) == 1


def test_a_consistent_read_sees_the_present(runtime: Runtime) -> None:
    Owner("owner-1", repo_quota=7).save()
    found = UnitOfWork(runtime, Access(reads=(Owner,))).get(Owner, "owner-1")
    assert found is not None
    assert found.repo_quota == 7


def test_the_items_of_an_index_lag_each_by_a_time_of_its_own(runtime: Runtime, clock: ManualClock) -> None:
    ids = [repo(str(number)).id for number in range(8)]
    assert listed(runtime) == []
    clock.advance(INDEX_LAG / 2)
    assert 0 < len(listed(runtime)) < len(ids)
    clock.advance(INDEX_LAG / 2)
    assert sorted(listed(runtime)) == ids


def test_an_index_catches_up_when_it_is_told_to(runtime: Runtime, lagging_reads: LaggingReads) -> None:
    repo("1")
    lagging_reads.catch_up_indexes()
    repo("2")
    assert listed(runtime) == ["1"]


def test_what_was_there_before_is_seen_by_all(runtime: Runtime, lagging_reads: LaggingReads) -> None:
    die("1")
    lagging_reads.forget()
    assert OutboxLetters(runtime).count(up_to=10) == 1


def test_a_tests_own_look_at_a_table_has_to_ask_for_consistency(runtime: Runtime) -> None:
    with pytest.raises(AssertionError, match="consistent_read"):
        list(OutboxRow.scan())


def test_a_tests_own_look_at_an_index_shows_the_present(runtime: Runtime) -> None:
    repo("1")
    assert [row.id for row in Repo.of_owner.query("owner-1")] == ["1"]
    assert list(IdempotencyRow.index.query("consumer")) == []


def test_a_reader_without_a_reason_is_found_out(lagging_reads: LaggingReads) -> None:
    lagging_reads.readers.add("mailroom.somewhere.Reader.read")
    with pytest.raises(AssertionError, match=r"mailroom\.somewhere\.Reader\.read"):
        lagging_reads.check()
    lagging_reads.readers.clear()


@pytest.mark.parametrize("reader", EVENTUAL_READS)
def test_every_reader_with_a_reason_is_there(reader: str) -> None:
    assert pkgutil.resolve_name(reader)
