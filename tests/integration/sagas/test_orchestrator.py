"""The orchestrator: a request that was lost is made again, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mailroom.clients import Call, observed
from mailroom.jobs import saga_orchestrator as module
from mailroom.outbox.table import OutboxRow
from mailroom.runtime import Runtime
from mailroom.saga_row import SagaRow, Status
from mailroom.telemetry import LogEvent
from tests.lagging_reads import INDEX_LAG
from tests.log_lines import Lines

from .conftest import BEHAVE, Line, effects, once, raising, requests


def lose(line: Line) -> None:
    """Take every request away, wherever it is."""
    line.carry()
    for record in line.queue.receive(10, wait=0, hidden=180):
        line.queue.delete([record["receiptHandle"]])


@pytest.fixture
def lost(line: Line) -> str:
    """A saga whose first request was lost long ago."""
    saga_id = line.start()
    lose(line)
    line.clock.advance(line.runtime.timings.saga_stall + 1)
    return saga_id


def test_a_saga_whose_request_was_lost_goes_on(line: Line, lost: str) -> None:
    line.orchestrate()
    line.run()
    assert line.row(lost).status == Status.COMPLETED
    assert effects() == once("flight", "hotel", "car")


def test_one_that_was_being_undone_goes_on_back(line: Line) -> None:
    BEHAVE["hotel"] = raising(ValueError("no"))
    saga_id = line.start()
    while line.row(saga_id).status == Status.RUNNING:
        line.carry()
        line.deliver()
        line.clock.advance(6_000)
    lose(line)
    line.clock.advance(line.runtime.timings.saga_stall + 1)
    line.orchestrate()
    line.run()
    assert line.row(saga_id).status == Status.COMPENSATED
    assert effects() == once("flight", "no_flight")


def test_a_saga_is_asked_once_in_a_while__not_in_every_run(line: Line, lost: str) -> None:
    for _ in range(3):
        line.orchestrate()
    assert len(requests()) == 2


def test_a_saga_that_moves_is_left_alone(line: Line) -> None:
    line.start()
    line.clock.advance(line.runtime.timings.saga_stall - 1)
    line.orchestrate()
    assert len(requests()) == 1


def test_a_finished_saga_is_left_alone(line: Line) -> None:
    line.start()
    line.run()
    before = len(requests())
    line.clock.advance(line.runtime.timings.saga_stall + 1)
    line.orchestrate()
    assert len(requests()) == before


def test_a_stuck_saga_waits_for_its_operator(line: Line) -> None:
    BEHAVE["hotel"] = BEHAVE["no_flight"] = raising(ValueError("no"))
    saga_id = line.start()
    line.run()
    before = len(requests())
    line.clock.advance(line.runtime.timings.saga_stall + 1)
    line.orchestrate()
    assert (line.row(saga_id).status, len(requests())) == (Status.STUCK, before)


@pytest.mark.parametrize("state", ["moved just now", "finished long ago", "stuck long ago"])
def test_the_index_is_not_believed__it_may_be_behind(line: Line, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if state == "stuck long ago":
        BEHAVE["hotel"] = BEHAVE["no_flight"] = raising(ValueError("no"))
    saga_id = line.start()
    listed = line.row(saga_id)  # as the index has it still
    listed.updated_at = "2020-01-01T00:00:00.000Z"
    if state != "moved just now":
        line.run()
        line.clock.advance(line.runtime.timings.saga_stall + 1)
    before = len(requests())
    monkeypatch.setattr(module.JobContext, "page", lambda *_, **__: ([listed], None))
    line.orchestrate()
    assert len(requests()) == before


class Meanwhile:
    """Does something once, just before a commit."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act: Callable[[], object] | None = act

    def before(self, call: Call) -> None:
        if call.operation == "TransactWriteItems" and self._act is not None:
            act, self._act = self._act, None
            act()

    def after(self, call: Call, answer: object) -> None: ...


def test_of_two_that_ask_at_once_one_wins__and_the_other_goes_on(line: Line, lost: str, logs: Lines) -> None:
    second = line.start()
    lose(line)
    line.clock.advance(line.runtime.timings.saga_stall + 1)

    def other() -> None:
        row = line.row(lost)
        row.version += 1
        row.save()

    with observed(Meanwhile(other)):
        line.orchestrate()
    assert [row.subject for row in requests()[2:]] == [f"sagas/{second}"]
    assert [each["saga_id"] for each in logs() if each["message"] == LogEvent.SAGA_RESUMED] == [second]


def test_a_saga_that_was_asked_to_go_on_twice_goes_on_once(
    line: Line, lost: str, another: Callable[[], Runtime]
) -> None:
    line.orchestrate()
    line.clock.advance(line.runtime.timings.saga_stall + 1)
    line.orchestrate(another())
    line.run()
    assert effects() == once("flight", "hotel", "car")


def test_a_run_is_bounded(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESUMED_AT_MOST", 2)
    for _ in range(3):
        line.start()
    lose(line)
    line.clock.advance(line.runtime.timings.saga_stall + 1)
    line.orchestrate()
    assert len(requests()) == 5
    line.clock.advance(INDEX_LAG)  # a run a minute: by then the index no longer lists those
    line.orchestrate()
    assert len(requests()) == 6


def test_a_request_that_died_in_the_outbox_is_made_again(line: Line) -> None:
    saga_id = line.start()
    for row in OutboxRow.scan(consistent_read=True):
        row.delete()
    line.clock.advance(line.runtime.timings.saga_stall + 1)
    line.orchestrate()
    line.run()
    assert SagaRow.get(saga_id, consistent_read=True).status == Status.COMPLETED
