"""A stage with one consumer, what dies in it, and the operators' API over it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from mailroom import clients
from mailroom.clock import timestamp
from mailroom.consumer import record_prefix
from mailroom.deployment import DEAD, UNDELIVERED, Deployment
from mailroom.failures import Failure, FailureKind
from mailroom.http.testing import ApiAnswer, ApiClient
from mailroom.idempotency import FAILED, IdempotencyRow, record_id
from mailroom.operations.api import api
from mailroom.outbox.event import Envelope, EventIds
from mailroom.outbox.relay import Relay
from mailroom.runtime import Runtime
from mailroom.testing import FakePublisher, ManualClock, permanent
from tests.faults import Died

from ..lagging import lagging_tables  # noqa: F401 - for every test here
from ..outbox.conftest import SHARD, Outbox, outbox  # noqa: F401 - a fixture

OUTBOX, LETTERS = "/ops/v1/outbox", "/ops/v1/dead-letters"
REDRIVE, STATUS = f"{LETTERS}/redrive", "/ops/v1/status"
CONSUMER = "billing"
BROKEN = Failure(FailureKind.PERMANENT, "Broken", "no such receiver")


@pytest.fixture
def deployment(runtime: Runtime) -> Deployment:
    """A stage with one consumer."""
    names = [CONSUMER, f"{CONSUMER}{DEAD}", f"{CONSUMER}{UNDELIVERED}"]
    urls = {name: clients.sqs().create_queue(QueueName=name)["QueueUrl"] for name in names}
    deployment = Deployment("test", queues=urls)
    runtime.provide(Deployment, deployment)
    return deployment


@pytest.fixture
def client(runtime: Runtime, deployment: Deployment) -> ApiClient:
    return ApiClient(api, runtime)


@pytest.fixture
def kill(runtime: Runtime, outbox: Outbox) -> Callable[[int], list[str]]:
    """Makes so many dead events; answers their ids, oldest first."""

    def kill(count: int) -> list[str]:
        events = [outbox.add(payload='{"amount":17}') for _ in range(count)]
        Relay(runtime, FakePublisher(lambda _: permanent())).drain(SHARD)
        return events

    return kill


@pytest.fixture
def bounce(runtime: Runtime, deployment: Deployment, clock: ManualClock) -> Callable[[], str]:
    """Makes a message that the consumer gave up on; answers its event's id."""
    ids = EventIds(clock, runtime.random)

    def bounce() -> str:
        clock.advance(1)
        event_id, moment = ids.next(None, None)
        envelope = Envelope(event_id, "thing.happened", "test.service", None, timestamp(moment), "{}")
        queue = deployment.queues[f"{CONSUMER}{DEAD}"]
        message = clients.sqs().send_message(QueueUrl=queue, MessageBody=envelope.to_json())
        IdempotencyRow(
            record_id(record_prefix(CONSUMER), event_id),
            status=FAILED,
            in_progress_until=0,
            expires_at=clock.now() + timedelta(days=25),
            attempts=1,
            failure=BROKEN.to_json(),
            message_id=message["MessageId"],
            failing=CONSUMER,
            failed_at=timestamp(clock.now()),
            first_failed_at=timestamp(clock.now()),
            event_id=event_id,
            type="thing.happened",
        ).save()
        return event_id

    return bounce


def fates(answer: ApiAnswer) -> list[str]:
    return [each["fate"] for each in answer.json["results"]]


def waiting(deployment: Deployment, name: str) -> int:
    answer = clients.sqs().get_queue_attributes(
        QueueUrl=deployment.queues[name], AttributeNames=["ApproximateNumberOfMessages"]
    )
    return int(answer["Attributes"]["ApproximateNumberOfMessages"])


def die(*_: object) -> None:
    raise Died
