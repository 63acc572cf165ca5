"""Jobs start by their schedules, and the outbox's stream wakes the relay."""

from __future__ import annotations

import json

import pytest

from infra.application import Application
from mailroom.job import Job
from mailroom.outbox.event import SHARDS
from mailroom.outbox.table import pending
from mailroom.timings import Timings
from tests.infra.assembly import Assembly, id_in

JOBS = Application.discover().jobs


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_job_starts_by_the_schedule_it_declares(prod: Assembly, job: Job) -> None:
    rule = prod.rule_into(prod.function(job.name))
    assert rule["ScheduleExpression"] == job.schedule.to_eventbridge()


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_failed_run_is_repeated_a_bounded_number_of_times(prod: Assembly, job: Job) -> None:
    function = prod.function(job.name)
    config = next(
        each["Properties"]
        for each in prod.of_type("Lambda::EventInvokeConfig").values()
        if id_in(each["Properties"]["FunctionName"]) == function
    )
    policy = prod.rule_into(function)["Targets"][0]["RetryPolicy"]
    timings = Timings()
    assert config["MaximumRetryAttempts"] == policy["MaximumRetryAttempts"] == timings.job_retries
    assert config["MaximumEventAgeInSeconds"] == policy["MaximumEventAgeInSeconds"] == timings.job_start_within


def test_new_mail_wakes_the_relay__and_nothing_else_does(prod: Assembly) -> None:
    mapping = prod.mapping_of(prod.function("relay"))
    pattern = json.loads(mapping["FilterCriteria"]["Filters"][0]["Pattern"])
    prefix = pattern["dynamodb"]["Keys"]["partition"]["S"][0]["prefix"]
    assert pattern["eventName"] == ["INSERT"]
    assert all(pending(shard).startswith(prefix) for shard in range(SHARDS))
    assert mapping["EventSourceArn"] == f"${{{prod.table('outbox')}.StreamArn}}"


def test_a_wake_up_is_given_up_soon__since_the_sweep_finds_what_it_missed(prod: Assembly) -> None:
    mapping = prod.mapping_of(prod.function("relay"))
    assert mapping["StartingPosition"] == "LATEST"
    assert mapping["BisectBatchOnFunctionError"] is True
    assert mapping["MaximumRetryAttempts"] <= 2
    assert mapping["MaximumRecordAgeInSeconds"] <= 300
