"""`mailroom status`, `jobs`, `pause` and `resume`."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from mailroom import clients, status
from mailroom.clients import Call, observed
from mailroom.controls import RELAY
from mailroom.failures import Failure, FailureKind
from mailroom.idempotency import IdempotencyRow
from mailroom.job import JobContext, JobEdge, job
from mailroom.lease import Lease
from mailroom.outbox.relay import lease_name
from mailroom.publishers.publisher import SENT
from mailroom.schedule import Every
from mailroom.status import consumer_status, job_status, shard_status
from mailroom.testing import LambdaContext, unavailable
from tests.lagging_reads import LaggingReads

from ..outbox.conftest import SHARD
from .conftest import CONSUMER, JOB, SCHEDULE, Command, Stage
from .test_dead_list import EVENT, fail_once

FAILS: list[Exception] = []


@job(schedule=Every(hours=1))
def sweep_up(work: JobContext) -> None:
    for error in FAILS:
        raise error


@pytest.fixture(autouse=True)
def functions(stage: Stage) -> None:
    stage.deploy_functions()


def run_job(stage: Stage) -> None:
    JobEdge(sweep_up, stage.runtime).run(LambdaContext())


# Shards


def test_a_shard_at_rest_says_nothing(stage: Stage, mailroom: Command) -> None:
    assert "Outbox: 0 pending, 0 dead" in mailroom("status").out
    assert "8 shards are empty and at rest." in mailroom("status").out


def test_a_shard_tells_why_its_oldest_event_was_not_sent__and_until_when_it_waits(
    stage: Stage, mailroom: Command, lagging_tables: LaggingReads
) -> None:
    refused = stage.outbox.add()
    told = Failure(FailureKind.TRANSIENT, "NotAuthorized", "allow its type", retry_after=900)
    stage.publisher.answer = lambda event: told if event.id == refused else SENT
    stage.relay.drain(SHARD)
    lagging_tables.forget()
    shard = shard_status(stage.runtime)[SHARD]
    assert shard.oldest_waits_for == f"{refused}: NotAuthorized: allow its type"
    words = mailroom("status").words
    assert "The oldest of shard 03 waits for 15m" in words
    assert f"{refused}: NotAuthorized: allow its type" in words


def test_a_shard_tells_what_waits_and_since_when(stage: Stage, mailroom: Command, lagging_tables: LaggingReads) -> None:
    stage.outbox.add()
    written = stage.clock.now()
    stage.clock.advance(7_200)
    stage.outbox.add()
    lagging_tables.forget()
    shard = shard_status(stage.runtime)[SHARD]
    assert (shard.pending, shard.oldest_pending_at) == (2, written.strftime("%Y-%m-%dT%H:%M:%S.001Z"))
    assert "03 2 2h ago" in mailroom("status").words


def test_a_shard_is_paused_while_its_destination_is_down__and_no_longer(stage: Stage, mailroom: Command) -> None:
    stage.outbox.add()
    stage.publisher.answer = lambda _: unavailable()
    stage.relay.drain(SHARD)
    assert shard_status(stage.runtime)[SHARD].paused_until is not None
    assert mailroom("status").code == 0
    stage.clock.advance(3_600)
    assert shard_status(stage.runtime)[SHARD].paused_until is None


def test_a_shard_names_its_holder_while_there_is_one(stage: Stage) -> None:
    held = Lease(lease_name(SHARD), stage.runtime).acquire()
    assert held is not None
    shard = shard_status(stage.runtime)[SHARD]
    assert shard.holder is not None
    assert shard.held_until == "2030-01-01T00:01:00.000Z"
    held.release(clean=True)
    assert shard_status(stage.runtime)[SHARD].holder is None


def test_counting_stops_at_its_bound__and_says_so(
    stage: Stage, mailroom: Command, monkeypatch: pytest.MonkeyPatch, lagging_tables: LaggingReads
) -> None:
    monkeypatch.setattr(status, "COUNTED_TO", 2)
    for _ in range(3):
        stage.outbox.add()
    lagging_tables.forget()
    shard = shard_status(stage.runtime)[SHARD]
    assert shard.pending == 2
    assert shard.to_dict()["pending_or_more"]


# Consumers


def test_a_consumer_tells_its_queues_and_what_fails(stage: Stage, mailroom: Command) -> None:
    stage.die_at_consumer(EVENT)
    clients.sqs().send_message(QueueUrl=stage.queues["greeter"], MessageBody="{}")
    clients.sqs().send_message(QueueUrl=stage.queues["greeter-undelivered"], MessageBody="{}")
    (consumer,) = consumer_status(stage.runtime, stage.deployment)
    assert (consumer.queued, consumer.failing, consumer.dead, consumer.undelivered) == (1, 1, 1, 1)
    assert consumer.failing_since == "2030-01-01T00:00:00.000Z"
    assert f"{CONSUMER} 1 0 1 1 1 yes" in mailroom("status").words


def test_what_waits_for_its_next_attempt_is_in_flight(stage: Stage) -> None:
    fail_once(stage)
    (consumer,) = consumer_status(stage.runtime, stage.deployment)
    assert (consumer.queued, consumer.in_flight, consumer.failing) == (0, 1, 1)


def test_it_has_failed_since_its_first_failure__not_its_last(stage: Stage) -> None:
    fail_once(stage)
    (row,) = IdempotencyRow.scan(consistent_read=True)
    row.update([IdempotencyRow.failed_at.set("2030-01-02T00:00:00.000Z")])
    assert consumer_status(stage.runtime, stage.deployment)[0].failing_since == "2030-01-01T00:00:00.000Z"


# Jobs


def test_a_job_that_never_ran_says_so(stage: Stage, mailroom: Command) -> None:
    answer = mailroom("jobs")
    assert f"{JOB} {SCHEDULE} yes never ended yet" in answer.words
    assert mailroom("jobs", "--json").json["jobs"] == [
        {
            "name": JOB,
            "enabled": True,
            "schedule": SCHEDULE,
            "running": False,
            "last_ended_at": None,
            "last_failure": None,
        }
    ]


def test_a_job_tells_how_its_last_run_ended(stage: Stage, mailroom: Command) -> None:
    run_job(stage)
    stage.clock.advance(60)
    assert "ended 1m ago" in mailroom("jobs").words
    FAILS[:] = [ValueError("no more room")]
    with pytest.raises(ValueError, match="no more room"):
        run_job(stage)
    FAILS.clear()
    answer = mailroom("jobs")
    assert "FAILED" in answer.out
    assert f"{JOB} failed: no more room" in answer.words


def test_a_job_at_work_is_running__and_one_that_was_killed_is_told(stage: Stage) -> None:
    Lease(f"job#{JOB}", stage.runtime).acquire()
    (at_work,) = job_status(stage.runtime, stage.deployment)
    assert (at_work.running, at_work.last_failure) == (True, None)
    stage.clock.advance(120)
    (killed,) = job_status(stage.runtime, stage.deployment)
    assert not killed.running
    assert killed.last_failure == "the last run ended without a word: timed out or killed"


# Pause and resume


@pytest.mark.parametrize(("name", "kind"), [(CONSUMER, "consumer"), (JOB, "job"), (RELAY, "relay")])
def test_a_part_is_paused_and_resumed__and_a_second_time_changes_nothing(
    mailroom: Command, name: str, kind: str
) -> None:
    def switched(verb: str) -> dict[str, Any]:
        answer = mailroom(verb, name, "--json")
        assert answer.code == 0
        return answer.json

    assert switched("pause") == {"stage": "test", "name": name, "kind": kind, "enabled": False, "changed": True}
    assert switched("pause")["changed"] is False
    assert "was paused already" in mailroom("pause", name).out
    assert switched("resume") == {"stage": "test", "name": name, "kind": kind, "enabled": True, "changed": True}
    assert "was not paused" in mailroom("resume", name).out


def test_what_is_paused_shows_in_the_status(mailroom: Command) -> None:
    mailroom("pause", CONSUMER)
    mailroom("pause", JOB)
    shown = mailroom("status", "--json").json
    assert (shown["consumers"][0]["enabled"], shown["jobs"][0]["enabled"]) == (False, False)
    assert mailroom("status").out.count("NO") == 2


def test_an_unknown_part_is_wrong_usage__and_those_there_are_are_named(mailroom: Command) -> None:
    answer = mailroom("pause", "nobody")
    assert answer.code == 2
    assert "there are: greeter, relay, sweep_up" in answer.err


def test_a_part_that_nothing_starts_is_no_success(stage: Stage, mailroom: Command) -> None:
    clients.events().remove_targets(Rule=f"{JOB}-rule", Ids=["1"])
    answer = mailroom("resume", JOB)
    assert answer.code == 1
    assert f"{JOB} has no schedule: deploy the stage again" in answer.err
    assert job_status(stage.runtime, stage.deployment)[0].enabled is False


def test_a_mapping_that_is_being_changed_is_told__with_what_to_do(mailroom: Command) -> None:
    with observed(Refusing("UpdateEventSourceMapping", "ResourceInUseException")):
        answer = mailroom("pause", CONSUMER)
    assert answer.code == 1
    assert "try again in a minute" in answer.err


# What cannot be read


class Refusing:
    """Makes one operation fail with an error code."""

    def __init__(self, operation: str, code: str) -> None:
        self.operation, self.code = operation, code

    def before(self, call: Call) -> None:
        if call.operation == self.operation:
            raise ClientError({"Error": {"Code": self.code, "Message": "not allowed"}}, self.operation)

    def after(self, call: Call, answer: dict[str, Any]) -> None: ...


@pytest.mark.parametrize(
    "operation",
    ["GetQueueAttributes", "Query", "BatchGetItem", "ListEventSourceMappings", "ListRuleNamesByTarget", "DescribeRule"],
)
def test_what_cannot_be_read_is_an_error__and_never_nought(stage: Stage, mailroom: Command, operation: str) -> None:
    with observed(Refusing(operation, "AccessDeniedException")):
        answer = mailroom("status", "--json")
    assert answer.code == 1
    assert answer.json.keys() == {"stage", "error"}
    assert f"AccessDeniedException: not allowed (the call was {operation})" in answer.json["error"]["message"]


def test_status_fits_80_columns(stage: Stage, mailroom: Command) -> None:
    stage.outbox.add()
    stage.die_at_consumer(EVENT)
    out = mailroom("status").out
    assert max(map(len, out.splitlines())) <= 80
    assert all(line == line.rstrip() for line in out.splitlines())
