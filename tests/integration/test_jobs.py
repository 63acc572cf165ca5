"""Jobs: one run at a time, under a lease, and what the machinery's own jobs do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

import pytest

from app.owners import Owner
from mailroom.declarations import DECLARATION_VARIABLE
from mailroom.deployment import Deployment, Queues
from mailroom.invocation import Invocation
from mailroom.job import JobContext, JobEdge, job, job_handler
from mailroom.jobs.metrics_export import metrics_export
from mailroom.jobs.outbox_relay import outbox_relay
from mailroom.lease import Lease, LeaseLost
from mailroom.outbox.event import Envelope
from mailroom.outbox.relay import Relay
from mailroom.publishers.publisher import SENT, Outcome
from mailroom.runtime import Runtime
from mailroom.schedule import Every
from mailroom.telemetry import LogEvent
from mailroom.testing import FakePublisher, LambdaContext, ManualClock, transient, unavailable
from tests.faults import Died, died, failing, refused
from tests.log_lines import Lines

from .conftest import CallCounter, Process
from .lagging import lagging_tables  # noqa: F401 - for every test here
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
    assert [owner.id for owner in Owner.scan(consistent_read=True)] == ["owner-1"]


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
    assert Owner.get("owner-1", consistent_read=True).repo_count == 1


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
    assert list(Owner.scan(consistent_read=True)) == []
    RUNS.append(write_owner)
    edge.run(LambdaContext())
    assert len(list(Owner.scan(consistent_read=True))) == 1


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
    assert list(Owner.scan(consistent_read=True)) == []


def test_a_dead_run_does_not_stop_the_next__once_its_lease_is_over(edge: JobEdge, clock: ManualClock) -> None:
    def die(work: JobContext) -> None:
        raise Died

    RUNS.append(die)
    with pytest.raises(Died):
        edge.run(LambdaContext())
    clock.advance(61)
    RUNS.append(write_owner)
    edge.run(LambdaContext())
    assert len(list(Owner.scan(consistent_read=True))) == 1


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
