"""Idempotency records: work runs once per key, whatever happens in the middle of it."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest

from app.owners import Owner
from mailroom import clients
from mailroom.clients import Call, observed
from mailroom.clock import epoch_milliseconds, timestamp
from mailroom.failures import Failure, Permanent, failure_of
from mailroom.idempotency import ENDED_SILENTLY, Idempotency, IdempotencyRow, KeyReused, StillRunning, taken
from mailroom.needs import Access
from mailroom.runtime import Runtime
from mailroom.testing import ManualClock
from mailroom.unit_of_work import UnitOfWork
from tests.faults import Died, answer_lost, died, failing, refused, throttled, timed_out
from tests.log_lines import Lines

from .conftest import CallCounter
from .lagging import lagging_reads  # noqa: F401 - for every test here

DAY = 86_400


class Till:
    """Adds to a count in a row, once per key, and answers the count."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.idempotency = Idempotency(runtime, prefix="till", life=DAY)
        self.runs = 0

    def add(self, key: str = "key", fingerprint: str = "f", remaining_ms: int = 10_000) -> Any:
        outcome = self.idempotency.run(key=key, fingerprint=fingerprint, act=self.act, remaining_ms=remaining_ms)
        return outcome.value, outcome.replayed

    def act(self) -> dict[str, int]:
        self.runs += 1
        self.between()
        work = UnitOfWork(self.runtime, Access(writes=(Owner,)))
        work.update(Owner("owner-1"), [Owner.repo_count.add(1)])
        answer = {"run": self.runs}
        work.commit(answer)
        self.after()
        return answer

    def between(self) -> None: ...

    def after(self) -> None: ...

    @property
    def count(self) -> int:
        rows = list(Owner.scan(consistent_read=True))
        return int(rows[0].repo_count) if rows else 0


@pytest.fixture
def till(runtime: Runtime) -> Till:
    return Till(runtime)


def record() -> IdempotencyRow:
    (row,) = IdempotencyRow.scan(consistent_read=True)
    return row


def test_work_runs_once__and_its_answer_is_repeated(till: Till) -> None:
    assert till.add() == ({"run": 1}, False)
    assert till.add() == ({"run": 1}, True)
    assert (till.runs, till.count) == (1, 1)


def test_it_takes_two_calls__and_a_repetition_one(till: Till, calls: CallCounter) -> None:
    till.add()
    assert calls.counts == {"UpdateItem": 1, "TransactWriteItems": 1}
    calls.calls.clear()
    till.add()
    assert calls.counts == {"UpdateItem": 1}


def test_another_request_with_the_key_is_refused(till: Till) -> None:
    till.add(fingerprint="one")
    with pytest.raises(KeyReused):
        till.add(fingerprint="two")


def test_another_request_is_refused_as_such__also_while_the_first_is_in_flight(till: Till) -> None:
    def meanwhile() -> None:
        with pytest.raises(KeyReused):
            till.add(fingerprint="two")

    till.between = meanwhile  # type: ignore[method-assign]
    till.add(fingerprint="one")


def test_a_repetition_in_flight_is_told_to_wait_until_the_first_must_be_over(till: Till) -> None:
    waits = []

    def meanwhile() -> None:
        with pytest.raises(StillRunning) as refusal:
            till.add()
        waits.append(refusal.value.retry_after)

    till.between = meanwhile  # type: ignore[method-assign]
    till.add(remaining_ms=7000)
    assert waits == [7]


def test_a_failure_is_not_stored(till: Till) -> None:
    def fail() -> None:
        raise ValueError("no")

    till.between = fail  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="no"):
        till.add()
    assert list(IdempotencyRow.scan(consistent_read=True)) == []
    till.between = lambda: None  # type: ignore[method-assign]
    assert till.add() == ({"run": 2}, False)


def test_the_record_is_completed_with_the_work__so_a_crash_after_the_commit_runs_nothing_twice(till: Till) -> None:
    def die() -> None:
        raise Died

    till.after = die  # type: ignore[method-assign]
    with pytest.raises(Died):
        till.add()
    assert till.add() == ({"run": 1}, True)
    assert till.count == 1


