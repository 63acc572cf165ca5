"""From failure to repair on the deployed stack: what dies, what the operator sees, mends and sends again."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from boto3.dynamodb.conditions import Key
from ulid import ULID

from local.api import Api
from local.mailbox import Mailbox
from local.stack import LocalStack
from local.waiting import eventually
from mailroom.outbox.event import shard_of_subject
from mailroom.outbox.table import pending, sent


class Operator:
    """Runs the `mailroom` command against the deployed stack."""

    def __call__(self, *arguments: str, fails: bool = False) -> Any:
        command = [str(Path(sys.executable).parent / "mailroom"), *arguments, "--stage", "local", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ), timeout=300)
        assert (done.returncode != 0) == fails, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return json.loads(done.stdout)


@pytest.fixture
def operator() -> Operator:
    return Operator()


@pytest.fixture
def broken_owner(table: Callable[[str], Any]) -> str:
    """An owner whose row no version of the code can read: an address that is a number."""
    owner_id = f"owner-{uuid4().hex[:12]}"
    table("owners").put_item(Item={"id": owner_id, "email": 1})
    return owner_id


def create(api: Api, owner_id: str, name: str = "tool") -> str:
    answer = api.post("/api/v1/repos", {"name": name, "owner_id": owner_id}, key=uuid4().hex)
    assert answer.status == 201, answer.text
    return str(answer.json()["id"])


def gauge(client: Callable[[str], Any], stack: LocalStack) -> int | None:
    """Run the export of metrics now and read `dlq_events_total` from its log; None if another run was at work."""
    answer = client("lambda").invoke(FunctionName=stack.functions["metrics_export"], LogType="Tail", Payload=b"{}")
    assert "FunctionError" not in answer, answer["Payload"].read()
    for line in base64.b64decode(answer["LogResult"]).decode().splitlines():
        if '"dlq_events_total"' in line and line.startswith("{"):
            value = json.loads(line)["dlq_events_total"]
            return int(value[0] if isinstance(value, list) else value)
    return None


def test_a_row_that_its_consumer_cannot_read__from_a_dead_letter_to_one_effect(
    api: Api,
    broken_owner: str,
    table: Callable[[str], Any],
    client: Callable[[str], Any],
    stack: LocalStack,
    mailbox: Mailbox,
    operator: Operator,
) -> None:
    repo_id = create(api, broken_owner)

    # No attempt will ever read it: SQS moves the message, and the operator sees why
    eventually(lambda: depth(client, stack, "notifications-dead") == 1, within=90, what="the dead-letter queue has it")
    letters = [each for each in operator("dead", "list")["letters"] if each["subject"] == f"repos/{repo_id}"]
    (letter,) = letters
    assert (letter["source"], letter["state"], letter["attempts"]) == ("notifications", "dead", 1)
    assert "email" in letter["failure"]["message"]
    assert eventually(lambda: gauge(client, stack), within=90) >= 1

    # Repaired, and sent again
    address = f"{broken_owner}@example.com"
    table("owners").put_item(Item={"id": broken_owner, "email": address, "email_confirmed": True})
    chosen = ("--source", "notifications", "--fingerprint", letter["failure"]["fingerprint"])
    plan = operator("dead", "redrive", *chosen, "--why", "the row was mended", "--dry-run")
    assert depth(client, stack, "notifications-dead") == 1, f"a dry run moves nothing: {plan}"
    operator("dead", "redrive", *chosen, "--why", "the row was mended", "--canary", "--yes")
    eventually(lambda: mailbox.to(address), within=60, what="the e-mail arrives")
    eventually(lambda: depth(client, stack, "notifications-dead") == 0, within=30)
    assert [each for each in operator("dead", "list")["letters"] if each["subject"] == f"repos/{repo_id}"] == []
    assert len(mailbox.to(address)) == 1
    eventually(lambda: gauge(client, stack) == 0, within=120, what="dlq_events_total is back to 0")
    assert "the row was mended" in json.dumps(operator("trace", letter["id"]))


def depth(client: Callable[[str], Any], stack: LocalStack, queue: str) -> int:
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    answer = client("sqs").get_queue_attributes(QueueUrl=stack.queues[queue], AttributeNames=names)
    return sum(int(answer["Attributes"][name]) for name in names)


@pytest.fixture
def without_bus(client: Callable[[str], Any], stack: LocalStack) -> Iterator[Callable[[], None]]:
    """Removes the bus with its rules; answers what puts them back, and does so at the latest at the end."""
    events, bus = client("events"), stack.buses["events"]
    rules = events.list_rules(EventBusName=bus)["Rules"]
    targets = {r["Name"]: events.list_targets_by_rule(Rule=r["Name"], EventBusName=bus)["Targets"] for r in rules}
    gone = True
    for rule in rules:
        ids = [target["Id"] for target in targets[rule["Name"]]]
        events.remove_targets(Rule=rule["Name"], EventBusName=bus, Ids=ids)
        events.delete_rule(Name=rule["Name"], EventBusName=bus)
    events.delete_event_bus(Name=bus)

    def restore() -> None:
        nonlocal gone
        if not gone:
            return
        gone = False
        events.create_event_bus(Name=bus)
        for rule in rules:
            events.put_rule(Name=rule["Name"], EventBusName=bus, EventPattern=rule["EventPattern"], State="ENABLED")
            events.put_targets(Rule=rule["Name"], EventBusName=bus, Targets=targets[rule["Name"]])

    yield restore
    restore()


def test_a_bus_that_is_gone_burns_no_attempts__and_all_arrives_once_it_is_back(
    api: Api,
    without_bus: Callable[[], None],
    table: Callable[[str], Any],
    client: Callable[[str], Any],
    stack: LocalStack,
    mailbox: Mailbox,
    operator: Operator,
) -> None:
    owner_id = f"owner-{uuid4().hex[:12]}"
    address = f"{owner_id}@example.com"
    # Written past the API: while there is no bus, nobody is asked to confirm an address.
    table("owners").put_item(Item={"id": owner_id, "email": address, "email_confirmed": True})
    repos = [create(api, owner_id, name=f"tool-{number}") for number in range(3)]
    shards = {shard_of_subject(f"repos/{repo_id}") for repo_id in repos}

    def paused() -> bool:
        status = {each["shard"]: each for each in operator("status")["outbox"]["shards"]}
        return all(status[shard]["paused_until"] for shard in shards)

    eventually(paused, within=90, every=1, what="the shards pause")
    for repo_id in repos:
        (row,) = rows(table, pending, repo_id)
        assert row.get("retry_count", 0) == 0, "a destination that is down burns nobody's attempts"
    assert eventually(lambda: gauge(client, stack) == 0, within=120), "what waits is not dead"

    without_bus()
    for repo_id in repos:
        eventually(lambda repo_id=repo_id: rows(table, sent, repo_id), within=120, what="the event is sent")
    eventually(lambda: len(mailbox.to(address)) == 3, within=60, what="the e-mails arrive")


def rows(table: Callable[[str], Any], partition: Callable[[int], str], repo_id: str) -> list[dict[str, Any]]:
    subject = f"repos/{repo_id}"
    answer = table("outbox").query(
        KeyConditionExpression=Key("partition").eq(partition(shard_of_subject(subject))), ConsistentRead=True
    )
    return [row for row in answer["Items"] if row.get("subject") == subject]


def test_what_could_not_be_put_into_a_queue_is_handled__by_the_runbooks_commands(
    client: Callable[[str], Any], stack: LocalStack, operator: Operator
) -> None:
    data = {"repo_id": uuid4().hex, "name": "tool", "owner_id": "nobody"}
    event = {"id": f"{ULID()}-03", "type": "repo.created", "source": "mailroom", "data": data}
    left = {"version": "0", "id": "1", "detail-type": event["type"], "source": "mailroom", "detail": event}
    source = "notifications-undelivered"
    reason = {"ERROR_CODE": {"DataType": "String", "StringValue": "NO_PERMISSIONS"}}
    client("sqs").send_message(QueueUrl=stack.queues[source], MessageBody=json.dumps(left), MessageAttributes=reason)
    (letter,) = operator("dead", "list", "--source", source)["letters"]
    assert (letter["id"], letter["failure"]["type"]) == (event["id"], "NO_PERMISSIONS")
    assert operator("dead", "show", event["id"])["letters"][0]["source"] == source
    operator("dead", "redrive", "--source", source, "--canary", "--why", "queue restored", "--yes")

    def is_handled() -> bool:
        (traced,) = operator("trace", event["id"])["events"]
        return [each["state"] for each in traced["records"]] == ["handled"]

    eventually(is_handled, within=60, every=1, what="the event is handled")
    assert depth(client, stack, source) == 0
