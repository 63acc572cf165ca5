"""What a worker handles has its effect, and is deleted after it."""

from __future__ import annotations

from typing import Any

import pytest

from app.events import RepoCreated
from mailroom.consumer import consumer
from mailroom.outbox.event import Envelope, Part
from mailroom.runtime import Runtime
from mailroom.sources.memory import InMemorySource
from mailroom.testing import ManualClock
from mailroom.unit_of_work import UnitOfWork
from mailroom.worker import Tally, Worker
from mailroom.workers import workers_of
from tests.log_lines import Lines

from .watched import TEN, TIMEOUT, WORK, WatchedSource, effects


def test_every_message_has_its_effect__and_is_deleted_after_it(worker: Worker, source: WatchedSource) -> None:
    source.put(*TEN, "k", "l")
    worker.run()
    assert effects() == dict.fromkeys([*TEN, "k", "l"], 1)
    assert (source.visible, source.hidden) == ([], [])
    assert worker.tally == Tally(handled=12)


def test_a_message_that_failed_waits_as_the_edge_decided__and_the_others_are_deleted(
    worker: Worker, source: WatchedSource, clock: ManualClock, runtime: Runtime
) -> None:
    def fail(event: RepoCreated) -> None:
        if event.name == "b":
            raise ValueError("no")

    WORK.behave = fail
    source.put("a", "b", "c")
    worker.run()
    assert source.hidden_names == ["b"]
    assert (worker.tally.handled, worker.tally.failed) == (2, 1)
    clock.advance(runtime.timings.consumer_backoff.base - 1)
    assert source.visible_names == []
    clock.advance(runtime.timings.consumer_backoff.base)
    assert source.visible_names == ["b"]


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        (None, []),
        ({}, []),
        ({"batchItemFailures": None}, []),
        ({"batchItemFailures": []}, []),
        ({"batchItemFailures": [{"itemIdentifier": "message-1"}]}, ["a"]),
        ({"batchItemFailures": [{"itemIdentifier": "who?"}]}, ["a"]),
        ("what?", ["a"]),
    ],
    ids=str,
)
def test_an_answer_means_what_it_means_to_lambda(
    answer: Any, left: list[str], source: WatchedSource, runtime: Runtime
) -> None:
    worker = Worker(source, lambda batch, context: answer, runtime, name="any")
    source.on_empty = worker.stop
    source.before_delete = lambda names: None
    source.put("a")
    worker.run()
    assert source.hidden_names == left


def test_a_handler_that_raises_deletes_nothing__and_the_worker_goes_on(
    source: WatchedSource, runtime: Runtime, logs: Lines
) -> None:
    called = []

    def handler(batch: dict[str, Any], context: Any) -> None:
        called.append(batch["Records"][0]["messageId"])
        raise RuntimeError("a bug")

    worker = Worker(source, handler, runtime, name="adding")
    source.on_empty = worker.stop
    source.put("a", "b")
    worker.run()
    assert called == ["message-1", "message-2"]
    assert source.hidden_names == ["a", "b"]
    lines = [line for line in logs() if line["message"] == "handler failed"]
    assert [(line["message_id"], line["exception_name"]) for line in lines] == [
        ("message-1", "RuntimeError"),
        ("message-2", "RuntimeError"),
    ]


def test_a_handler_has_the_consumers_timeout_for_each_message(
    source: WatchedSource, runtime: Runtime, clock: ManualClock
) -> None:
    left: list[int] = []

    def handler(batch: dict[str, Any], context: Any) -> dict[str, Any]:
        left.append(context.get_remaining_time_in_millis())
        clock.advance(7)
        return {"batchItemFailures": [{"itemIdentifier": batch["Records"][0]["messageId"]}]}

    worker = Worker(source, handler, runtime, name="any", timeout=TIMEOUT)
    source.on_empty = worker.stop
    source.put("a", "b")
    worker.run()
    assert left == [TIMEOUT * 1000] * 2


def test_those_that_were_delivered_most_often_go_first(
    worker: Worker, source: WatchedSource, clock: ManualClock
) -> None:
    source.put("a", "b")
    _, b = source.receive(2, wait=0, hidden=60)
    source.hide({b["receiptHandle"]: 0})
    (again,) = source.receive(2, wait=0, hidden=60)
    clock.advance(60)
    assert again["messageId"] == b["messageId"]
    worker.run()
    assert WORK.begun == ["b", "a"]


class Bit(Part, type="test.bit"):
    """Half of an event."""


@consumer(on=RepoCreated, splits_into=[Bit])
def splitting(event: RepoCreated, work: UnitOfWork) -> None:
    for key in ("left", "right"):
        work.split(Bit(), key=key)


def test_a_worker_hands_on_the_parts_of_its_events(source: WatchedSource, runtime: Runtime, clock: ManualClock) -> None:
    parts = InMemorySource(clock)
    (worker,) = workers_of(splitting, runtime, source, count=1, parts=parts)
    source.on_empty, source.before_delete = worker.stop, lambda names: None
    source.put("a")
    worker.run()
    assert sorted(Envelope.from_json(body).id.partition("/")[2] for body in parts.visible) == ["left", "right"]
    assert worker.tally == Tally(handled=1)
