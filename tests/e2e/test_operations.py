"""The operators' API and the export of metrics, deployed, with the rights they were granted and no others."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from boto3.dynamodb.conditions import Key
from ulid import ULID

from local.api import Api
from local.stack import LocalStack
from mailroom.outbox.event import shard_of_subject
from mailroom.outbox.table import sent

Eventually = Callable[..., Any]


@pytest.fixture(scope="module")
def ops(stack: LocalStack) -> Api:
    """The deployed operators' API."""
    return Api(stack.ops_url)


@pytest.fixture
def sent_event(api: Api, table: Callable[[str], Any], eventually: Eventually) -> str:
    """An event that was sent; answers its id."""
    body = {"name": "tool", "owner_id": f"owner-{uuid4().hex[:12]}"}
    subject = f"repos/{api.post('/api/v1/repos', body, key=uuid4().hex).json()['id']}"

    def found() -> list[Any]:
        answer = table("outbox").query(
            KeyConditionExpression=Key("partition").eq(sent(shard_of_subject(subject))), ConsistentRead=True
        )
        return [row for row in answer["Items"] if row.get("subject") == subject]

    (row,) = eventually(found, within=30, what="the event is sent")
    return str(row["event_id"])


def test_the_status_shows_every_part_of_the_stage(ops: Api, stack: LocalStack) -> None:
    answer = ops.get("/ops/v1/status")
    assert answer.status == 200, answer.text
    status = answer.json()
    assert [each["shard"] for each in status["shards"]] == list(range(8))
    assert [each["name"] for each in status["consumers"]] == stack.consumers
    assert [each["name"] for each in status["jobs"]] == stack.jobs
    assert all(each["enabled"] for each in (*status["consumers"], *status["jobs"]))
    assert all(each["schedule"] for each in status["jobs"])


def test_the_metrics_are_exported_each_minute__without_a_right_missing(
    table: Callable[[str], Any], eventually: Eventually
) -> None:
    def last_run() -> Any:
        row = table("leases").get_item(Key={"name": "job#metrics_export"}, ConsistentRead=True).get("Item", {})
        return json.loads(row.get("memo", "{}")).get("last_run")

    assert eventually(last_run, within=130, what="the job has run")["failure"] is None


def test_a_single_event_is_shown__and_listed_without_its_payload(ops: Api, sent_event: str) -> None:
    shown = ops.get(f"/ops/v1/outbox/{sent_event}").json()
    assert (shown["id"], shown["status"], shown["payload"]["name"]) == (sent_event, "sent", "tool")
    shard = str(int(sent_event[-2:]))
    listed = ops.get(f"/ops/v1/outbox?status=sent&shard={shard}&limit=100").json()["items"]
    assert listed
    assert not any("payload" in item for item in listed)


def test_dead_letters_are_listed_and_redriven__from_the_outbox_and_from_a_queue(ops: Api, sent_event: str) -> None:
    assert ops.get("/ops/v1/dead-letters?limit=1").status == 200
    for source, fate in (("outbox", "not dead"), ("notifications", None)):
        body = {"source": source, "ids": [sent_event], "why": "a trial", "force": False}
        answer = ops.post("/ops/v1/dead-letters/redrive", body, key=uuid4().hex)
        assert answer.status == 200, answer.text
        (result,) = answer.json()["results"]
        assert result["fate"] == (fate or result["fate"])
        assert "AccessDenied" not in result["detail"]


def test_what_no_record_tells_of_is_listed_and_redriven__without_a_right_missing(
    ops: Api, stack: LocalStack, client: Callable[[str], Any]
) -> None:
    data = {"repo_id": uuid4().hex, "name": "tool", "owner_id": "nobody"}
    event = {"id": f"{ULID()}-03", "type": "repo.created", "source": "mailroom", "data": data}
    left = {"version": "0", "id": "1", "detail-type": event["type"], "source": "mailroom", "detail": event}
    source = "notifications-undelivered"
    reason = {"ERROR_CODE": {"DataType": "String", "StringValue": "NO_PERMISSIONS"}}
    queue = stack.queues[source]
    client("sqs").send_message(QueueUrl=queue, MessageBody=json.dumps(left), MessageAttributes=reason)
    listed = ops.get(f"/ops/v1/dead-letters?source={source}").json()["items"]
    assert [(each["id"], each["failure"]["type"]) for each in listed] == [(event["id"], "NO_PERMISSIONS")]
    body = {"why": "a trial", "source": source, "limit": 10}
    answer = ops.post("/ops/v1/dead-letters/redrive", body, key=uuid4().hex)
    assert answer.status == 200, answer.text
    assert (answer.json()["retried"], answer.json()["more"]) == (1, False), answer.text
    assert ops.get(f"/ops/v1/dead-letters?source={source}").json()["items"] == []


def test_what_operators_get_wrong_is_refused_on_the_deployed_api_too(ops: Api) -> None:
    for path in ("/ops/v1/outbox", "/ops/v1/outbox?status=dead&limit=0", "/ops/v1/dead-letters?cursor=nonsense"):
        answer = ops.get(path)
        assert (answer.status, answer.headers["content-type"]) == (400, "application/problem+json")
    assert ops.request("POST", "/ops/v1/dead-letters/redrive", {}).status == 400
