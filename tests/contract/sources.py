"""Queues that keep the contract of sources: the one in memory, and SQS against a double of it."""

from __future__ import annotations

from typing import Protocol

import pytest
from moto.sqs.models import Message, Queue

from mailroom import clients
from mailroom.sources.memory import InMemorySource
from mailroom.sources.source import Sink, Source
from mailroom.sources.sqs import SqsSource
from mailroom.testing import ManualClock

MAX_RECEIVES = 3


class SomeQueue(Protocol):
    """A queue under test, and what happens to it from outside; time passes by its clock alone."""

    source: Source
    sink: Sink
    clock: ManualClock

    def send(self, *bodies: str) -> None:
        """Put messages in."""
        ...


class QueueInMemory:
    """The queue of tests and laptops."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.source = self.sink = InMemorySource(clock, max_receives=MAX_RECEIVES)
        self.send = self.source.send


class QueueInSqs:
    """A queue of moto's, which tells the time by the clock."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.url = clients.sqs().create_queue(QueueName="messages")["QueueUrl"]
        dead = clients.sqs().create_queue(QueueName="dead")["QueueUrl"]
        arn = clients.sqs().get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        policy = f'{{"deadLetterTargetArn":"{arn}","maxReceiveCount":{MAX_RECEIVES}}}'
        clients.sqs().set_queue_attributes(QueueUrl=self.url, Attributes={"RedrivePolicy": policy})
        self.source = self.sink = SqsSource(self.url)

    def send(self, *bodies: str) -> None:
        for body in bodies:
            clients.sqs().send_message(QueueUrl=self.url, MessageBody=body)


def mend_moto(patch: pytest.MonkeyPatch, clock: ManualClock) -> None:
    """Let moto go by the clock, wait by it, and know a receipt for what it is.

    It takes any receipt that a message ever had. SQS deletes nothing by an earlier one, and answers that it did; it
    refuses to change the visibility of a message that is not in flight.
    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_DeleteMessage.html
    """
    delete = Queue.delete_message

    def delete_by_the_last(queue: Queue, receipt: str) -> None:
        if not any(receipt in each._old_receipt_handles for each in queue._messages):
            delete(queue, receipt)

    patch.setattr(Message, "had_receipt_handle", lambda message, receipt: receipt == message.receipt_handle)
    patch.setattr(Queue, "delete_message", delete_by_the_last)
    patch.setattr(Queue, "wait_for_messages", lambda queue, timeout: clock.sleep(timeout))
    patch.setattr("moto.sqs.models.unix_time", lambda *_: clock.now().timestamp())
    patch.setattr("moto.sqs.models.unix_time_millis", lambda *_: clock.now().timestamp() * 1000)
