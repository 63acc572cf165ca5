"""A redriven event says so to its destination: one that forgets repetitions must not forget this one."""

from __future__ import annotations

import json

from mailroom import clients
from mailroom.dead_letters.letter import Deed
from mailroom.dead_letters.outbox import OutboxLetters
from mailroom.failures import Failure
from mailroom.outbox.event import Envelope
from mailroom.outbox.relay import Relay
from mailroom.publishers.publisher import SENT, Outcome
from mailroom.runtime import Runtime
from mailroom.testing import FakePublisher, ManualClock, permanent
from tests.faults import failing, refused

from .conftest import SHARD, Outbox

DEED = Deed(by="operator", at="2030-01-01T00:00:00.000Z", why="it is mended")
QUEUE = "things.fifo"


def redrive(runtime: Runtime, event_id: str) -> None:
    (result,) = OutboxLetters(runtime).redrive([event_id], DEED)
    assert result.ok


def test_an_event_carries_how_often_it_was_redriven(runtime: Runtime, outbox: Outbox, publisher: FakePublisher) -> None:
    answers: list[Outcome] = [permanent(), permanent(), SENT]
    seen: list[int] = []

    def answer(event: Envelope) -> Outcome | Failure:
        seen.append(event.redriven)
        return answers.pop(0)

    publisher.answer = answer
    event_id, relay = outbox.add(), Relay(runtime, publisher)
    for _ in range(2):
        relay.drain(SHARD)
        redrive(runtime, event_id)
    relay.drain(SHARD)

    assert seen == [0, 1, 2]
    assert outbox.sent == [event_id]


def test_an_event_that_died_though_it_had_arrived_arrives_again_when_it_is_redriven__even_at_a_fifo_queue(
    runtime: Runtime, outbox: Outbox, clock: ManualClock
) -> None:
    url = clients.sqs().create_queue(QueueName=QUEUE, Attributes={"FifoQueue": "true"})["QueueUrl"]
    arn = clients.sqs().get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    settings = runtime.settings.model_copy(update={"publisher_url": f"sqs://{arn}"})
    relay = Runtime(settings, clock=clock, random=runtime.random).use(Relay)
    event_id = outbox.add()
    with failing("SendMessageBatch", refused("InvalidParameterValue"), after=True):
        relay.drain(SHARD)
    assert outbox.dead == [event_id]

    redrive(runtime, event_id)
    relay.drain(SHARD)

    received = []
    while messages := clients.sqs().receive_message(QueueUrl=url).get("Messages"):
        for each in messages:
            received.append(json.loads(each["Body"])["id"])
            clients.sqs().delete_message(QueueUrl=url, ReceiptHandle=each["ReceiptHandle"])
    assert received == [event_id] * 2
