"""Receives that fail are repeated, or end the worker."""

from __future__ import annotations

import pytest

from mailroom.runtime import Runtime
from mailroom.sources.source import SourceRefused
from mailroom.testing import ManualClock
from mailroom.worker import Worker
from tests.log_lines import Lines

from .watched import TEN, WatchedSource, effects


def failing_receives(source: WatchedSource, error: Exception, count: int) -> None:
    left = [error] * count

    def fail() -> None:
        if left:
            raise left.pop()

    source.on_receive = fail


def test_receives_that_fail_are_repeated_with_growing_pauses__told_of_and_counted(
    worker: Worker,
    source: WatchedSource,
    runtime: Runtime,
    clock: ManualClock,
    logs: Lines,
    capsys: pytest.CaptureFixture[str],
) -> None:
    failing_receives(source, ConnectionError("down"), 4)
    source.put("a")
    worker.run()
    assert effects() == {"a": 1}
    pauses = [line["pause"] for line in logs() if line["message"] == "receive failed"]
    backoff = runtime.timings.pause_backoff
    assert [pause >= min(backoff.cap, backoff.base * 2**n) for n, pause in enumerate(pauses)] == [True] * 4
    assert sum(clock.slept) == pytest.approx(sum(pauses))
    assert capsys.readouterr().out.count('"receives_failed":[1.0]') == 4


def test_the_pauses_are_short_again__after_a_receive_that_went_well(
    worker: Worker, source: WatchedSource, runtime: Runtime, logs: Lines
) -> None:
    script: list[Exception | None] = [ConnectionError(), ConnectionError(), None, ConnectionError(), None]

    def next_one() -> None:
        if script and (error := script.pop(0)):
            raise error

    source.on_receive = next_one
    source.put(*TEN, "k")
    worker.run()
    first, second, third = (line["pause"] for line in logs() if line["message"] == "receive failed")
    base = runtime.timings.pause_backoff.base
    assert first < 1.5 * base < 2 * base <= second
    assert third <= 1.5 * base


def test_a_pause_ends_soon__when_the_worker_is_told_to_stop(
    worker: Worker, source: WatchedSource, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_receives(source, ConnectionError("down"), 1000)

    def sleep(seconds: float) -> None:
        clock.advance(seconds)
        worker.stop()

    monkeypatch.setattr(clock, "sleep", sleep)
    worker.run()
    assert clock.monotonic() <= 0.5


def test_a_source_that_is_refused_from_the_start_ends_the_worker(worker: Worker, source: WatchedSource) -> None:
    failing_receives(source, SourceRefused("no such queue"), 1)
    with pytest.raises(SourceRefused):
        worker.run()
    assert worker.shutdown(timeout=0)


def test_a_source_that_is_refused_later_may_come_back(worker: Worker, source: WatchedSource) -> None:
    source.put(*TEN, "k")
    worker_received = []

    def refuse_the_second() -> None:
        worker_received.append(1)
        if len(worker_received) == 2:
            raise SourceRefused("somebody changes the policy")

    source.on_receive = refuse_the_second
    worker.run()
    assert len(effects()) == 11
