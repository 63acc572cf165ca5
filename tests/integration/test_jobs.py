"""Jobs: one run at a time, under a lease, and what the machinery's own jobs do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.owners import Owner
from app.settings import AppSettings
from mailroom.clients import Call, observed
from mailroom.clock import timestamp
from mailroom.declarations import DECLARATION_VARIABLE
from mailroom.deployment import Deployment, Queues
from mailroom.idempotency import IdempotencyRow
from mailroom.invocation import Invocation
from mailroom.job import JobContext, JobEdge, job, job_handler
from mailroom.jobs import cleanup as cleanup_module
from mailroom.jobs.cleanup import cleanup
from mailroom.jobs.metrics_export import metrics_export
from mailroom.jobs.outbox_relay import outbox_relay
from mailroom.lease import Lease, LeaseLost
from mailroom.outbox.event import Envelope
from mailroom.outbox.relay import Relay
from mailroom.outbox.table import DEAD, DISCARDED, OutboxRow, sent
from mailroom.publishers.publisher import SENT, Outcome
from mailroom.runtime import Runtime
from mailroom.saga_row import SagaRow
from mailroom.schedule import Every
from mailroom.telemetry import LogEvent
from mailroom.testing import FakePublisher, LambdaContext, ManualClock, transient, unavailable
from tests.faults import Died, died, failing, refused
from tests.log_lines import Lines

from .conftest import CallCounter, Process
from .outbox.conftest import SHARD, Outbox, outbox  # noqa: F401 - a fixture

RUNS: list[Callable[[JobContext], None]] = []


@job(schedule=Every(hours=1), writes=[Owner])
def example(work: JobContext) -> None:
    RUNS.pop()(work)


@pytest.fixture
def edge(runtime: Runtime) -> JobEdge:
    RUNS.clear()
    return JobEdge(example, runtime)


def write_owner(work: JobContext) -> None:
    work.save(Owner("owner-1"))


def test_what_a_job_collects_is_committed__when_it_ends_well(edge: JobEdge) -> None:
    RUNS.append(write_owner)
    edge.run(LambdaContext())
    assert [owner.id for owner in Owner.scan()] == ["owner-1"]


def test_a_second_firing_is_skipped__while_a_run_is_at_work(edge: JobEdge, another: Process) -> None:
    def meanwhile(work: JobContext) -> None:
        edge.run(LambdaContext())
        JobEdge(example, another()).run(LambdaContext())

    RUNS.append(meanwhile)
    edge.run(LambdaContext())
    assert RUNS == []


NOON = datetime(2030, 1, 1, tzinfo=UTC)


def fire(edge: JobEdge, at: datetime | None = NOON) -> bool:
    """Answer whether the firing was served by a run of its own."""
    RUNS.append(lambda work: work.update(Owner("owner-1"), [Owner.repo_count.add(1)]))
    edge.run(LambdaContext(), fired_at=at)
    ran = not RUNS
    RUNS.clear()
    return ran


def test_a_job_runs_once__when_it_is_fired_twice(edge: JobEdge, another: Process) -> None:
    assert fire(edge)
    assert not fire(edge)
    assert not fire(JobEdge(example, another()))
    assert Owner.get("owner-1").repo_count == 1


def test_a_firing_that_comes_after_a_later_one_is_skipped__since_the_later_run_did_its_work(
    edge: JobEdge, clock: ManualClock
) -> None:
    clock.advance(7_200)
    assert fire(edge, NOON + timedelta(hours=1))
    assert not fire(edge, NOON)
    assert fire(edge, NOON + timedelta(hours=2))


def test_a_run_that_someone_asks_for_is_no_duplicate(edge: JobEdge) -> None:
    assert fire(edge)
    assert fire(edge, None)
    assert not fire(edge)


def test_a_firing_whose_run_failed_is_not_served__and_its_repetition_runs(edge: JobEdge) -> None:
    def fail(work: JobContext) -> None:
        raise ValueError("no")

    RUNS.append(fail)
    with pytest.raises(ValueError, match="no"):
        edge.run(LambdaContext(), fired_at=NOON)
    assert fire(edge)


def test_a_firing_whose_commit_was_refused_is_not_served(edge: JobEdge) -> None:
    RUNS.append(write_owner)
    with (
        failing("TransactWriteItems", refused("ValidationException")),
        pytest.raises(Exception, match="Failed to write"),
    ):
        edge.run(LambdaContext(), fired_at=NOON)
    assert fire(edge)


def test_a_run_that_died_after_its_commit_is_not_done_again(edge: JobEdge, clock: ManualClock) -> None:
    RUNS.append(write_owner)
    with failing("TransactWriteItems", died, after=True), pytest.raises(Died):
        edge.run(LambdaContext(), fired_at=NOON)
    clock.advance(61)
    assert not fire(edge)


def test_a_clock_that_was_ahead_does_not_silence_a_job(edge: JobEdge, clock: ManualClock) -> None:
    clock.jump(86_400)
    assert fire(edge, clock.now())
    clock.jump(-86_400)
    assert fire(edge, clock.now())


def test_the_memo_is_stored_with_each_commit_of_a_run(edge: JobEdge, clock: ManualClock) -> None:
    def commit_a_page_and_die(work: JobContext) -> None:
        work.memo["page"] = 1
        write_owner(work)
        work.commit()
        raise Died

    RUNS.append(commit_a_page_and_die)
    with pytest.raises(Died):
        edge.run(LambdaContext(), fired_at=NOON)
    clock.advance(61)
    RUNS.append(lambda work: work.memo["page"] == 1 or pytest.fail("the page was forgotten"))
    edge.run(LambdaContext(), fired_at=NOON)
    assert RUNS == []


def test_the_lambda_handler_knows_a_firing_by_the_moment_in_its_event(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As EventBridge sends it, https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-run-lambda-schedule.html."""
    monkeypatch.setenv(DECLARATION_VARIABLE, f"{__name__}:example")
    handler = job_handler(lambda: runtime)
    firing = {"detail-type": "Scheduled Event", "source": "aws.events", "time": "2030-01-01T00:00:00Z", "detail": {}}
    runs = []
    RUNS.extend([runs.append] * 4)
    for event in (firing, firing, {}, {"time": "soon"}):
        handler(event, LambdaContext())
    assert len(runs) == 3


