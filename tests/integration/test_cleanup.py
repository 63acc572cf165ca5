"""The clean-up: what has expired is deleted, within its budget, and nothing else.

Its reads may be behind by design (`tests/eventual_reads.py`). These tests are about what it finds, and show it the
present.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from app.settings import AppSettings
from mailroom.clients import Call, observed
from mailroom.clock import timestamp
from mailroom.idempotency import IdempotencyRow
from mailroom.job import JobEdge
from mailroom.jobs import cleanup as cleanup_module
from mailroom.jobs.cleanup import cleanup
from mailroom.outbox.relay import Relay
from mailroom.outbox.table import DEAD, DISCARDED, OutboxRow, sent
from mailroom.runtime import Runtime
from mailroom.saga_row import SagaRow
from mailroom.telemetry import LogEvent
from mailroom.testing import FakePublisher, LambdaContext, ManualClock
from tests.log_lines import Lines

from .conftest import CallCounter, Process
from .outbox.conftest import SHARD, Outbox, outbox  # noqa: F401 - a fixture


def record(name: str, expires_in: int, clock: ManualClock) -> None:
    IdempotencyRow(
        name, status="COMPLETED", in_progress_until=0, expires_at=clock.now() + timedelta(seconds=expires_in)
    ).save()


def names() -> list[str]:
    return sorted(row.id for row in IdempotencyRow.scan(consistent_read=True))


def clean(runtime: Runtime) -> None:
    JobEdge(cleanup, runtime).run(LambdaContext(60_000))


def test_what_has_expired_is_deleted__and_nothing_else(runtime: Runtime, clock: ManualClock) -> None:
    record("old", -1, clock)
    record("new", 1, clock)
    clean(runtime)
    assert names() == ["new"]


class MeanwhileAtDelete:
    """Does something just before each row is deleted."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.act = act

    def before(self, call: Call) -> None:
        if call.operation == "DeleteItem":
            self.act()

    def after(self, call: Call, answer: dict[str, Any]) -> None: ...


def test_a_record_that_was_renewed_meanwhile_stays(runtime: Runtime, clock: ManualClock) -> None:
    record("old", -1, clock)
    with observed(MeanwhileAtDelete(lambda: record("old", 100, clock))):
        clean(runtime)
    assert names() == ["old"]


def affordable(runtime: Runtime, units: int) -> Runtime:
    """Answer a process whose clean-up may use so many units: in moto a scan takes one, and so does a delete."""
    settings = runtime.settings.model_copy(update={"cleanup_units": units})
    return Runtime(settings, runtime.of(AppSettings), clock=runtime.clock, random=runtime.random)


def test_a_run_uses_so_many_units_and_no_more__and_the_next_goes_on_there(
    runtime: Runtime, clock: ManualClock, calls: CallCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup_module, "ROWS_PER_PAGE", 3)
    for number in range(10):
        record(f"old-{number}", -1, clock)
    clean(affordable(runtime, 6))
    assert (calls.counts["Scan"], calls.counts["DeleteItem"], len(names())) == (2, 4, 6)
    clean(affordable(runtime, 20))
    assert names() == []


def test_nothing_is_passed_over__when_the_units_end_within_a_page(
    runtime: Runtime, clock: ManualClock, calls: CallCounter
) -> None:
    for number in range(5):
        record(f"old-{number}", -1, clock)
    clean(affordable(runtime, 3))
    assert len(names()) == 3
    clean(affordable(runtime, 20))
    assert names() == []
    assert all("ExclusiveStartKey" not in call.parameters for call in calls.calls if call.operation == "Scan")


def test_a_run_that_finds_nothing_on_a_page_goes_on__since_the_page_need_not_be_the_last(
    runtime: Runtime, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup_module, "ROWS_PER_PAGE", 1)
    for number in range(5):
        record(f"young-{number}", 100, clock)
    record("old", -1, clock)
    clean(runtime)
    assert "old" not in names()


def discarded_event(name: str, expires_in: int | None, clock: ManualClock, partition: str = DISCARDED) -> None:
    expires_at = None if expires_in is None else clock.now() + timedelta(seconds=expires_in)
    OutboxRow(
        partition,
        name,
        type="t",
        source="s",
        payload="{}",
        created_at="2030-01-01T00:00:00.000Z",
        expires_at=expires_at,
    ).save()


def finished_saga(name: str, expires_in: int | None, clock: ManualClock) -> None:
    expires_at = None if expires_in is None else clock.now() + timedelta(seconds=expires_in)
    now = timestamp(clock.now())
    SagaRow(
        name, saga="s", steps="[]", data="{}", status="completed", direction="action", position=0,
        created_at=now, updated_at=now, expires_at=expires_at,
    ).save()  # fmt: skip


def test_sagas_are_deleted__once_they_are_finished_and_their_time_has_passed(
    runtime: Runtime, clock: ManualClock
) -> None:
    finished_saga("old", -1, clock)
    finished_saga("young", 100, clock)
    finished_saga("running", None, clock)
    clean(runtime)
    assert sorted(row.id for row in SagaRow.scan(consistent_read=True)) == ["running", "young"]


def test_discarded_events_are_deleted__once_their_time_has_passed(runtime: Runtime, clock: ManualClock) -> None:
    discarded_event("old", -1, clock)
    discarded_event("young", 100, clock)
    clean(runtime)
    assert [row.event_id for row in OutboxRow.scan(consistent_read=True)] == ["young"]


def test_a_run_begins_where_the_last_one_stopped__so_that_every_table_has_its_turn(
    runtime: Runtime, clock: ManualClock
) -> None:
    record("old", -1, clock)
    discarded_event("old", -1, clock)
    clean(affordable(runtime, 2))
    assert (names(), len(list(OutboxRow.scan(consistent_read=True)))) == ([], 1)
    clean(affordable(runtime, 2))
    assert list(OutboxRow.scan(consistent_read=True)) == []


def test_what_was_removed_is_counted_and_told(
    runtime: Runtime, clock: ManualClock, logs: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    record("old", -1, clock)
    discarded_event("old", -1, clock)
    finished_saga("old", -1, clock)
    clean(runtime)
    told = [(line["table"], line["deleted"]) for line in logs() if line["message"] == LogEvent.ROWS_CLEANED]
    assert told == [("idempotency", 1), ("outbox/discarded", 1), ("sagas", 1)]
    assert '"rows_cleaned":[1.0,1.0,1.0]' in capsys.readouterr().out


def test_the_clean_up_never_touches_an_event_that_waits_or_was_sent_or_died(
    runtime: Runtime, clock: ManualClock, outbox: Outbox
) -> None:
    event = outbox.add()
    Relay(runtime, FakePublisher()).drain(SHARD)
    waiting = outbox.add()
    discarded_event("dead", None, clock, partition=DEAD)
    clock.advance(365 * 86_400)
    clean(runtime)
    assert {row.event_id for row in OutboxRow.scan(consistent_read=True)} == {event, waiting, "dead"}
    assert outbox.ids(sent(SHARD)) == [event]


def test_two_clean_ups_at_once_are_one(
    runtime: Runtime, another: Process, clock: ManualClock, calls: CallCounter
) -> None:
    record("old", -1, clock)
    with observed(MeanwhileAtDelete(lambda: clean(another()))):
        clean(runtime)
    scanned = [call.parameters["TableName"] for call in calls.calls if call.operation == "Scan"]
    assert scanned == ["idempotency-table", "sagas-table"]
    assert calls.counts["DeleteItem"] == 1
