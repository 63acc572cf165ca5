"""Delivery to a topic of Kafka: `kafka://host:port,host:port/topic?secret=name`.

The topic is the team's: nothing is made. With a secret the connection is encrypted and logs in, without one neither.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from mailroom.needs import Need
from mailroom.outbox.event import Envelope
from mailroom.publishers.broker import BrokerPublisher
from mailroom.publishers.place import Place
from mailroom.publishers.publisher import Limits
from mailroom.publishers.secret import secret_need

if TYPE_CHECKING:
    from mailroom.runtime import Runtime

_PORT = 9092
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""https://github.com/apache/kafka/blob/4.1.0/clients/src/main/java/org/apache/kafka/common/internals/Topic.java"""
_MEGABYTE = 1_000_000
_FRAMING = 200
"""More than a record takes besides key and value: header, lengths, timestamp, and its batch if it is alone in it.
https://kafka.apache.org/documentation/#messageformat"""
BROKERS_DEFAULT = 1_048_588
"""The bytes of a batch that a broker takes unless it is told otherwise.
https://kafka.apache.org/documentation/#brokerconfigs_message.max.bytes"""


@dataclass(frozen=True, slots=True)
class Kafka:
    """A topic, and how to get there.

    Parameters
    ----------
    brokers
        `host:port,host:port`.
    secret
        The name of the secret that has `username`, `password` and `mechanism` (`SCRAM-SHA-512`, `PLAIN`, …), and `ca`
        if the brokers' certificates are signed by nobody whom the world knows.
    """

    brokers: str
    topic: str
    secret: str | None

    @classmethod
    def at(cls, place: Place) -> Self:
        """Read it from a URL.

        Raises
        ------
        PublisherUrlError
            If it is none.
        """
        server = place.server(port=_PORT, may_have=["secret"], several=True)
        if not _TOPIC.fullmatch(server.path):
            raise place.wrong("what follows the hosts is no topic: letters, digits, . _ and -, at most 249 of them")
        brokers = ",".join(f"{host}:{port}" for host, port in server.hosts)
        return cls(brokers, server.path, server.options.get("secret"))


class KafkaPublisher(BrokerPublisher):
    """Publishes to one topic, acknowledged by all replicas in sync; events of a subject go to one partition."""

    # There is no limit to a batch; a page of the outbox is one.
    limits: ClassVar = Limits(entries=100, entry_bytes=_MEGABYTE, call_bytes=_MEGABYTE)

    @classmethod
    def check_at(cls, place: Place) -> None:
        """See that the place is a topic."""
        Kafka.at(place)

    @classmethod
    def needs_at(cls, place: Place) -> tuple[Need, ...]:
        """Answer the right to read the secret, where one is named."""
        secret = Kafka.at(place).secret
        return () if secret is None else (secret_need(secret),)

    @classmethod
    def at(cls, place: Place, runtime: Runtime) -> Self:
        """Make the publisher for a topic."""
        from mailroom.publishers.kafka_link import KafkaLink  # noqa: PLC0415 - who does not publish has no client

        timings = runtime.timings
        link = KafkaLink(Kafka.at(place), clock=runtime.clock, timeout=timings.broker_timeout, idle=timings.broker_idle)
        return cls(link, clock=runtime.clock, timeout=timings.broker_timeout)

    @staticmethod
    def size(event: Envelope) -> int:
        """Answer about what a record takes on the wire."""
        return len(event.to_json().encode()) + len(event.subject.encode() if event.subject else b"") + _FRAMING
