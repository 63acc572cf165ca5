"""The contests about RabbitMQ and Kafka, against brokers on this machine.

RabbitMQ is a real one, with a durable queue on disk; Kafka is the one inside Kafka's own client, in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pika
import trustme
from confluent_kafka import Producer
from pika.adapters.select_connection import IOLoop, SelectConnection

from app.events import RepoCreated
from local.account import HOST
from local.kafka import mock_kafka
from local.rabbitmq import RabbitMqServer

EXCHANGE, QUEUE = "events", "arrivals"
BATCH = 100
"""What the publishers send at once."""
_PROPERTIES: dict[str, Any] = {"content_type": "application/cloudevents+json", "delivery_mode": 2, "message_id": "id"}
Bare = Callable[[Sequence[str]], None]


class _BareRabbitMq:
    """pika's connection with a loop: all of a batch is sent before the first confirm is waited for."""

    def __init__(self, parameters: pika.ConnectionParameters) -> None:
        self._loop = IOLoop()
        self._published = 0
        self._connection = SelectConnection(parameters, on_open_callback=self._opened, custom_ioloop=self._loop)
        self._loop.start()

    def _opened(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._confirming)

    def _confirming(self, channel: Any) -> None:
        self._channel = channel
        channel.confirm_delivery(self._confirmed, callback=lambda _: self._loop.stop())

    def _confirmed(self, frame: Any) -> None:
        assert frame.method.NAME == "Basic.Ack"
        if frame.method.delivery_tag == self._published:
            self._loop.stop()

    def send(self, texts: Sequence[str]) -> None:
        properties = pika.BasicProperties(**_PROPERTIES)
        for start in range(0, len(texts), BATCH):
            batch = texts[start : start + BATCH]
            self._published += len(batch)
            for text in batch:
                self._channel.basic_publish(EXCHANGE, RepoCreated.type, text.encode(), properties, mandatory=True)
            self._loop.start()


@contextmanager
def rabbitmq() -> Iterator[tuple[str, Bare]]:
    """Run a RabbitMQ inside the block; answer its URL, and the bare loop."""
    with TemporaryDirectory() as folder:
        certificate = Path(folder, "broker.pem")
        trustme.CA().issue_cert(HOST).private_key_and_cert_chain_pem.write_to_path(certificate)
        with RabbitMqServer(Path(folder, "rabbitmq"), certificate=certificate) as server:
            parameters = pika.ConnectionParameters(HOST, server.port)
            administrator = pika.BlockingConnection(parameters)
            channel = administrator.channel()
            channel.exchange_declare(EXCHANGE, "topic", durable=True)
            channel.queue_declare(QUEUE, durable=True)
            channel.queue_bind(QUEUE, EXCHANGE, "#")
            administrator.close()
            yield f"amqp://{HOST}:{server.port}/?exchange={EXCHANGE}", _BareRabbitMq(parameters).send


@contextmanager
def kafka() -> Iterator[tuple[str, Bare]]:
    """Run a Kafka inside the block; answer its URL, and the bare loop."""
    with mock_kafka() as cluster:
        topic = cluster.topic()
        producer = Producer({"bootstrap.servers": cluster.brokers, "acks": "all", "enable.idempotence": True})
        headers = [("content-type", b"application/cloudevents+json")]

        def bare(texts: Sequence[str]) -> None:
            delivered: list[None] = []

            def report(error: object, _: object) -> None:
                assert error is None
                delivered.append(None)

            for start in range(0, len(texts), BATCH):
                for number, text in enumerate(texts[start : start + BATCH], start):
                    producer.produce(topic, text.encode(), key=f"repos/{number}", headers=headers, on_delivery=report)
                producer.flush()
            assert len(delivered) == len(texts)

        yield f"kafka://{cluster.brokers}/{topic}", bare