def test_a_job_that_raises_fails_loudly__and_the_next_run_can_start(edge: JobEdge) -> None:
    def fail(work: JobContext) -> None:
        write_owner(work)
        raise ValueError("no")

    RUNS.append(fail)
    with pytest.raises(ValueError, match="no"):
        edge.run(LambdaContext())
    assert list(Owner.scan()) == []
    RUNS.append(write_owner)
    edge.run(LambdaContext())
    assert len(list(Owner.scan())) == 1


def test_a_run_that_cannot_begin_has_failed_too(edge: JobEdge, logs: Lines, capsys: pytest.CaptureFixture[str]) -> None:
    with failing("UpdateItem", refused("AccessDeniedException")), pytest.raises(Exception, match="injected"):
        edge.run(LambdaContext())
    assert [line["message"] for line in logs()] == [LogEvent.JOB_FAILED]
    assert '"job_failed":[1.0]' in capsys.readouterr().out


def test_a_run_that_stalled_past_its_lease_commits_nothing(edge: JobEdge, another: Process, clock: ManualClock) -> None:
    def stall(work: JobContext) -> None:
        write_owner(work)
        clock.advance(61)
        RUNS.append(lambda work: None)
        JobEdge(example, another()).run(LambdaContext())

    RUNS.append(stall)
    with pytest.raises(LeaseLost):
        edge.run(LambdaContext())
    assert list(Owner.scan()) == []


def test_a_dead_run_does_not_stop_the_next__once_its_lease_is_over(edge: JobEdge, clock: ManualClock) -> None:
    def die(work: JobContext) -> None:
        raise Died

    RUNS.append(die)
    with pytest.raises(Died):
        edge.run(LambdaContext())
    clock.advance(61)
    RUNS.append(write_owner)
    edge.run(LambdaContext())
    assert len(list(Owner.scan())) == 1


# The sweep


def sweep(runtime: Runtime, publisher: FakePublisher, *, remaining_ms: int = 55_000) -> None:
    runtime.provide(Relay, Relay(runtime, publisher))
    JobEdge(outbox_relay, runtime).run(LambdaContext(remaining_ms))


def test_the_sweep_delivers_every_shard(runtime: Runtime, outbox: Outbox) -> None:
    publisher = FakePublisher()
    events = [outbox.add(f"anything/{n}") for n in range(40)]
    sweep(runtime, publisher)
    assert sorted(publisher.ids) == sorted(events)


def test_the_sweep_looks_again__while_an_attempt_falls_due_in_its_time(
    runtime: Runtime,
    clock: ManualClock,
    outbox: Outbox,
) -> None:
    publisher = FakePublisher(lambda event: transient() if len(publisher.attempted) < 3 else SENT)
    outbox.add()
    sweep(runtime, publisher)
    assert len(publisher.attempted) == 3
    assert all(seconds >= runtime.timings.sweep_tick for seconds in clock.slept)


