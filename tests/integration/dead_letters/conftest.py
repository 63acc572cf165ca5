"""A stage in which things die: an outbox, a consumer with its queues, and a desk over both."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from app.events import RepoCreated
from app.owners import Owner
from mailroom import clients
from mailroom.consumer import consumer
from mailroom.consumer_edge import ConsumerEdge
from mailroom.dead_letters.desk import Desk
from mailroom.dead_letters.letter import DeadLetter, Deed
from mailroom.dead_letters.redrive import Plan, Redrive
from mailroom.deployment import Deployment
from mailroom.failures import Permanent
from mailroom.outbox.event import Envelope, EventIds
from mailroom.outbox.relay import Relay
from mailroom.runtime import Runtime
from mailroom.sources.source import Message
from mailroom.sources.sqs import SqsSource
from mailroom.testing import FakePublisher, LambdaContext, ManualClock, permanent
from mailroom.unit_of_work import UnitOfWork
from tests.lagging_reads import LaggingReads

from ..lagging import lagging_reads  # noqa: F401 - for every test here
from ..outbox.conftest import SHARD, Outbox, outbox  # noqa: F401 - a fixture

DEED = Deed(by="operator", at="2030-01-01T00:00:00.000Z", why="the receiver is back")
RECEIVES = 3
"""Deliveries after which a message is dead: fewer than deployed, for they are all alike."""
BEHAVE: list[Callable[[RepoCreated], None]] = []


@consumer(on=RepoCreated, writes=[Owner])
def greeter(event: RepoCreated, work: UnitOfWork) -> None:
    work.update(Owner(event.owner_id), [Owner.repo_count.add(1)])
    for behave in BEHAVE:
        behave(event)


def as_eventbridge_leaves_it(event_id: str) -> str:
    """Return the body of a message in a rule's dead-letter queue."""
    payload = json.dumps({"repo_id": "1", "name": "tool é", "owner_id": "owner-1"})
    event = Envelope(event_id, "repo.created", "mailroom", "repos/1", "2030-01-01T00:00:00.000Z", payload)
    envelope = {
        "version": "0",
        "id": "6a7e8feb-b491-4cf7-a9f1-bf3703467718",
        "detail-type": "repo.created",
        "source": "mailroom",
        "account": "123456789012",
        "time": "2030-01-01T00:00:01Z",
        "region": "us-east-1",
        "resources": [],
        "detail": json.loads(event.to_json()),
    }
    return json.dumps(envelope)


