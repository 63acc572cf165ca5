"""The gauges: what waits and what died, read where it lies, or else an error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError
from pynamodb.exceptions import PynamoDBException

from mailroom import clients
from mailroom.deployment import DEAD, UNDELIVERED, Deployment
from mailroom.job import JobEdge
from mailroom.jobs import metrics_export as module
from mailroom.jobs.metrics_export import metrics_export
from mailroom.outbox.relay import Relay
from mailroom.outbox.table import OutboxRow, pending
from mailroom.runtime import Runtime
from mailroom.saga_row import SagaRow, Status
from mailroom.telemetry import Metric
from mailroom.testing import FakePublisher, LambdaContext, ManualClock, permanent
from tests.spoilt import Typed, spoil_row

from .outbox.conftest import SHARD, Outbox, outbox  # noqa: F401 - a fixture

NAMES = ["billing", f"billing{DEAD}", f"billing{UNDELIVERED}", f"cleanup{DEAD}", f"cleanup{UNDELIVERED}"]


@pytest.fixture
def deployment(runtime: Runtime) -> Deployment:
    """A stage with one consumer and one job."""
    urls = {name: clients.sqs().create_queue(QueueName=name)["QueueUrl"] for name in NAMES}
    functions = {"billing": "billing-function", "cleanup": "cleanup-function"}
    deployment = Deployment("test", queues=urls, functions=functions)
    runtime.provide(Deployment, deployment)
    return deployment


def put(deployment: Deployment, name: str, count: int = 1) -> None:
    for number in range(count):
        clients.sqs().send_message(QueueUrl=deployment.queues[name], MessageBody=f"{number}")


def kill(outbox: Outbox, runtime: Runtime, count: int) -> None:
    for _ in range(count):
        outbox.add()
    Relay(runtime, FakePublisher(lambda _: permanent())).drain(SHARD)


def export(runtime: Runtime, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Run the job and answer the one document that has its gauges."""
    capsys.readouterr()
    JobEdge(metrics_export, runtime).run(LambdaContext(50_000))
    (document,) = documents(capsys)
    return document


def documents(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    return [line for line in lines if Metric.DLQ_EVENTS_TOTAL in line]


def test_the_total_is_what_is_dead_in_the_outbox_and_in_every_dead_letter_queue(
    runtime: Runtime, deployment: Deployment, outbox: Outbox, capsys: pytest.CaptureFixture[str]
) -> None:
    kill(outbox, runtime, 3)
    for weight, name in enumerate(NAMES):
        put(deployment, name, 10**weight if weight < 3 else weight)
    assert export(runtime, capsys)[Metric.DLQ_EVENTS_TOTAL] == [3 + 10 + 100 + 3 + 4]


def test_dead_events_of_the_outbox_are_reported_by_themselves_too(
    runtime: Runtime, deployment: Deployment, outbox: Outbox, capsys: pytest.CaptureFixture[str]
) -> None:
    put(deployment, f"billing{DEAD}", 5)
    assert export(runtime, capsys)[Metric.OUTBOX_DEAD] == [0]
    kill(outbox, runtime, 1)
    assert export(runtime, capsys)[Metric.OUTBOX_DEAD] == [1]


def test_what_is_in_flight_counts_too(
    runtime: Runtime, deployment: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    put(deployment, f"billing{DEAD}", 2)
    clients.sqs().receive_message(QueueUrl=deployment.queues[f"billing{DEAD}"], VisibilityTimeout=60)
    assert export(runtime, capsys)[Metric.DLQ_EVENTS_TOTAL] == [2]


def test_dead_events_are_counted_so_far_and_no_further(
    runtime: Runtime,
    deployment: Deployment,
    outbox: Outbox,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "COUNTED_TO", 2)
    kill(outbox, runtime, 4)
    assert export(runtime, capsys)[Metric.DLQ_EVENTS_TOTAL] == [2]


def test_a_gauge_has_no_dimension__though_the_function_has_a_service(
    runtime: Runtime, deployment: Deployment, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "mailroom")
    document = export(runtime, capsys)
    (directive,) = document.pop("_aws")["CloudWatchMetrics"]
    assert directive["Namespace"] == "Mailroom"
    assert directive["Dimensions"] == [[]]
    assert {each["Name"]: each["Unit"] for each in directive["Metrics"]} == {
        "dlq_events_total": "Count",
        "outbox_dead": "Count",
        "outbox_pending": "Count",
        "outbox_oldest_pending_seconds": "Seconds",
        "saga_stuck": "Count",
    }
    assert set(document) == {each["Name"] for each in directive["Metrics"]}


def test_what_waits_is_counted__and_how_long_the_oldest_of_all_shards_has(
    runtime: Runtime,
    deployment: Deployment,
    outbox: Outbox,
    clock: ManualClock,
    capsys: pytest.CaptureFixture[str],
) -> None:
    outbox.add("anything/0")
    clock.advance(90)
    outbox.add()
    clock.advance(10)
    document = export(runtime, capsys)
    assert document[Metric.OUTBOX_PENDING] == [2]
    assert document[Metric.OUTBOX_OLDEST_PENDING_SECONDS] == [pytest.approx(100, abs=0.1)]


def test_stuck_sagas_are_counted__and_no_others(
    runtime: Runtime, deployment: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, status in enumerate((Status.STUCK, Status.RUNNING, Status.STUCK, Status.COMPLETED)):
        saga_row(f"saga-{number}", status).save()
    assert export(runtime, capsys)[Metric.SAGA_STUCK] == [2]


def test_sagas_that_cannot_be_read_fail_the_run__and_nothing_is_reported(
    runtime: Runtime, deployment: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    SagaRow.delete_table()
    with pytest.raises(PynamoDBException):
        JobEdge(metrics_export, runtime).run(LambdaContext(50_000))
    assert documents(capsys) == []


def saga_row(saga_id: str, status: Status) -> SagaRow:
    at = "2030-01-01T00:00:00.000Z"
    row = SagaRow(
        saga_id, saga="trip", steps="[]", data="{}", direction="action", position=0, created_at=at, updated_at=at
    )
    row.become(status)
    return row


def test_nothing_pending_is_no_age(
    runtime: Runtime, deployment: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    document = export(runtime, capsys)
    assert (document[Metric.OUTBOX_PENDING], document[Metric.OUTBOX_OLDEST_PENDING_SECONDS]) == ([0], [0])


def test_a_queue_that_cannot_be_read_fails_the_run__and_nothing_is_reported(
    runtime: Runtime, deployment: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    clients.sqs().delete_queue(QueueUrl=deployment.queues[f"cleanup{UNDELIVERED}"])
    with pytest.raises(ClientError):
        JobEdge(metrics_export, runtime).run(LambdaContext(50_000))
    assert documents(capsys) == []


@pytest.mark.parametrize("created_at", [None, {"S": "yesterday"}, {"N": "1"}])
def test_what_waits_is_reported__though_the_oldest_row_does_not_say_since_when(
    runtime: Runtime, deployment: Deployment, outbox: Outbox, clock: ManualClock,
    capsys: pytest.CaptureFixture[str], created_at: Typed | None,
) -> None:  # fmt: skip
    bad = outbox.add()
    clock.advance(100)
    outbox.add()
    clock.advance(50)
    spoil_row(OutboxRow, pending(SHARD), bad, created_at=created_at)
    document = export(runtime, capsys)
    assert document[Metric.OUTBOX_PENDING] == [2]
    assert document[Metric.OUTBOX_OLDEST_PENDING_SECONDS] == [pytest.approx(50)]
