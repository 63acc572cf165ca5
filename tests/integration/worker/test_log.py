"""What a worker writes into its log."""

from __future__ import annotations

from typing import Any

import pytest

from mailroom.runtime import Runtime
from mailroom.sources.memory import InMemorySource
from mailroom.sources.source import MAX_RECEIVES
from mailroom.testing import ManualClock
from mailroom.worker import Worker
from tests.log_lines import Lines

from .watched import TIMEOUT, WORK, WatchedSource, at

COUNTS = ("handled", "failed", "handed_back", "cut_off")


def counts(line: dict[str, Any]) -> tuple[int, ...]:
    return tuple(line[name] for name in COUNTS)


def test_a_worker_says_that_it_started_and_what_it_did(worker: Worker, source: WatchedSource, logs: Lines) -> None:
    WORK.behave = at(2, worker.stop)
    source.put("a", "b", "c")
    worker.run()
    lines = [line for line in logs() if line["message"].startswith("worker")]
    assert [(line["message"], line["consumer"]) for line in lines] == [
        ("worker started", "adding"),
        ("worker stopping", "adding"),
        ("worker stopped", "adding"),
    ]
    assert lines[1]["message_id"] == "message-2", "what it is at when it is told"
    assert counts(lines[2]) == (2, 0, 1, 0)


def test_a_worker_says_what_it_begins__with_the_delivery_and_the_events_id(
    runtime: Runtime, clock: ManualClock, logs: Lines
) -> None:
    source = InMemorySource(clock)
    WatchedSource.put(source, "a")  # type: ignore[arg-type]
    source.receive(1, wait=0, hidden=0)
    source.send("what?")
    handled: list[Any] = []

    def handler(batch: dict[str, Any], context: Any) -> None:
        handled.append(batch)
        if len(handled) == 2:
            worker.stop()

    worker = Worker(source, handler, runtime, name="any")
    worker.run()
    begun = [line for line in logs() if line["message"] == "message begun"]
    assert [(line["message_id"], line["delivery"], line.get("event_id")) for line in begun] == [
        ("message-1", 2, "01JDW3NDEKTSV4RRFFQ69G000a-03"),
        ("message-2", 1, None),
    ]


def test_being_told_twice_is_one_stopping(worker: Worker, source: WatchedSource, logs: Lines) -> None:
    WORK.behave = at(1, lambda: [worker.stop(), worker.stop()])
    source.put("a")
    worker.run()
    assert [line["message"] for line in logs()].count("worker stopping") == 1


def test_what_outlives_the_shutdown_is_named__with_the_tally_and_when_others_get_it(
    worker: Worker, source: WatchedSource, logs: Lines, clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[dict[str, Any]] = []

    def shut_down() -> None:
        clock.advance(4)
        assert not worker.shutdown(timeout=0)
        told.extend(logs())

    WORK.behave = at(2, shut_down)
    source.put("a", "b", "c")
    worker.run()
    (line,) = [line for line in told if line["message"] == "message cut off"]
    assert (line["level"], line["consumer"], line["message_id"]) == ("WARNING", "adding", "message-2")
    assert line["event_id"] == "01JDW3NDEKTSV4RRFFQ69G000b-03"
    assert f"visible to others in {TIMEOUT + 10 - 4} s" in line["failure"]
    assert (told[-1]["message"], counts(told[-1])) == ("worker stopped", (1, 0, 1, 1))
    assert '"messages_cut_off":[1.0]' in capsys.readouterr().out


def test_what_is_at_its_last_delivery_and_was_not_begun_is_cut_off_too(
    worker: Worker, source: WatchedSource, logs: Lines
) -> None:
    told: list[str] = []

    def shut_down() -> None:
        if not told:
            worker.shutdown(timeout=0)
            told.extend(line["message_id"] for line in logs() if line["message"] == "message cut off")

    WORK.behave = lambda event: shut_down()
    source.put("a", "b")
    for _ in range(MAX_RECEIVES - 1):
        source.receive(2, wait=0, hidden=0)
    worker.run()
    assert told == ["message-1", "message-2"]