class Stage:
    """Makes things die and shows what became of them."""

    def __init__(self, runtime: Runtime, clock: ManualClock, events: Outbox, reads: LaggingReads) -> None:
        self.runtime, self.clock, self.outbox, self.reads = runtime, clock, events, reads
        sqs = clients.sqs()
        dead = sqs.create_queue(QueueName="greeter-dead")["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": RECEIVES})
        queue = sqs.create_queue(QueueName="greeter", Attributes={"RedrivePolicy": policy})["QueueUrl"]
        undelivered = sqs.create_queue(QueueName="greeter-undelivered")["QueueUrl"]
        self.queues = {"greeter": queue, "greeter-dead": dead, "greeter-undelivered": undelivered}
        self.deployment = Deployment(stage="test", queues=self.queues)
        self.edge = ConsumerEdge(greeter, runtime, SqsSource(queue))
        self.desk = Desk(runtime, self.deployment)
        self.publisher = FakePublisher()
        self.relay = Relay(runtime, self.publisher)

    def die_in_outbox(self, count: int = 1, reason: str = "refused") -> list[str]:
        self.publisher.answer = lambda _: permanent(reason)
        ids = [self.outbox.add() for _ in range(count)]
        self.relay.drain(SHARD)
        return ids

    def send(self, event_id: str, owner: str = "owner-1", tenant: str | None = None, queue: str = "greeter") -> None:
        payload = json.dumps({"repo_id": "1", "name": "tool", "owner_id": owner})
        envelope = Envelope(event_id, "repo.created", "test.service", "repos/1", "2030-01-01T00:00:00.000Z", payload)
        SqsSource(self.queues[queue]).put([Message(envelope.to_json(), tenant)])

    def bury_text(self, body: str) -> str:
        """Put a text into the dead-letter queue; return the id of its message."""
        return clients.sqs().send_message(QueueUrl=self.queues["greeter-dead"], MessageBody=body)["MessageId"]

    def leave_undelivered(self, count: int = 1, **reason: str) -> list[str]:
        """Let EventBridge leave events that it could not put into the consumer's queue, each in its own envelope."""
        ids = [self.new_id() for _ in range(count)]
        for event_id in ids:
            told = reason or {"ERROR_CODE": "NO_PERMISSIONS", "ERROR_MESSAGE": "the queue's policy lets nobody in"}
            clients.sqs().send_message(
                QueueUrl=self.queues["greeter-undelivered"],
                MessageBody=as_eventbridge_leaves_it(event_id),
                MessageAttributes={name: {"DataType": "String", "StringValue": text} for name, text in told.items()},
            )
            self.clock.advance(0.001)
        return ids

    def new_id(self) -> str:
        return EventIds(self.clock, self.runtime.random).next("repos/1", None)[0]

    def die_unseen(self, count: int = 1) -> list[str]:
        """Let messages come into the dead-letter queue that the consumer was never started for."""
        ids = []
        for _ in range(count):
            ids.append(self.new_id())
            self.send(ids[-1], queue="greeter-dead")
            self.clock.advance(0.001)
        return ids

    def deliver(self) -> None:
        """Deliver what there is until nothing is left to deliver: SQS moves to the dead what was received enough."""
        for _ in range(3 * RECEIVES):
            messages = self.receive("greeter")
            if messages:
                self._handle(messages)

    def receive(self, queue: str) -> list[dict[str, Any]]:
        answer = clients.sqs().receive_message(
            QueueUrl=self.queues[queue], MaxNumberOfMessages=10, MessageSystemAttributeNames=["SentTimestamp"]
        )
        now = str(int(self.clock.now().timestamp() * 1000))
        return [
            {
                "messageId": message["MessageId"],
                "receiptHandle": message["ReceiptHandle"],
                "body": message["Body"],
                "attributes": {
                    **message["Attributes"],
                    "ApproximateFirstReceiveTimestamp": now,
                    "ApproximateReceiveCount": "1",
                },
            }
            for message in answer.get("Messages", [])
        ]

    def deliver_and_delete(self) -> None:
        """Deliver once, and delete what was handled, as Lambda would."""
        records = self.receive("greeter")
        if not records:
            return
        answer = self._handle(records)
        failed = {failure["itemIdentifier"] for failure in answer["batchItemFailures"]}
        for record in records:
            if record["messageId"] not in failed:
                clients.sqs().delete_message(QueueUrl=self.queues["greeter"], ReceiptHandle=record["receiptHandle"])

    def _handle(self, records: list[dict[str, Any]]) -> Any:
        answer = self.edge.handle({"Records": records}, LambdaContext())
        self.reads.catch_up_indexes()  # operators look a while later; what they do themselves is not listed at once
        return answer

    def die_at_consumer(self, *ids: str, tenant: str | None = None) -> None:
        """Let messages fail for good, until SQS has moved them."""

        def refuse(_: RepoCreated) -> None:
            raise Permanent("the receiver is gone")

        BEHAVE[:] = [refuse]
        for event_id in ids:
            self.send(event_id, tenant=tenant)
        while self.depth("greeter"):
            self.deliver_and_delete()
        BEHAVE.clear()

    def depth(self, queue: str) -> int:
        names: Any = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer = clients.sqs().get_queue_attributes(QueueUrl=self.queues[queue], AttributeNames=names)["Attributes"]
        return sum(int(answer[name]) for name in names)

    def everything(self) -> list[DeadLetter]:
        return list(self.desk.letters())

    def redrive(self, plan: Plan | None = None, **options: Any) -> dict[str, str]:
        plan = plan or Plan.matching(self.desk, keep=lambda _: True)
        return {result.id: result.fate.value for result in Redrive(self.desk, plan, DEED, **options).run()}

    @property
    def effects(self) -> int:
        rows = list(Owner.scan(consistent_read=True))
        return sum(int(row.repo_count) for row in rows)


@pytest.fixture(autouse=True)
def queues_by_the_clock(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let queues go by the test's clock, which ticks with each look at it: for moto, visible is what was hidden until
    before now."""
    ticks = count(1)
    monkeypatch.setattr(
        "moto.sqs.models.unix_time_millis", lambda *_: clock.now().timestamp() * 1000 + next(ticks) / 1000
    )


@pytest.fixture
def stage(runtime: Runtime, clock: ManualClock, outbox: Outbox, lagging_reads: LaggingReads) -> Stage:
    BEHAVE.clear()
    return Stage(runtime, clock, outbox, lagging_reads)
