"""The commit: all or nothing, in one call, with errors that name what stood in the way."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from app.owners import Owner
from app.repos import Repo
from mailroom.clients import Call
from mailroom.failures import FailureKind, Unavailable, failure_of
from mailroom.outbox.event import shard_of_subject
from mailroom.outbox.table import pending
from mailroom.runtime import Runtime
from mailroom.transaction import (
    CommitConflict,
    Operation,
    OperationKind,
    RowRefused,
    SameItemTwice,
    TooManyItems,
    write,
)
from mailroom.unit_of_work import RowChanged, UnitOfWork
from tests.faults import Died, cancelled, died, failing, throttled, timed_out

from ..conftest import CallCounter
from .conftest import ACCESS, created, events, repo


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
