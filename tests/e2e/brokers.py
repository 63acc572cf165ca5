"""Brokers that events end up in, and who reads them there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import pika
from confluent_kafka import KafkaError
from pika.adapters.blocking_connection import BlockingChannel

from local.account import HOST
from local.kafka import MockKafka
from local.rabbitmq import RabbitMqServer
from mailroom import clients
from mailroom.outbox.event import Envelope

EXCHANGE, QUEUE = "events", "arrivals"
PARTITIONS = 3


class Broker(Protocol):
    """Where the relay delivers."""

    @property
    def url(self) -> str:
        """The destination's URL."""

    def arrived(self) -> list[Envelope]:
        """Answer all that ever arrived; of a subject in the order in which it did."""

    def die(self) -> None:
        """End without a warning."""

    def come_back(self) -> None:
        """Start again, with what was written."""


class InRabbitMq:
    """A durable queue behind a topic exchange."""

    def __init__(self, server: RabbitMqServer) -> None:
        self.server = server
        self._read: list[Envelope] = []
        self.declare()

    @property
    def url(self) -> str:
        return f"amqp://{HOST}:{self.server.port}/?exchange={EXCHANGE}"

    def declare(self, binding: str = "#") -> None:
        """Declare exchange and queue, and bind it."""
        with self.channel() as channel:
            channel.exchange_declare(EXCHANGE, "topic", durable=True)
            channel.queue_declare(QUEUE, durable=True)
            channel.queue_bind(QUEUE, EXCHANGE, binding)

    def remove(self, *, queue: bool = False) -> None:
        """Delete the exchange, and the queue too."""
        with self.channel() as channel:
            channel.exchange_delete(EXCHANGE)
            if queue:
                channel.queue_delete(QUEUE)

    def arrived(self) -> list[Envelope]:
        with self.channel() as channel:
            while True:
                method, _, body = channel.basic_get(QUEUE, auto_ack=True)
                if method is None:
                    return self._read
                self._read.append(Envelope.from_json(body.decode()))

    @contextmanager
    def full(self, binding: str) -> Iterator[Callable[[], None]]:
        """Bind a queue that is full, and refuses what comes, beside the other; inside the block a call empties it."""
        arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
        with self.channel() as channel:
            queue = channel.queue_declare("", exclusive=True, arguments=arguments).method.queue
            channel.queue_bind(queue, EXCHANGE, binding)
            channel.confirm_delivery()  # so that it is full by the time anybody looks
            channel.basic_publish("", queue, b"the first, and last")
            yield lambda: channel.queue_purge(queue)

    def die(self) -> None:
        self.server.kill()

    def come_back(self) -> None:
        self.server.start()

    @contextmanager
    def channel(self) -> Iterator[BlockingChannel]:
        """Talk to the broker as an administrator."""
        connection = pika.BlockingConnection(pika.ConnectionParameters(HOST, self.server.port))
        try:
            yield connection.channel()
        finally:
            connection.close()


class InKafka:
    """A topic."""

    def __init__(self, kafka: MockKafka) -> None:
        self._kafka = kafka
        self._topic = kafka.topic(PARTITIONS)
        self.die: Callable[[], None] = kafka.go_down
        self.come_back: Callable[[], None] = kafka.come_back

    @property
    def url(self) -> str:
        return f"kafka://{self._kafka.brokers}/{self._topic}"

    def forbid(self) -> None:
        """Let nobody in: told at once, where a topic that is not there would be waited for."""
        self._kafka.refuse_topic(self._topic, KafkaError.TOPIC_AUTHORIZATION_FAILED)

    def permit(self) -> None:
        """Let everybody in again."""
        self._kafka.refuse_topic(self._topic, KafkaError.NO_ERROR)

    def arrived(self) -> list[Envelope]:
        return [Envelope.from_json(record.value) for record in self._kafka.records(self._topic, PARTITIONS)]


def keep_secret(name: str, **content: Any) -> None:
    """Put a secret into Secrets Manager, or another value into it."""
    client, text = clients.secretsmanager(), json.dumps(content)
    try:
        client.create_secret(Name=name, SecretString=text)
    except client.exceptions.ResourceExistsException:
        client.put_secret_value(SecretId=name, SecretString=text)
