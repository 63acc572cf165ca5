"""A worker that is told to stop: what runs goes on, and what has not begun is given back."""

from __future__ import annotations

import pytest

from mailroom.runtime import Runtime
from mailroom.sources.source import MAX_RECEIVES
from mailroom.testing import ManualClock
from mailroom.worker import Tally, Worker
from tests.faults import Died, died, failing
from tests.log_lines import Lines

from .watched import TEN, TIMEOUT, WORK, WatchedSource, another, at, effects


def test_what_a_long_poll_brings_after_the_signal_is_given_back_at_once(worker: Worker, source: WatchedSource) -> None:
    source.put("a", "b")
    source.on_reply = worker.stop
    worker.run()
    assert (WORK.begun, source.visible_names, source.deletions) == ([], ["a", "b"], [])
    assert worker.tally == Tally(handed_back=2)


def test_the_unstarted_are_visible_at_once__while_the_third_of_ten_goes_on_to_its_effect(
    worker: Worker, source: WatchedSource
) -> None:
    seen: list[list[str]] = []

    def stop() -> None:
        assert not worker.shutdown(timeout=0), "the third is at work"
        seen.append(source.visible_names)

    WORK.behave = at(3, stop)
    source.put(*TEN)
    worker.run()
    assert seen == [list("defghij")]
    assert effects() == dict.fromkeys("abc", 1)
    assert (source.visible_names, source.hidden) == (list("defghij"), [])
    assert worker.tally == Tally(handled=3, handed_back=7)
    assert worker.shutdown(timeout=0)


def test_being_told_again_changes_nothing(worker: Worker, source: WatchedSource, runtime: Runtime) -> None:
    WORK.behave = at(2, lambda: [worker.stop(), worker.stop()])
    source.put(*TEN)
    worker.run()
    worker.stop()
    assert worker.tally == Tally(handled=2, handed_back=8)
    another(source, runtime).run()
    assert effects() == dict.fromkeys(TEN, 1)


def test_a_worker_that_is_told_before_it_begins_receives_nothing(worker: Worker, source: WatchedSource) -> None:
    source.put("a")
    assert worker.shutdown(timeout=0)
    worker.run()
    assert (WORK.begun, source.visible_names) == ([], ["a"])


def test_a_message_at_its_last_delivery_is_handled__since_given_back_it_would_be_dead(
    worker: Worker, source: WatchedSource
) -> None:
    source.put("a")
    for _ in range(MAX_RECEIVES - 1):
        source.receive(1, wait=0, hidden=0)
    source.put("b")
    source.on_reply = worker.stop
    worker.run()
    assert effects() == {"a": 1}
    assert (source.visible_names, source.dead) == (["b"], [])
    assert source.hidings == [{"message-2/1": 0}]


def test_a_message_that_cannot_be_given_back_is_told_of__and_comes_when_its_time_is_over(
    worker: Worker, source: WatchedSource, clock: ManualClock, logs: Lines
) -> None:
    def stop() -> None:
        source.fail_hide = True
        worker.stop()

    WORK.behave = at(1, stop)
    source.put("a", "b")
    worker.run()
    assert [line["message_id"] for line in logs() if line["message"] == "message not returned"] == ["message-2"]
    assert worker.tally == Tally(handled=1)
    clock.advance(TIMEOUT + 10)
    assert source.visible_names == ["b"]


def test_a_failed_message_keeps_its_wait__when_the_worker_is_told_to_stop_in_it(
    worker: Worker, source: WatchedSource, clock: ManualClock
) -> None:
    def stop_and_fail() -> None:
        worker.stop()
        raise ValueError("no")

    WORK.behave = at(1, stop_and_fail)
    source.put("a", "b")
    worker.run()
    assert (source.visible_names, source.hidden_names) == (["b"], ["a"])
    clock.advance(60)
    assert source.visible_names == ["b"]


@pytest.mark.parametrize("operation", ["UpdateItem", "TransactWriteItems"])
@pytest.mark.parametrize("late", [False, True])
def test_nothing_is_lost_and_nothing_doubled__when_the_process_dies_in_a_message(
    worker: Worker, source: WatchedSource, clock: ManualClock, runtime: Runtime, operation: str, late: bool
) -> None:
    source.put(*TEN)
    dying = failing(lambda call: call.operation == operation and len(WORK.begun) >= 3, died, after=late)
    with dying, pytest.raises(Died):
        worker.run()
    assert source.visible == []
    clock.advance(TIMEOUT + 400)  # the wait after a failure is over too
    another(source, runtime).run()
    assert effects() == dict.fromkeys(TEN, 1)
    assert (source.visible, source.hidden) == ([], [])
