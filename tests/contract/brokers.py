"""Destinations with a broker of their own: RabbitMQ against one that does as it is told, Kafka against its client's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaError

from local.kafka import MockKafka, Record
from mailroom.clock import Clock, SystemClock
from mailroom.outbox.event import Envelope
from mailroom.publishers.kafka import Kafka, KafkaPublisher
from mailroom.publishers.kafka_link import KafkaLink
from mailroom.publishers.place import Place
from mailroom.publishers.publisher import SENT
from mailroom.publishers.rabbitmq import RabbitMq, RabbitMqPublisher
from mailroom.publishers.rabbitmq_link import RabbitMqLink

from .fake_rabbitmq import HOST, FakeRabbitMq

EXCHANGE = "events"
IDLE, UNROUTABLE_AFTER = 30.0, 900.0
LONG_ENOUGH = 10.0


class RabbitMqDestination:
    """An exchange."""

    deduplicates = False

    def __init__(self, broker: FakeRabbitMq) -> None:
        self.broker = broker
        self.publisher = to_rabbitmq(f"amqp://{HOST}:{broker.port}/?exchange={EXCHANGE}")

    @property
    def delivered(self) -> Sequence[str]:
        return [delivery.id for delivery in self.broker.delivered]


class KafkaDestination:
    """A topic. It takes half a second to connect to, so tests share one, and forget what was in it before."""

    deduplicates = False

    def __init__(self, kafka: MockKafka, *, partitions: int = 1) -> None:
        self.kafka = kafka
        self.topic = kafka.topic(partitions)
        self.partitions = partitions
        self.publisher = to_kafka(kafka, self.topic)
        self._before = 0

    @property
    def records(self) -> list[Record]:
        """What is in the topic."""
        return self.kafka.records(self.topic, self.partitions, skip=self._before)

    @property
    def delivered(self) -> Sequence[str]:
        return [Envelope.from_json(record.value).id for record in self.records]

    def forget(self) -> None:
        """Begin a test: the topic is as good as empty, and the producer is connected."""
        self.kafka.forget_answers()
        self.kafka.refuse_topic(self.topic, KafkaError.NO_ERROR)
        warm_up = Envelope("warm-up", "warm.up", "tests", None, "2030-01-01T00:00:00.000Z", "{}")
        assert self.publisher.publish([warm_up]) == [SENT]
        self._before += len(self.records)


def to_rabbitmq(
    url: str, *, timeout: float = LONG_ENOUGH, clock: Clock | None = None, idle: float = IDLE
) -> RabbitMqPublisher:
    """Make the publisher for an exchange."""
    clock = clock or SystemClock()
    link = RabbitMqLink(RabbitMq.at(Place.of(url)), clock=clock, idle=idle, unroutable_after=UNROUTABLE_AFTER)
    return RabbitMqPublisher(link, clock=clock, timeout=timeout)


def to_kafka(
    kafka: MockKafka, topic: str, *, timeout: float = LONG_ENOUGH, settings: dict[str, Any] | None = None
) -> KafkaPublisher:
    """Make the publisher for a topic."""
    return to_kafka_at(f"kafka://{kafka.brokers}/{topic}", timeout=timeout, settings=settings)


def to_kafka_at(
    url: str, *, timeout: float = LONG_ENOUGH, clock: Clock | None = None, settings: dict[str, Any] | None = None
) -> KafkaPublisher:
    """Make the publisher for the topic of a URL."""
    clock = clock or SystemClock()
    link = KafkaLink(Kafka.at(Place.of(url)), clock=clock, timeout=timeout, idle=IDLE, settings=settings)
    return KafkaPublisher(link, clock=clock, timeout=timeout)