def test_a_dead_attempt_is_taken_over__once_its_time_is_over(till: Till, clock: ManualClock) -> None:
    with failing("TransactWriteItems", died), pytest.raises(Died):
        till.add()
    with pytest.raises(StillRunning):
        till.add()
    clock.advance(11)
    assert till.add() == ({"run": 2}, False)
    assert till.count == 1


def test_an_attempt_that_outlived_its_window_commits_nothing__though_the_other_has_finished(
    till: Till, clock: ManualClock
) -> None:
    def stall() -> None:
        till.between = lambda: None  # type: ignore[method-assign]
        clock.advance(11)
        assert till.add() == ({"run": 2}, False)

    till.between = stall  # type: ignore[method-assign]
    assert till.add() == ({"run": 2}, True)
    assert till.count == 1
    assert till.add() == ({"run": 2}, True)


def test_a_late_attempt_that_fails_does_not_remove_anothers_record(till: Till, clock: ManualClock, logs: Lines) -> None:
    def stall_and_fail() -> None:
        till.between = lambda: None  # type: ignore[method-assign]
        clock.advance(11)
        till.add()
        raise ValueError("too late anyway")

    till.between = stall_and_fail  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="too late"):
        till.add()
    assert record().status == "COMPLETED"
    assert logs() == []


def test_a_late_attempt_that_fails_does_not_open_anothers_record(
    till: Till, runtime: Runtime, clock: ManualClock, logs: Lines
) -> None:
    def stall_and_fail() -> None:
        till.between = lambda: None  # type: ignore[method-assign]
        clock.advance(11)
        till.add()
        raise ValueError("too late anyway")

    till.idempotency = Idempotency(runtime, prefix="till", life=DAY, failing_as="till")
    till.between = stall_and_fail  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="too late"):
        till.add()
    assert record().status == "COMPLETED"
    assert logs() == []


def test_no_time_left_is_a_window_of_no_length__not_an_endless_one(till: Till, clock: ManualClock) -> None:
    with failing("TransactWriteItems", died), pytest.raises(Died):
        till.add(remaining_ms=0)
    clock.advance(0.001)
    assert till.add() == ({"run": 2}, False)


def test_a_commit_in_doubt_that_took_effect_counts(till: Till) -> None:
    with failing("TransactWriteItems", timed_out, after=True, times=100):
        assert till.add() == ({"run": 1}, False)
    assert till.count == 1
    assert record().status == "COMPLETED"


def test_a_commit_that_never_came_through_fails__and_can_be_repeated(till: Till) -> None:
    with failing("TransactWriteItems", timed_out, times=100), pytest.raises(Exception, match="did not come through"):
        till.add()
    assert till.add() == ({"run": 2}, False)
    assert till.count == 1


def test_a_commit_in_doubt_whose_record_cannot_be_read_does_not_count(till: Till) -> None:
    with (
        failing("TransactWriteItems", timed_out, times=100),
        failing("GetItem", throttled, times=100),
        pytest.raises(Exception, match="did not come through"),
    ):
        till.add()


def test_a_key_is_forgotten_by_our_clock(till: Till, clock: ManualClock) -> None:
    till.add()
    clock.advance(DAY - 1)
    assert till.add() == ({"run": 1}, True)
    clock.advance(2)
    assert till.add() == ({"run": 2}, False)


def test_a_record_expires_when_its_life_is_over__in_epoch_seconds(till: Till, clock: ManualClock) -> None:
    till.add()
    assert record().expires_at == clock.now() + timedelta(seconds=DAY)
    raw = clients.dynamodb().scan(TableName=IdempotencyRow.table_name(), ConsistentRead=True)["Items"]
    assert [item["expires_at"] for item in raw] == [{"N": str(int(clock.now().timestamp()) + DAY)}]


def test_an_attempt_under_a_key_that_was_forgotten_has_no_answer_yet(till: Till, clock: ManualClock) -> None:
    till.add()
    clock.advance(DAY + 1)
    with failing("TransactWriteItems", died), pytest.raises(Died):
        till.add()
    assert (record().status, record().response) == ("INPROGRESS", None)


