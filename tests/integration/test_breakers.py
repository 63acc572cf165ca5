"""The breaker of a consumer: its queue is left alone while what it depends on is not there, and probed."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from app.events import RepoCreated
from mailroom import clients
from mailroom.breaker import BreakerRow
from mailroom.consumer import consumer
from mailroom.controls import start_of, switch
from mailroom.deployment import DEAD, Deployment
from mailroom.failures import Unavailable
from mailroom.job import JobEdge
from mailroom.jobs.breakers import breakers
from mailroom.runtime import Runtime
from mailroom.sources.memory import InMemorySource
from mailroom.status import consumer_status
from mailroom.testing import LambdaContext, ManualClock
from mailroom.timings import DAY, MINUTE
from mailroom.unit_of_work import UnitOfWork
from mailroom.workers import workers_of
from tests.faults import Died, died, failing, refused
from tests.inbox import Inbox
from tests.log_lines import Lines

from .cli.conftest import make_function
from .conftest import CallCounter

CREATED = RepoCreated(repo_id="1", name="tool", owner_id="owner-1")
NAME, OTHER = "depending", "other"
DOWN = {"down": True, "only": None}


@consumer(on=RepoCreated)
def depending(event: RepoCreated, work: UnitOfWork) -> None:
    if DOWN["down"] and DOWN["only"] in (None, work.cause_id):
        raise Unavailable("the service refuses connections")


class Stage:
    """Two deployed consumers, of which one has a queue in memory that is read only while its mapping is enabled."""

    def __init__(self, runtime: Runtime, clock: ManualClock) -> None:
        self.runtime, self.clock = runtime, clock
        self.inbox = Inbox(depending, runtime, clock)
        self.numbers = 0
        queues = {}
        clients.sqs().create_queue(QueueName="elsewhere")  # moto's mapping empties the queue that it is made for
        for name in (NAME, OTHER):
            make_function(f"{name}-function")
            source = "arn:aws:sqs:us-east-1:123456789012:elsewhere"
            clients.functions().create_event_source_mapping(FunctionName=f"{name}-function", EventSourceArn=source)
            for queue in (name, f"{name}{DEAD}"):
                queues[queue] = clients.sqs().create_queue(QueueName=queue)["QueueUrl"]
        functions = {name: f"{name}-function" for name in (NAME, OTHER)}
        self.deployment = Deployment("test", queues=queues, functions=functions)
        runtime.provide(Deployment, self.deployment)

    @property
    def polled(self) -> bool:
        return start_of(self.deployment, NAME).enabled

    def run_job(self) -> None:
        JobEdge(breakers, self.runtime).run(LambdaContext(50_000))

    def pass_minutes(self, count: int) -> list[bool]:
        """Let new mail come each half minute, and the job run each minute; answer whether the queue was read then."""
        seen = []
        for _ in range(count):
            for _ in range(2):
                self.numbers += 1
                self.inbox.send(CREATED, f"01JDW3NDEKTSV4RRFF{self.numbers:08}-03")
                if self.polled:
                    self.inbox.deliver()
                self.clock.advance(MINUTE / 2)
            self.run_job()
            seen.append(self.polled)
        return seen

    def open(self) -> BreakerRow:
        self.pass_minutes(3)
        row = BreakerRow.get(NAME)
        assert row.probe_at is not None
        return row


@pytest.fixture
def stage(runtime: Runtime, clock: ManualClock) -> Stage:
    DOWN.update(down=True, only=None)
    return Stage(runtime, clock)


def test_a_queue_is_paused_within_two_minutes_of_an_outage__and_probed_with_growing_pauses(stage: Stage) -> None:
    seen = stage.pass_minutes(120)
    assert seen.index(False) <= 2
    pauses = [len(part) for part in "".join(".x"[not each] for each in seen).split(".") if part]
    assert pauses[0] in (2, 3)
    assert pauses[1] > pauses[0]
    assert max(pauses) <= 30 * 1.5 + 1
    assert stage.inbox.source.dead == []


def test_it_is_read_again_once_what_it_waits_for_is_there__and_all_is_delivered(stage: Stage, logs: Lines) -> None:
    stage.pass_minutes(60)
    DOWN["down"] = False
    stage.pass_minutes(120)
    assert stage.polled
    assert (stage.inbox.source.visible, stage.inbox.source.hidden, stage.inbox.source.dead) == ([], [], [])
    row = BreakerRow.get(NAME)
    assert row.attribute_values == {"consumer": NAME}
    told = [line["message"] for line in logs() if line["message"].startswith("breaker")]
    assert (told[0], told[-2:]) == ("breaker open", ["breaker probes", "breaker closed"])


def test_the_status_tells_since_when_it_waits__for_what_and_when_it_is_probed(stage: Stage) -> None:
    row = stage.open()
    shown, other = consumer_status(stage.runtime, stage.deployment)
    assert (shown.enabled, shown.waiting_since, shown.probe_at) == (False, row.opened_at, row.probe_at)
    assert shown.waits_for == "Unavailable: the service refuses connections"
    assert (other.enabled, other.waiting_since, other.probe_at) == (True, None, None)


def test_the_job_reports_how_many_are_open(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    def reported() -> list[float]:
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
        return [line["breakers_open"][0] for line in lines if "breakers_open" in line]

    stage.run_job()
    assert reported() == [0]
    stage.open()
    assert reported()[-1] == 1


def test_one_success_in_a_batch_opens_nothing__the_service_is_busy_at_most(stage: Stage) -> None:
    DOWN["only"] = "01JDW3NDEKTSV4RRFF00000001-03"
    for number in (1, 2):
        stage.inbox.send(CREATED, f"01JDW3NDEKTSV4RRFF{number:08}-03")
    stage.inbox.deliver()
    assert list(BreakerRow.scan()) == []


def test_a_process_that_fails_again_and_again_says_so_now_and_then(stage: Stage, calls: CallCounter) -> None:
    for number in range(20):
        stage.inbox.send(CREATED, f"01JDW3NDEKTSV4RRFF{number:08}-03")
        stage.inbox.deliver()
        stage.clock.advance(2)
    written = [call for call in calls.calls if call.parameters.get("TableName") == BreakerRow.table_name()]
    assert len(written) == 2


def test_a_row_that_cannot_be_written_does_no_harm_to_the_messages(stage: Stage, logs: Lines) -> None:
    stage.inbox.send(CREATED)

    def is_of_breakers(call: Any) -> bool:
        return bool(call.parameters.get("TableName") == BreakerRow.table_name())

    with failing(is_of_breakers, refused("AccessDeniedException")):
        assert not stage.inbox.deliver()
    assert "breaker not written" in [line["message"] for line in logs()]


# Crashes between the row and the mapping


def test_a_crash_before_the_mapping_is_disabled_leaves_it_to_the_next_run(stage: Stage) -> None:
    with failing("UpdateEventSourceMapping", died), pytest.raises(Died):
        stage.pass_minutes(3)
    assert stage.polled
    assert BreakerRow.get(NAME).probe_at is not None
    stage.clock.advance(1.5 * MINUTE)  # the dead run's lease is over
    stage.run_job()
    assert not stage.polled


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_a_crash_at_the_mapping_of_a_probe_leaves_nobody_paused_for_ever(stage: Stage, late: bool) -> None:
    stage.open()
    DOWN["down"] = False
    stage.clock.advance(5 * MINUTE)
    with failing("UpdateEventSourceMapping", died, after=late), pytest.raises(Died):
        stage.run_job()
    assert stage.polled is late
    stage.clock.advance(2 * MINUTE)
    assert stage.pass_minutes(8) == [True] * 8
    assert BreakerRow.get(NAME).opened_at is None


def test_a_mapping_that_is_being_changed_is_switched_a_minute_later__and_the_run_fails_loudly(
    stage: Stage, logs: Lines
) -> None:
    with (
        failing("UpdateEventSourceMapping", refused("ResourceInUseException")),
        pytest.raises(ExceptionGroup, match=f"consumer {NAME}"),
    ):
        stage.pass_minutes(3)
    assert "breaker not switched" in [line["message"] for line in logs()]
    stage.run_job()
    assert not stage.polled


# Operators


def test_an_operators_pause_is_ended_by_no_probe(stage: Stage) -> None:
    stage.open()
    switch(stage.deployment, NAME, enabled=False)
    DOWN["down"] = False
    assert True not in stage.pass_minutes(60)


def test_an_operators_pause_is_kept__when_an_older_run_switches_late(stage: Stage) -> None:
    stage.open()
    switch(stage.deployment, NAME, enabled=False)
    for mapping in clients.functions().list_event_source_mappings(FunctionName=f"{NAME}-function")[
        "EventSourceMappings"
    ]:
        clients.functions().update_event_source_mapping(UUID=mapping["UUID"], Enabled=True)
    stage.run_job()
    assert not stage.polled


def test_an_operator_who_resumes_has_it_read_at_once__and_it_is_paused_again_if_that_was_too_soon(
    stage: Stage,
) -> None:
    stage.open()
    assert switch(stage.deployment, NAME, enabled=True).changed
    assert stage.polled
    seen = stage.pass_minutes(5)
    assert seen[0] is True
    assert False in seen


def test_a_resume_that_an_older_run_undoes_late_is_done_by_the_next_one(stage: Stage) -> None:
    stage.open()
    switch(stage.deployment, NAME, enabled=True)
    mappings = clients.functions().list_event_source_mappings(FunctionName=f"{NAME}-function")["EventSourceMappings"]
    clients.functions().update_event_source_mapping(UUID=mappings[0]["UUID"], Enabled=False)
    stage.run_job()
    assert stage.polled


def test_an_operators_pause_and_resume_without_an_outage_is_as_ever(stage: Stage) -> None:
    DOWN["down"] = False
    switch(stage.deployment, NAME, enabled=False)
    assert stage.pass_minutes(5) == [False] * 5
    switch(stage.deployment, NAME, enabled=True)
    assert stage.pass_minutes(5) == [True] * 5


# Limits


def test_nothing_is_paused_any_more__once_it_is_open_for_as_long_as_a_message_waits(stage: Stage) -> None:
    stage.open()
    stage.clock.advance(4 * DAY)
    assert False not in stage.pass_minutes(10)[1:]


def test_a_consumer_that_is_no_longer_deployed_is_passed_over(stage: Stage) -> None:
    BreakerRow("gone", held=True).save()
    stage.run_job()


# The worker


def test_a_worker_receives_less_and_less_meanwhile__and_as_ever_after_a_success(
    runtime: Runtime, clock: ManualClock, logs: Lines
) -> None:
    DOWN.update(down=True, only=None)
    inbox, received_at = Inbox(depending, runtime, clock), list[float]()

    class EverMore(InMemorySource):
        """Has a new message each time."""

        def receive(self, limit: int, *, wait: int, hidden: int) -> list[dict[str, Any]]:
            inbox.source = self
            inbox.send(CREATED, f"01JDW3NDEKTSV4RRFF{len(received_at):08}-03")
            received_at.append(clock.monotonic())
            DOWN["down"] = len(received_at) <= 4
            if len(received_at) == 7:
                worker.stop()
            return super().receive(1, wait=0, hidden=hidden)

    (worker,) = workers_of(depending, runtime, EverMore(clock), count=1)
    worker.run()
    pauses = [line["pause"] for line in logs() if line["message"] == "worker paused"]
    waited = [later - earlier for earlier, later in pairwise(received_at)]
    backoff = runtime.timings.pause_backoff
    assert waited[:4] == pytest.approx(pauses, abs=0.01)
    assert [pause >= min(backoff.cap, backoff.base * 2**n) for n, pause in enumerate(pauses)] == [True] * 4
    assert waited[4:] == [0, 0]
