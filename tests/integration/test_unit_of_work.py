"""The unit of work: all or nothing, in one call, with errors that name what stood in the way."""

from __future__ import annotations

import re
from collections.abc import Callable
from uuid import UUID

import pytest
from ulid import ULID

from app.events import RepoCreated
from app.owners import Owner
from app.repos import Repo
from mailroom.clients import Call
from mailroom.failures import FailureKind, Unavailable, failure_of
from mailroom.needs import Access
from mailroom.outbox.event import Envelope, EventRefused, Part, shard_of_id, shard_of_subject
from mailroom.outbox.limits import EventTooLarge, check_size
from mailroom.outbox.relay import Relay
from mailroom.outbox.table import MAX_EVENT_BYTES, OutboxRow, pending, size_of
from mailroom.runtime import Runtime
from mailroom.telemetry import traced
from mailroom.testing import ManualClock
from mailroom.transaction import (
    CommitConflict,
    Operation,
    OperationKind,
    RowRefused,
    SameItemTwice,
    TooManyItems,
    write,
)
from mailroom.unit_of_work import NotDeclared, RowChanged, UnitOfWork
from tests import stage
from tests.faults import Died, cancelled, died, failing, throttled, timed_out
from tests.lagging_reads import LaggingReads

from .conftest import CallCounter
from .lagging import lagging_reads  # noqa: F401 - for every test here

ACCESS = Access(reads=(Repo,), writes=(Repo, Owner), publishes=(RepoCreated,))


class Slice(Part, type="test.slice"): ...


@pytest.fixture
def work(runtime: Runtime) -> UnitOfWork:
    return UnitOfWork(runtime, ACCESS)


def repo(name: str = "tool", repo_id: str = "1") -> Repo:
    return Repo(repo_id, name=name, owner_id="owner-1", created_at="2030-01-01T00:00:00.000Z")


def created(name: str = "tool") -> RepoCreated:
    return RepoCreated(repo_id="1", name=name, owner_id="owner-1")


def events() -> list[OutboxRow]:
    return sorted(OutboxRow.scan(consistent_read=True), key=lambda row: row.event_id)


def test_a_committed_row_has_its_event(work: UnitOfWork, calls: CallCounter) -> None:
    row = repo()
    event_id = work.publish(created(), about=row)
    work.save(row)
    work.commit()
    assert calls.counts == {"TransactWriteItems": 1}
    assert Repo.get("1", consistent_read=True).last_event_id == event_id
    (event,) = events()
    assert (event.partition, event.subject) == (pending(shard_of_subject("repos/1")), "repos/1")


def test_nothing_is_written__before_the_commit(work: UnitOfWork, calls: CallCounter) -> None:
    row = repo()
    work.publish(created(), about=row)
    work.save(row)
    assert calls.calls == []


def test_a_refused_row_has_no_event(runtime: Runtime, work: UnitOfWork) -> None:
    first = UnitOfWork(runtime, ACCESS)
    first.save(repo())
    first.commit()
    row = repo(name="other")
    work.publish(created("other"), about=row)
    work.save(row)
    with pytest.raises(RowChanged, match="repos 1"):
        work.commit()
    assert events() == []
    assert Repo.get("1", consistent_read=True).name == "tool"


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


def test_a_subjects_events_follow_each_other__though_the_clock_was_set_back(
    runtime: Runtime, work: UnitOfWork, clock: ManualClock
) -> None:
    row = repo()
    first = work.publish(created(), about=row)
    work.save(row)
    work.commit()
    clock.jump(-3600)
    row = Repo.get("1", consistent_read=True)
    again = UnitOfWork(runtime, ACCESS)
    second = again.publish(created(), about=row)
    third = again.publish(created(), about=row)
    again.save(row)
    again.commit()
    assert first < second < third
    assert [event.after for event in events()] == [None, first, second]


def test_an_event_about_a_row_that_is_not_written_is_refused(work: UnitOfWork) -> None:
    work.publish(created(), about=repo())
    with pytest.raises(LookupError, match="repos/1"):
        work.commit()


def test_an_event_too_large_for_the_outbox_is_refused__when_it_is_added(work: UnitOfWork, calls: CallCounter) -> None:
    with pytest.raises(EventTooLarge, match=r"repo\.created"):
        work.publish(created("x" * 390_000))
    assert calls.calls == []


def test_an_event_that_just_fits_the_outbox_is_taken__and_not_one_byte_more(work: UnitOfWork) -> None:
    work.publish(created())
    work.commit()
    (row,) = events()
    room = MAX_EVENT_BYTES - size_of(row.serialize())
    work.publish(created("tool" + "x" * room))
    with pytest.raises(EventTooLarge):
        work.publish(created("tool" + "x" * (room + 1)))