def test_the_sweep_ends__when_nothing_falls_due_before_its_deadline(
    runtime: Runtime,
    clock: ManualClock,
    outbox: Outbox,
) -> None:
    began = clock.monotonic()
    publisher = FakePublisher(lambda _: unavailable())
    outbox.add()
    sweep(runtime, publisher)
    assert clock.monotonic() - began < 55
    assert clock.slept


def test_a_sweep_that_waits_ends_at_the_next_tick__when_it_is_called_off(
    runtime: Runtime, clock: ManualClock, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    invocation = Invocation(clock, request_id="run-1", seconds=55)
    sleep = clock.sleep

    def call_it_off(seconds: float) -> None:
        sleep(seconds)
        if clock.monotonic() > 8:
            invocation.end()

    publisher = FakePublisher(lambda _: transient())
    outbox.add()
    monkeypatch.setattr(clock, "sleep", call_it_off)
    runtime.provide(Relay, Relay(runtime, publisher))
    JobEdge(outbox_relay, runtime).run(invocation)
    assert clock.monotonic() < 8 + 1.4 * runtime.timings.sweep_tick  # the second wait is twice as long


def test_the_sweep_takes_a_page_per_shard_in_turn(runtime: Runtime, outbox: Outbox) -> None:
    publisher = FakePublisher()
    for _ in range(250):
        outbox.add()
    other = outbox.add("anything/0")
    sweep(runtime, publisher)
    assert publisher.ids.index(other) <= 100
    assert len(publisher.ids) == 251


def test_the_sweep_holds_no_lease_while_it_waits(
    runtime: Runtime,
    clock: ManualClock,
    outbox: Outbox,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = []

    def sleep(seconds: float) -> None:
        held = Lease(f"relay#{SHARD:02d}", runtime).acquire()
        free.append(held is not None)
        if held is not None:
            held.release(clean=True)
        clock.advance(seconds)

    outbox.add()
    monkeypatch.setattr(clock, "sleep", sleep)
    sweep(runtime, FakePublisher(lambda _: unavailable()))
    assert free
    assert all(free)


def test_a_sweep_over_nothing_reads_each_shard_once__and_takes_no_shards_lease(
    runtime: Runtime, calls: CallCounter
) -> None:
    sweep(runtime, FakePublisher())
    assert calls.counts == {"UpdateItem": 2, "Query": 8}


# The clean-up


def record(name: str, expires_in: int, clock: ManualClock) -> None:
    IdempotencyRow(
        name, status="COMPLETED", in_progress_until=0, expires_at=clock.now() + timedelta(seconds=expires_in)
    ).save()


def names() -> list[str]:
    return sorted(row.id for row in IdempotencyRow.scan())


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
    assert sorted(row.id for row in SagaRow.scan()) == ["running", "young"]


def test_discarded_events_are_deleted__once_their_time_has_passed(runtime: Runtime, clock: ManualClock) -> None:
    discarded_event("old", -1, clock)
    discarded_event("young", 100, clock)
    clean(runtime)
    assert [row.event_id for row in OutboxRow.scan()] == ["young"]


def test_a_run_begins_where_the_last_one_stopped__so_that_every_table_has_its_turn(
    runtime: Runtime, clock: ManualClock
) -> None:
    record("old", -1, clock)
    discarded_event("old", -1, clock)
    clean(affordable(runtime, 2))
    assert (names(), len(list(OutboxRow.scan()))) == ([], 1)
    clean(affordable(runtime, 2))
    assert list(OutboxRow.scan()) == []


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
    assert {row.event_id for row in OutboxRow.scan()} == {event, waiting, "dead"}
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


# Overlapping firings of the other jobs


def test_two_sweeps_at_once_publish_each_event_once(runtime: Runtime, another: Process, outbox: Outbox) -> None:
    publisher = FakePublisher()

    def meanwhile(_: Envelope) -> Outcome:
        if publisher.calls == 1:
            sweep(another(), publisher)
        return SENT

    publisher.answer = meanwhile
    events = [outbox.add(f"anything/{n}") for n in range(40)]
    sweep(runtime, publisher)
    assert sorted(publisher.ids) == sorted(events)


def test_two_runs_of_the_metrics_at_once_report_once(
    runtime: Runtime, another: Process, capsys: pytest.CaptureFixture[str]
) -> None:
    class Meanwhile(Queues):
        def depths(self, urls: Iterable[str]) -> dict[str, int]:
            export(another())
            return {}

    def export(process: Runtime, queues: type[Queues] = Queues) -> None:
        process.provide(Deployment, Deployment(stage="test"))
        process.provide(Queues, queues())
        JobEdge(metrics_export, process).run(LambdaContext())

    export(runtime, Meanwhile)
    assert capsys.readouterr().out.count('"dlq_events_total":') == 1
