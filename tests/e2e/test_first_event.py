"""One request, all the way: API Gateway, DynamoDB, relay, EventBridge, SQS, consumer, SES."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any
from uuid import uuid4

import pytest
from boto3.dynamodb.conditions import Key

from local.api import Answer, Api
from local.confirmation import confirm_address
from local.mailbox import Mailbox
from local.stack import LocalStack
from mailroom.outbox.event import shard_of_subject
from mailroom.outbox.table import pending, sent

Eventually = Callable[..., Any]


@pytest.fixture
def owner(api: Api, mailbox: Mailbox) -> str:
    """An owner of this test's own, with an address that was confirmed."""
    owner_id = f"owner-{uuid4().hex[:12]}"
    assert api.put(f"/api/v1/owners/{owner_id}", {"email": address(owner_id), "repo_quota": 100}).status == 200
    assert confirm_address(api, mailbox, owner_id, address(owner_id)).status == 204
    return owner_id


def address(owner_id: str) -> str:
    return f"{owner_id}@example.com"


def create(api: Api, owner_id: str, name: str = "tool", key: str | None = None) -> Answer:
    return api.post("/api/v1/repos", {"name": name, "owner_id": owner_id}, key=key or uuid4().hex)


def outbox_rows(table: Callable[[str], Any], repo_id: str, partition: Callable[[int], str]) -> list[dict[str, Any]]:
    subject = f"repos/{repo_id}"
    answer = table("outbox").query(
        KeyConditionExpression=Key("partition").eq(partition(shard_of_subject(subject))), ConsistentRead=True
    )
    return [row for row in answer["Items"] if row.get("subject") == subject]


def test_a_request_becomes_an_email(
    api: Api, owner: str, table: Callable[[str], Any], mailbox: Mailbox, eventually: Eventually
) -> None:
    answer = create(api, owner, name="first")
    assert answer.status == 201
    repo = answer.json()
    assert answer.headers["location"] == f"/api/v1/repos/{repo['id']}"
    assert api.get(answer.headers["location"]).json() == repo
    eventually(lambda: outbox_rows(table, repo["id"], sent), within=30, what="the event is sent")
    (mail,) = eventually(lambda: mailbox.about_repositories(address(owner)), within=30, what="the e-mail arrives")
    assert "first" in mail.subject
    assert outbox_rows(table, repo["id"], pending) == []


def test_a_repeated_request_is_answered_as_before__and_one_email_goes_out(
    api: Api, owner: str, mailbox: Mailbox, eventually: Eventually
) -> None:
    first, again = create(api, owner, key="the-key-" + owner), create(api, owner, key="the-key-" + owner)
    assert (again.status, again.json()) == (201, first.json())
    assert again.headers["idempotent-replayed"] == "true"
    other = create(api, owner, name="another")
    eventually(lambda: [m for m in mailbox.about_repositories(address(owner)) if "another" in m.subject], within=30)
    assert other.status == 201
    assert len(mailbox.about_repositories(address(owner))) == 2


def test_five_at_once_with_one_key_make_one_repository(
    api: Api, owner: str, mailbox: Mailbox, eventually: Eventually
) -> None:
    barrier = Barrier(5)

    def post(_: int) -> Answer:
        barrier.wait()
        return create(Api(api.url), owner, key="shared-" + owner)

    with ThreadPoolExecutor(5) as threads:
        answers = list(threads.map(post, range(5)))
    assert {answer.status for answer in answers} <= {201, 409}
    made = {answer.json()["id"] for answer in answers if answer.status == 201}
    assert len(made) == 1
    assert all("retry-after" in answer.headers for answer in answers if answer.status == 409)
    eventually(lambda: mailbox.about_repositories(address(owner)), within=30, what="the e-mail arrives")


def test_events_reach_the_bus__though_every_wake_up_is_lost(
    api: Api, owner: str, stack: LocalStack, client: Callable[[str], Any], mailbox: Mailbox, eventually: Eventually
) -> None:
    functions = client("lambda")
    (mapping,) = functions.list_event_source_mappings(FunctionName=stack.functions["relay"])["EventSourceMappings"]
    functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
    try:
        assert create(api, owner, name="unheard").status == 201
        eventually(lambda: mailbox.about_repositories(address(owner)), within=100, what="the sweep delivers")
    finally:
        functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=True)


def test_an_owner_without_an_address_is_no_failure(
    api: Api, table: Callable[[str], Any], client: Callable[[str], Any], stack: LocalStack, eventually: Eventually
) -> None:
    repo_id = create(api, f"owner-{uuid4().hex[:12]}").json()["id"]
    eventually(lambda: outbox_rows(table, repo_id, sent), within=30, what="the event is sent")

    def queue_is_empty() -> bool:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        for queue in ("notifications", "notifications-dead", "notifications-undelivered"):
            answer = client("sqs").get_queue_attributes(QueueUrl=stack.queues[queue], AttributeNames=names)
            if any(int(count) for count in answer["Attributes"].values()):
                return False
        return True

    eventually(queue_is_empty, within=30)


def test_bad_input_is_refused_on_the_deployed_api_too(api: Api, owner: str) -> None:
    answer = api.request("POST", "/api/v1/repos", b"{not json", {"idempotency-key": uuid4().hex})
    assert (answer.status, answer.headers["content-type"]) == (400, "application/problem+json")
    assert api.request("POST", "/api/v1/repos", {"name": "tool", "owner_id": owner}).status == 400