@pytest.mark.parametrize("length", [255, 256])
def test_a_type_is_as_long_as_its_destination_takes__and_no_longer(length: int) -> None:
    runtime = Runtime(stage.settings(publisher_url="amqps://broker.example/?exchange=events"))
    envelope = Envelope("01JDW3NDEKTSV4RRFFQ69G5FAV-03", "t" * length, "test.service", None, "", "{}")
    if length <= 255:
        check_size(envelope, OutboxRow.pending(envelope), runtime)
    else:
        with pytest.raises(EventTooLarge, match="256 bytes, and goes in 255"):
            check_size(envelope, OutboxRow.pending(envelope), runtime)


def test_events_of_a_subject_lie_in_its_shard(work: UnitOfWork) -> None:
    for number in range(10):
        row = repo(repo_id=str(number))
        assert shard_of_id(work.publish(created(), about=row)) == shard_of_subject(f"repos/{number}")


def test_an_event_carries_the_trace_that_it_was_added_in(runtime: Runtime, work: UnitOfWork) -> None:
    with traced(None, runtime.random) as trace:
        work.publish(created())
    work.commit()
    assert [event.traceparent for event in events()] == [trace]


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


def test_the_room_for_the_failure_is_kept_free(work: UnitOfWork) -> None:
    work.publish(created("x" * 380_000))
    work.commit()
    (event,) = events()
    assert len(event.payload) > 380_000


def test_characters_that_cannot_be_sent_are_refused(work: UnitOfWork) -> None:
    with pytest.raises(EventRefused, match=r"RepoCreated\.name .*U\+0000"):
        work.publish(created("a\x00b"))


def test_a_hundred_and_one_items_are_refused__before_anything_is_sent(work: UnitOfWork, calls: CallCounter) -> None:
    for number in range(101):
        work.save(Owner(f"owner-{number}"))
    with pytest.raises(TooManyItems, match="101"):
        work.commit()
    assert calls.calls == []


def test_what_is_to_be_told_is_told_once_it_is_written__and_never_of_what_was_not(work: UnitOfWork) -> None:
    told: list[str] = []
    work.save(repo())
    work.once_written(lambda: told.append("written"))
    with failing("TransactWriteItems", throttled, times=99), pytest.raises(Unavailable):
        work.commit()
    assert told == []
    work.commit()
    work.commit()
    assert told == ["written"]


def test_what_is_forgotten_is_neither_written_nor_told(work: UnitOfWork, calls: CallCounter) -> None:
    told: list[str] = []
    row = repo()
    work.publish(created(), about=row)
    work.save(row)
    work.once_written(lambda: told.append("written"))
    assert work.has_changes
    work.forget()
    assert not work.has_changes
    work.commit()
    assert (told, calls.calls) == ([], [])


def test_a_hundred_items_are_written(work: UnitOfWork) -> None:
    for number in range(100):
        work.save(Owner(f"owner-{number}"))
    work.commit()
    assert len(list(Owner.scan(consistent_read=True))) == 100


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


def test_a_stale_row_is_not_deleted__though_the_callers_condition_holds(work: UnitOfWork) -> None:
    work.save(repo())
    work.commit()
    stale = Repo.get("1", consistent_read=True)
    work.save(Repo.get("1", consistent_read=True))
    work.commit()
    work.delete(stale, condition=Repo.name == "tool")
    with pytest.raises(RowChanged):
        work.commit()


def test_a_stale_row_is_not_saved__though_the_callers_condition_holds(work: UnitOfWork) -> None:
    work.save(repo())
    work.commit()
    stale = Repo.get("1", consistent_read=True)
    work.save(Repo.get("1", consistent_read=True))
    work.commit()
    work.save(stale, condition=Repo.name == "tool")
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


def test_one_row_twice_is_refused__before_anything_is_sent(work: UnitOfWork, calls: CallCounter) -> None:
    work.save(Owner("owner-1"))
    work.update(Owner("owner-1"), [Owner.repo_count.add(1)])
    with pytest.raises(SameItemTwice, match="owner-1"):
        work.commit()
    assert calls.calls == []


