"""The relay delivers to RabbitMQ and Kafka: their connections outlive the faults, which strike our tables.

The brokers are the ones of the publishers' contract, started for the first run that wants one, and shared by all runs.
A process that dies leaves its connection to the next: what becomes of one that breaks is the matter of
`tests/contract/test_rabbitmq.py`, `test_kafka.py` and `tests/e2e/test_brokers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from typing import ClassVar

from local.kafka import mock_kafka
from mailroom.outbox.event import Envelope
from mailroom.publishers.broker import BrokerPublisher
from mailroom.publishers.publisher import SENT, Outcome, Publisher
from tests.contract.brokers import KafkaDestination, RabbitMqDestination
from tests.contract.fake_rabbitmq import fake_rabbitmq
from tests.leftovers import SHARED

from .drain import Drain
from .journal import Journal
from .ledger import Finding, Flaw
from .world import World

Broker = RabbitMqDestination | KafkaDestination

_started = ExitStack()


@cache
def rabbitmq() -> RabbitMqDestination:
    """Answer the exchange."""
    destination = RabbitMqDestination(_started.enter_context(fake_rabbitmq(SHARED)))
    _started.callback(destination.publisher.close)
    return destination


@cache
def kafka() -> KafkaDestination:
    """Answer the topic, of one partition."""
    destination = KafkaDestination(_started.enter_context(mock_kafka()))
    _started.callback(destination.publisher.close)
    return destination


def close() -> None:
    """Stop what was started."""
    _started.close()


class _Noted:
    """A publisher whose successes are noted: no observer of AWS calls sees them."""

    def __init__(self, publisher: BrokerPublisher, journal: Journal) -> None:
        self._publisher = publisher
        self._journal = journal
        self.limits, self.size = publisher.limits, publisher.size

    def publish(self, events: Sequence[Envelope]) -> list[Outcome]:
        outcomes = self._publisher.publish(events)
        for event, outcome in zip(events, outcomes, strict=True):
            if outcome is SENT:
                self._journal.publish(event.id)
        return outcomes


class _DrainToBroker(Drain):
    broker: ClassVar[Callable[[], Broker]]

    def prepare(self, world: World) -> None:
        self._destination = type(self).broker()
        self._before = len(self._destination.delivered)
        publisher: Publisher = _Noted(self._destination.publisher, world.journal)
        world.deliver_by(publisher)
        super().prepare(world)

    def judge(self, world: World) -> Iterator[Finding]:
        yield from super().judge(world)
        arrived = list(self._destination.delivered)[self._before :]
        for event_id in self.ids:
            if event_id not in arrived:
                yield Finding(Flaw.LOST, f"{event_id} is not there")
        first, _, third = self.ids  # about one subject
        if {first, third} <= set(arrived) and arrived.index(first) > arrived.index(third):
            yield Finding(Flaw.LOST, "the subject's order is lost")


class DrainToRabbitMq(_DrainToBroker):
    """An exchange with a queue behind it."""

    broker = staticmethod(rabbitmq)


class DrainToKafka(_DrainToBroker):
    """A topic."""

    broker = staticmethod(kafka)