def test_a_key_that_was_forgotten_had_no_failure_before(till: Till, clock: ManualClock) -> None:
    before = []
    till.between = lambda: before.append(taken().before)  # type: ignore[method-assign, union-attr]
    till.add()
    clock.advance(DAY + 1)
    till.add()
    assert before == [None, None]


def test_a_take_that_meets_a_commit_is_tried_again__then_told_to_wait(till: Till) -> None:
    with failing("UpdateItem", refused("TransactionConflictException")):
        assert till.add() == ({"run": 1}, False)
    with failing("UpdateItem", refused("TransactionConflictException"), times=100), pytest.raises(StillRunning):
        till.add()


def test_a_take_whose_answer_was_lost_knows_its_own_write__when_the_client_sends_it_again(till: Till) -> None:
    with answer_lost("UpdateItem"):
        assert till.add() == ({"run": 1}, False)
    assert till.add() == ({"run": 1}, True)
    assert (till.count, record().attempts) == (1, 1)


def test_a_take_whose_answer_was_lost_counts_one_attempt__after_earlier_ones(runtime: Runtime) -> None:
    idempotency = Idempotency(runtime, prefix="kept", life=DAY, failing_as="kept")
    attempts: list[int] = []

    def fail() -> None:
        attempts.append(taken().attempts)  # type: ignore[union-attr]
        raise ValueError("the reason")

    for _ in range(2):
        with pytest.raises(ValueError, match="the reason"):
            idempotency.run(key="key", act=fail, remaining_ms=1000, message_id="m-1")
    with answer_lost("UpdateItem"), pytest.raises(ValueError, match="the reason"):
        idempotency.run(key="key", act=fail, remaining_ms=1000, message_id="m-1")
    assert (attempts, record().attempts) == ([1, 2, 3], 3)


@pytest.mark.parametrize("error", [ValueError("the reason"), Died()], ids=repr)
def test_a_take_whose_answer_was_lost_knows_how_the_attempt_before_ended(
    runtime: Runtime, clock: ManualClock, error: BaseException
) -> None:
    idempotency = Idempotency(runtime, prefix="kept", life=DAY, failing_as="kept")
    known: list[Failure | None] = []
    over: list[int | None] = []

    def fail() -> None:
        known.append(taken().before)  # type: ignore[union-attr]
        over.append(taken().ended_at)  # type: ignore[union-attr]
        raise error

    began = epoch_milliseconds(clock.now())

    for lose in (nullcontext, lambda: answer_lost("UpdateItem")):
        with lose(), pytest.raises(type(error)):
            idempotency.run(key="key", act=fail, remaining_ms=1000, message_id="m-1")
        clock.advance(2)
    assert known == [None, failure_of(error) if isinstance(error, Exception) else ENDED_SILENTLY]
    assert over == [None, None if isinstance(error, Exception) else began + 1000]


def test_a_take_whose_answer_was_lost_knows_that_the_message_was_redriven(runtime: Runtime) -> None:
    idempotency = Idempotency(runtime, prefix="kept", life=DAY, failing_as="kept")
    afresh: list[bool] = []

    def fail() -> None:
        afresh.append(taken().starts_afresh)  # type: ignore[union-attr]
        raise Permanent("never")

    for message_id in ("m-1", "m-2"):
        with answer_lost("UpdateItem"), pytest.raises(Permanent):
            idempotency.run(key="key", act=fail, remaining_ms=1000, message_id=message_id)
    assert (afresh, record().attempts) == ([False, True], 1)


def test_another_attempt_at_the_same_moment_is_told_to_wait(till: Till) -> None:
    """Both records would be in progress until the same millisecond: the taker tells them from each other."""

    def meanwhile() -> None:
        with pytest.raises(StillRunning):
            till.add()

    till.between = meanwhile  # type: ignore[method-assign]
    till.add()
    assert till.runs == 1