def test_a_condition_of_a_later_kind_raises_its_own_error(runtime: Runtime, work: UnitOfWork) -> None:
    """PynamoDB sends checks, deletes, puts and updates in that order, whatever the order of the calls."""
    wanted = ValueError("the quota is used up")
    work.update(Owner("owner-1"), [Owner.repo_count.add(1)], condition=Owner.repo_count > 5, refused=wanted)
    work.save(repo())
    with pytest.raises(ValueError, match="quota"):
        work.commit()
    assert list(Repo.scan(consistent_read=True)) == []


@pytest.mark.parametrize("code", ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"])
def test_a_conflict_is_tried_again__and_then_named(work: UnitOfWork, code: str) -> None:
    work.save(Owner("owner-1"))
    conflict = cancelled({"Code": code})
    with failing("TransactWriteItems", conflict, times=100) as fault, pytest.raises(CommitConflict):
        work.commit()
    assert len(fault.struck) == 5


WRONG_TYPE = {"Code": "ValidationError", "Message": "An operand in the update expression has an incorrect data type"}


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        (WRONG_TYPE, f"owners owner-1: {WRONG_TYPE['Message']}"),
        (
            {"Code": "ItemCollectionSizeLimitExceeded", "Message": "Collection size exceeded."},
            "owners owner-1: Collection size exceeded.",
        ),
        ({"Code": "ValidationError"}, "owners owner-1: no reason given"),
    ],
)
def test_a_row_that_can_never_be_written_is_named__with_the_reason_and_at_once(
    work: UnitOfWork, reason: dict[str, str], message: str
) -> None:
    work.update(Owner("owner-1"), [Owner.repo_count.add(1)])
    work.save(repo())
    answer = cancelled(None, reason)  # puts come before updates, whatever the order of the calls
    with failing("TransactWriteItems", answer, times=100) as fault, pytest.raises(RowRefused) as raised:
        work.commit()
    failure = failure_of(raised.value)
    assert (failure.kind, failure.type, failure.message) == (FailureKind.PERMANENT, reason["Code"], message)
    assert (len(fault.struck), failure.own) == (1, False)


def test_a_row_that_can_never_be_written_is_not_tried_again__though_others_write_another_one(work: UnitOfWork) -> None:
    work.update(Owner("owner-1"), [Owner.repo_count.add(1)])
    work.save(repo())
    answer = cancelled({"Code": "TransactionConflict"}, WRONG_TYPE)
    with failing("TransactWriteItems", answer, times=100), pytest.raises(RowRefused):
        work.commit()


def test_a_condition_goes_before_a_row_that_cannot_be_written(work: UnitOfWork) -> None:
    work.update(Owner("owner-1"), [Owner.repo_count.add(1)])
    work.save(repo())
    answer = cancelled({"Code": "ConditionalCheckFailed"}, WRONG_TYPE)
    with failing("TransactWriteItems", answer), pytest.raises(RowChanged):
        work.commit()


def test_a_commit_in_doubt_is_sent_again_under_the_same_token(work: UnitOfWork, calls: CallCounter) -> None:
    work.save(Owner("owner-1"))
    with failing("TransactWriteItems", timed_out, after=True):
        work.commit()
    tokens = [call.parameters["ClientRequestToken"] for call in calls.calls]
    assert len(tokens) == 2
    assert len(set(tokens)) == 1


def test_each_commit_has_a_token_of_its_own(work: UnitOfWork, calls: CallCounter) -> None:
    """DynamoDB takes a second transaction under one token for a repetition of the first, and writes nothing."""
    for number in range(2):
        work.save(Owner(f"owner-{number}"))
        work.commit()
    tokens = [call.parameters["ClientRequestToken"] for call in calls.calls]
    assert len(set(tokens)) == 2
    assert all(UUID(token) for token in tokens)


@pytest.mark.parametrize(
    ("error", "is_asked"), [(cancelled({"Code": "TransactionConflict"}), False), (timed_out, True)]
)
def test_only_a_commit_in_doubt_is_asked_about(
    runtime: Runtime, error: Callable[[Call], BaseException], is_asked: bool
) -> None:
    asked: list[str] = []
    operation = Operation(OperationKind.PUT, Owner("owner-1"), ValueError())
    with failing("TransactWriteItems", error, times=99), pytest.raises(Unavailable):
        write([operation], runtime, took_effect=lambda: bool(asked.append("was it written?")))
    assert bool(asked) is is_asked


def test_a_process_that_dies_at_the_commit_has_written_all_or_nothing(work: UnitOfWork) -> None:
    row = repo()
    work.publish(created(), about=row)
    work.save(row)
    with failing("TransactWriteItems", died), pytest.raises(Died):
        work.commit()
    assert (list(Repo.scan(consistent_read=True)), events()) == ([], [])


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
