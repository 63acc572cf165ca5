"""Sends one request through a local stack and tells each hop that it takes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import Any
from uuid import uuid4

from boto3.dynamodb.conditions import Attr, Key

from local.api import Answer, Api
from local.confirmation import confirm_address
from local.mailbox import Mailbox
from local.stack import LocalStack
from local.waiting import eventually
from mailroom.outbox.event import shard_of_subject

_DELIVERED_WITHIN = 150.0
"""Two sweeps of the relay: a wake-up may be lost, and the walk still has to succeed."""


class TourFailed(Exception):
    """The API refused a request of the tour."""


@dataclass(frozen=True, slots=True)
class Hop:
    """Something that happened to the request, so many milliseconds after it was sent."""

    name: str
    milliseconds: int
    detail: str


def walk(stack: LocalStack, show: Callable[[Hop], None]) -> str:
    """Confirm an address, send one `POST /api/v1/repos`, and return its id.

    Each hop is shown when it is reached, until the e-mail has left.
    Raises TourFailed if the API refuses, NeverHappened if a hop is not reached in time.
    """
    api = Api(stack.api_url)
    owner = f"tour-{uuid4().hex[:6]}"
    address = f"{owner}@example.com"
    _accepted(api.put(f"/api/v1/owners/{owner}", {"email": address, "repo_quota": 100}))
    _check(confirm_address(api, Mailbox(stack.endpoint_url), owner, address, within=_DELIVERED_WITHIN))
    sent = datetime.now(UTC)
    answer = api.post("/api/v1/repos", {"name": "hello-mailroom", "owner_id": owner}, key=str(uuid4()))
    answered = datetime.now(UTC)
    repo_id = str(_accepted(answer)["id"])
    moments = chain([(f"answered {answer.status}", answered, f"repo {repo_id}")], _follow(stack, repo_id, address))
    hops = (Hop(name, _milliseconds(moment - sent), detail) for name, moment, detail in moments)
    # The answer, what was committed before it, and the event, whose relay runs since the confirmation, are there at
    # once; the others come by and by.
    for hop in chain(in_order(islice(hops, 4)), hops):
        show(hop)
    return repo_id


def in_order(hops: Iterable[Hop]) -> list[Hop]:
    """Return hops as they happened."""
    return sorted(hops, key=lambda hop: hop.milliseconds)


def _follow(stack: LocalStack, repo_id: str, address: str) -> Iterator[tuple[str, datetime, str]]:
    row = eventually(lambda: _repo(stack, repo_id), what="the row in the repos table")
    yield "row written", _moment(row["created_at"]), f"table repos, version {row['version']}"

    event = eventually(lambda: _event(stack, repo_id, "pending", "sent"), what="the event in the outbox")
    shard = event["event_id"].rpartition("-")[2]
    yield "event pending", _moment(event["created_at"]), f"{event['event_id']} in pending#{shard}"

    event = eventually(
        lambda: _event(stack, repo_id, "sent"), within=_DELIVERED_WITHIN, what="the relay to send the event"
    )
    yield "event sent", _moment(event["sent_at"]), f"to the bus, now in {event['partition']}"

    mails = eventually(
        lambda: Mailbox(stack.endpoint_url).about_repositories(address), within=_DELIVERED_WITHIN, what="the e-mail"
    )
    yield "e-mail captured", mails[0].sent_at, f"to {address}: {mails[0].subject}"

    eventually(lambda: _is_empty(stack, "notifications"), within=_DELIVERED_WITHIN, what="the queue to be empty")
    yield "message handled", datetime.now(UTC), "queue notifications is empty"


def _repo(stack: LocalStack, repo_id: str) -> Mapping[str, Any] | None:
    return stack.table("repos").get_item(Key={"id": repo_id}, ConsistentRead=True).get("Item")


def _event(stack: LocalStack, repo_id: str, *statuses: str) -> dict[str, Any] | None:
    """Return the repository's event as it lies under one of the statuses; it moves while we look."""
    subject = f"repos/{repo_id}"
    partitions = [f"{status}#{shard_of_subject(subject):02d}" for status in statuses]
    for partition in partitions:
        # The newest 100 of the partition: nobody else writes here meanwhile.
        found = stack.table("outbox").query(
            KeyConditionExpression=Key("partition").eq(partition),
            FilterExpression=Attr("subject").eq(subject),
            ScanIndexForward=False,
            Limit=100,
            ConsistentRead=True,
        )
        if found["Items"]:
            return dict(found["Items"][0])
    return None


def _is_empty(stack: LocalStack, queue: str) -> bool:
    """Whether every message was deleted: none waits and none is being handled."""
    sqs = stack.client("sqs")
    counts = sqs.get_queue_attributes(
        QueueUrl=stack.queues[queue],
        AttributeNames=["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"],
    )
    return not any(int(count) for count in counts["Attributes"].values())


def _accepted(answer: Answer) -> Any:
    _check(answer)
    return answer.json()


def _check(answer: Answer) -> None:
    if not 200 <= answer.status < 300:
        raise TourFailed(f"the API answered {answer.status}: {answer.text[:1000]}")


def _moment(written: Any) -> datetime:
    return datetime.fromisoformat(str(written))


def _milliseconds(passed: timedelta) -> int:
    return max(0, round(passed / timedelta(milliseconds=1)))  # rows are dated in whole milliseconds
