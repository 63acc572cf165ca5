"""Jobs on the deployed stack: firings that come twice, runs that fail, and runs at once against atomic tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from app.settings import AppSettings
from local.stack import LocalStack
from mailroom.clock import SystemClock
from mailroom.idempotency import IdempotencyRow
from mailroom.job import LAST_RUN, JobEdge, lease_name
from mailroom.jobs.cleanup import cleanup
from mailroom.lease import LeaseRow
from mailroom.runtime import Runtime
from mailroom.telemetry import LogEvent
from mailroom.testing import LambdaContext
from tests.log_lines import Lines

from .racing import at_once

Eventually = Callable[..., Any]
JOB = "cleanup"
LATER_THAN_EVERY_FIRING_SO_FAR = timedelta(seconds=1)


@pytest.fixture
def last_run(table: Callable[[str], Any]) -> Callable[[], dict[str, Any]]:
    """Answers how the job's last run ended."""

    def read() -> dict[str, Any]:
        row = table("leases").get_item(Key={"name": lease_name(JOB)}, ConsistentRead=True).get("Item", {})
        found: dict[str, Any] = json.loads(row.get("memo", "{}")).get(LAST_RUN, {})
        return found

    return read


@pytest.fixture
def fire(client: Callable[[str], Any], stack: LocalStack) -> Callable[..., Any]:
    """Starts the deployed job as EventBridge does."""

    def send(time: str, *, asynchronously: bool = False) -> Any:
        kind = "Event" if asynchronously else "RequestResponse"
        firing = {"source": "aws.events", "detail-type": "Scheduled Event", "time": time, "detail": {}}
        return client("lambda").invoke(
            FunctionName=stack.functions[JOB], InvocationType=kind, Payload=json.dumps(firing).encode()
        )

    return send


def test_a_firing_that_comes_twice_runs_once(fire: Callable[..., Any], last_run: Callable[[], dict[str, Any]]) -> None:
    moment = (datetime.now(UTC) + LATER_THAN_EVERY_FIRING_SO_FAR).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert "FunctionError" not in fire(moment)
    first = last_run()
    assert first["failure"] is None
    assert "FunctionError" not in fire(moment)
    assert last_run() == first


def test_a_run_that_fails_to_the_last_lies_in_the_jobs_dead_letter_queue__with_its_error(
    fire: Callable[..., Any], client: Callable[[str], Any], stack: LocalStack, eventually: Eventually
) -> None:
    fire("no moment", asynchronously=True)
    queue = stack.queues[f"{JOB}-dead"]

    def dead() -> list[Any]:
        return list(client("sqs").receive_message(QueueUrl=queue, WaitTimeSeconds=1).get("Messages", []))

    (message,) = eventually(dead, within=60, what="the failed run is in the queue")
    client("sqs").delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
    body = json.loads(message["Body"])
    assert body["requestPayload"]["time"] == "no moment"
    assert "no moment" in json.dumps(body["responsePayload"])


def test_clean_ups_at_once_delete_each_row_once__and_one_of_them_runs(runtime: Runtime, logs: Lines) -> None:
    past = datetime.now(UTC) - timedelta(hours=1)
    with IdempotencyRow.batch_write() as batch:
        for number in range(100):
            batch.save(IdempotencyRow(f"old-{number}", status="COMPLETED", in_progress_until=0, expires_at=past))
    fired_at = datetime.now(UTC)

    def run(number: int) -> None:
        kinds = (runtime.settings, runtime.of(AppSettings))
        process = Runtime(*kinds, clock=SystemClock(), random=Random(number))  # noqa: S311 - no secret
        JobEdge(cleanup, process).run(LambdaContext(60_000), fired_at=fired_at)

    at_once(8, run)
    assert list(IdempotencyRow.scan()) == []
    lease = LeaseRow.get(lease_name(JOB))
    assert (lease.held_until, lease.clean) == (0, True)
    said = Counter(line["message"] for line in logs() if line.get("job") == JOB)
    assert (said[LogEvent.JOB_STARTED], said[LogEvent.JOB_SKIPPED]) == (1, 7)