def test_a_take_that_is_throttled_fails_as_such(till: Till) -> None:
    with failing("UpdateItem", throttled, times=100), pytest.raises(Exception, match="ThrottlingException"):
        till.add()
    assert till.runs == 0


def test_the_failure_stands_and_it_is_logged__though_the_record_cannot_be_opened(till: Till, logs: Lines) -> None:
    def fail() -> None:
        raise ValueError("the reason")

    till.between = fail  # type: ignore[method-assign]
    with failing("DeleteItem", throttled, times=100), pytest.raises(ValueError, match="the reason"):
        till.add()
    assert [(line["message"], line["record"]) for line in logs()] == [("record left open", record().id)]


def test_work_that_never_commits_is_our_own_error(runtime: Runtime) -> None:
    idempotency = Idempotency(runtime, prefix="forgetful", life=DAY)
    with pytest.raises(RuntimeError, match="without committing"):
        idempotency.run(key="key", act=lambda: None, remaining_ms=1000)


def test_prefixes_keep_keys_apart(runtime: Runtime) -> None:
    runs: list[str] = []
    for prefix in ("one", "two"):

        def act(prefix: str = prefix) -> None:
            runs.append(prefix)
            UnitOfWork(runtime, Access()).commit()

        Idempotency(runtime, prefix=prefix, life=DAY).run(key="key", act=act, remaining_ms=1000)
    assert runs == ["one", "two"]


def test_a_kept_failure_is_what_the_next_attempt_finds(runtime: Runtime) -> None:
    idempotency = Idempotency(runtime, prefix="kept", life=DAY, failing_as="kept")

    def fail() -> None:
        raise ValueError("the reason")

    with pytest.raises(ValueError, match="the reason"):
        idempotency.run(key="key", act=fail, remaining_ms=1000, message_id="m-1")
    assert Failure.from_json(record().failure).message == "the reason"
    assert (record().status, record().attempts) == ("FAILED", 1)


def test_a_kept_failure_says_when_it_failed__and_when_it_first_did(runtime: Runtime, clock: ManualClock) -> None:
    idempotency = Idempotency(runtime, prefix="kept", life=DAY, failing_as="kept")

    def fail() -> None:
        raise ValueError("the reason")

    times = []
    for _ in range(2):
        times.append(timestamp(clock.now()))
        with pytest.raises(ValueError, match="the reason"):
            idempotency.run(key="key", act=fail, remaining_ms=1000, message_id="m-1")
        clock.advance(60)
    assert (record().first_failed_at, record().failed_at) == tuple(times)


def test_a_redriven_message_counts_its_attempts_from_one(runtime: Runtime) -> None:
    idempotency = Idempotency(runtime, prefix="kept", life=DAY, failing_as="kept")

    def fail() -> None:
        raise Permanent("never")

    def die() -> None:
        raise Died

    for _ in range(3):
        with pytest.raises(Permanent):
            idempotency.run(key="key", act=fail, remaining_ms=1000, message_id="m-1")
    with pytest.raises(Died):
        idempotency.run(key="key", act=die, remaining_ms=1000, message_id="m-2")
    assert record().attempts == 1


def test_a_redriven_message_does_not_count_anew__once_another_attempt_has_its_record(runtime: Runtime) -> None:
    idempotency = Idempotency(runtime, prefix="kept", life=DAY, failing_as="kept")

    def fail() -> None:
        raise Permanent("never")

    with pytest.raises(Permanent):
        idempotency.run(key="key", act=fail, remaining_ms=1000, message_id="m-1")

    class TakenOver:
        """Another attempt takes the record over as soon as it is taken."""

        done = False

        def before(self, call: Call) -> None: ...

        def after(self, call: Call, answer: dict[str, Any]) -> None:
            if not self.done:
                self.done = True
                row = record()
                row.update([IdempotencyRow.attempts.set(7), IdempotencyRow.taker.set("another")])

    with observed(TakenOver()), pytest.raises(Permanent):
        idempotency.run(key="key", act=fail, remaining_ms=1000, message_id="m-2")
    assert (record().attempts, record().status) == (7, "INPROGRESS")
