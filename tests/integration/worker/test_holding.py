"""What a worker holds it keeps from others while it works, and it deletes what it has done."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from app.events import RepoCreated
from local.waiting import eventually
from mailroom.runtime import Runtime
from mailroom.sources.deletions import Deletions
from mailroom.testing import ManualClock
from mailroom.worker import Worker
from tests.log_lines import Lines

from .watched import BOUND, TEN, TIMEOUT, WORK, WatchedSource, another, at, do_nothing, effects


def test_nobody_else_gets_what_a_worker_holds__however_long_the_whole_batch_takes(
    worker: Worker, source: WatchedSource, clock: ManualClock
) -> None:
    seen: list[str] = []

    def work(event: RepoCreated) -> None:
        eventually(lambda: sum(source.deletions) == len(WORK.begun) - 1, within=BOUND)  # by a clock of its own
        for _ in range(TIMEOUT - 1):
            clock.advance(1)
            seen.extend(source.visible)

    WORK.behave = work
    source.put(*TEN)
    worker.run()
    assert seen == []
    assert effects() == dict.fromkeys(TEN, 1)
    assert source.hidden == []


def deleting_within(seconds: float, worker: Worker, source: WatchedSource, runtime: Runtime) -> Worker:
    """Make a worker like this one whose deletions wait so long for others."""
    deletions = Deletions(source, consumer="adding", within=seconds)
    own = Worker(source, worker._handler, runtime, name="adding", timeout=TIMEOUT, deletions=deletions)
    source.on_empty = own.stop
    return own


def test_quick_messages_need_no_calls_to_stay_hidden__and_are_deleted_together(
    worker: Worker, source: WatchedSource, clock: ManualClock, runtime: Runtime
) -> None:
    WORK.behave = lambda event: clock.advance(0.05)
    source.put(*TEN)
    deleting_within(BOUND, worker, source, runtime).run()
    assert (source.deletions, source.hidings) == ([10], [])


def until_deleted(source: WatchedSource, *deletions: int) -> Callable[[], None]:
    def wait() -> None:
        eventually(lambda: source.deletions == list(deletions), within=BOUND / 2)

    return wait


def test_a_handled_message_is_deleted_while_the_next_one_is_at_work(
    worker: Worker, source: WatchedSource, runtime: Runtime
) -> None:
    WORK.behave = at(3, until_deleted(source, 2))
    source.put("a", "b", "c")
    deleting_within(0.2, worker, source, runtime).run()
    assert sum(source.deletions) == 3


def test_a_slow_message_is_deleted_at_once__without_waiting_for_others(
    worker: Worker, source: WatchedSource, clock: ManualClock, runtime: Runtime
) -> None:
    def work(event: RepoCreated) -> None:
        until_deleted(source, *[1] * (len(WORK.begun) - 1))()
        clock.advance(2)

    WORK.behave = work
    source.put(*"abc")
    deleting_within(BOUND, worker, source, runtime).run()
    assert source.deletions == [1, 1, 1]


def test_the_next_messages_are_received_while_those_before_are_deleted(
    worker: Worker, source: WatchedSource, runtime: Runtime
) -> None:
    deleting, received = threading.Event(), threading.Event()
    received_meanwhile: list[bool] = []

    def delete(names: list[str]) -> None:
        deleting.set()
        received_meanwhile.append(received.wait(BOUND))

    def receive_nothing() -> None:
        deleting.wait(BOUND)
        received.set()
        worker.stop()

    source.before_delete, source.on_empty = delete, receive_nothing
    source.put("a")
    worker.run()
    assert received_meanwhile == [True]


def test_a_deletion_that_raises_is_told_of__and_those_after_it_go_on(
    worker: Worker, source: WatchedSource, logs: Lines
) -> None:
    def fail_once(names: list[str]) -> None:
        if not source.deletions and "a" in names:
            source.before_delete = lambda names: None
            raise RuntimeError("a bug")

    source.before_delete = fail_once
    WORK.behave = lambda event: None if event.name == "a" else until_deletion_failed(logs)
    source.put("a")
    source.on_empty = lambda: [source.put("b"), setattr(source, "on_empty", worker.stop)]
    worker.run()
    assert (source.hidden_names, source.deletions) == (["a"], [1])


def until_deletion_failed(logs: Lines) -> None:
    eventually(lambda: any(line["message"] == "message not deleted" for line in logs()), within=BOUND / 2)


def test_what_runs_beyond_its_timeout_hides_nothing_any_longer__and_others_get_what_waits(
    worker: Worker, source: WatchedSource, clock: ManualClock, runtime: Runtime
) -> None:
    other = Worker(source, worker._handler, runtime, name="other")

    def overrun() -> None:
        clock.advance(TIMEOUT + 400)  # the wait after a failure is over too
        assert source.visible_names == ["a", "b", "c"]
        source.on_empty = other.stop
        WORK.behave = do_nothing
        other.run()
        source.on_empty = worker.stop

    WORK.behave = at(1, overrun)
    source.put("a", "b", "c")
    worker.run()
    assert effects() == dict.fromkeys("abc", 1)
    assert sorted(WORK.begun) == ["a", "a", "b", "c"], "the overrun was taken over, and what waited was left to it"
    assert (source.visible, source.hidden) == ([], [])


def test_a_stale_receipt_is_told_of_and_counted__and_its_message_is_left_to_others(
    worker: Worker, source: WatchedSource, clock: ManualClock, logs: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    def lose_what_waits() -> None:
        clock.advance(TIMEOUT + 11)
        source.receive(10, wait=0, hidden=3600)

    WORK.behave = at(1, lose_what_waits)
    source.put("a", "b")
    worker.run()
    assert WORK.begun == ["a"]
    kept = [line for line in logs() if line["message"] == "message not kept"]
    assert [(line["message_id"], line["failure_type"]) for line in kept] == [("message-2", "StaleReceipt")]
    assert '"receipts_stale":' in capsys.readouterr().out


def test_a_message_is_handled_all_the_same__when_it_could_not_be_hidden_for_longer_this_time(
    worker: Worker, source: WatchedSource, clock: ManualClock, logs: Lines
) -> None:
    source.fail_hide = True
    WORK.behave = lambda event: clock.advance(TIMEOUT - 1)
    source.put("a", "b")
    worker.run()
    assert WORK.begun == ["a", "b"]
    assert [line["message_id"] for line in logs() if line["message"] == "message not kept"] == ["message-2"]


def test_no_message_is_hidden_beyond_twelve_hours_of_its_first_receive(
    worker: Worker, source: WatchedSource, clock: ManualClock
) -> None:
    source.put("a", "b")
    source.receive(2, wait=0, hidden=12 * 3600 - 30)
    clock.advance(12 * 3600 - 30)
    WORK.behave = lambda event: clock.advance(6)
    worker.run()
    assert effects() == dict.fromkeys("ab", 1)
    assert source.hidings == [], "hidden for the thirty seconds that are left, and never for more"


def test_a_deletion_that_fails_is_told_of_and_counted__and_the_effect_happens_once(
    worker: Worker,
    source: WatchedSource,
    clock: ManualClock,
    runtime: Runtime,
    logs: Lines,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source.fail_delete = True
    source.put("a", "b")
    worker.run()
    assert [line["message_id"] for line in logs() if line["message"] == "message not deleted"] == [
        "message-1",
        "message-2",
    ]
    assert '"messages_not_deleted":[2.0]' in capsys.readouterr().out
    source.fail_delete = False
    clock.advance(TIMEOUT + 10)
    another(source, runtime).run()
    assert effects() == dict.fromkeys("ab", 1)
    assert (source.visible, source.hidden) == ([], [])
