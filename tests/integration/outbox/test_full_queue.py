"""One full queue of RabbitMQ, or one that is not bound, stops nobody else's events."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mailroom.outbox.relay import Relay
from mailroom.runtime import Runtime
from mailroom.testing import ManualClock
from tests.contract.brokers import RabbitMqDestination
from tests.contract.fake_rabbitmq import Answer, Conversation, Delivery, fake_rabbitmq, give_back, refuse, take

from .conftest import SHARD, Outbox

FULL = "thing.refused"


@pytest.fixture
def rabbitmq() -> Iterator[RabbitMqDestination]:
    with fake_rabbitmq() as broker:
        destination = RabbitMqDestination(broker)
        yield destination
        destination.publisher.close()


@pytest.mark.parametrize("answer", [refuse, give_back])
def test_other_types_arrive__and_what_was_refused_once_there_is_room(
    answer: Answer, rabbitmq: RabbitMqDestination, runtime: Runtime, outbox: Outbox, clock: ManualClock
) -> None:
    def by_type(conversation: Conversation, tag: int, delivery: Delivery) -> None:
        (answer if delivery.routing_key == FULL else take)(conversation, tag, delivery)

    rabbitmq.broker.answer = by_type
    refused = [outbox.add(type_=FULL) for _ in range(100)]
    others = [outbox.add() for _ in range(50)]
    relay = Relay(runtime, rabbitmq.publisher)

    relay.drain(SHARD)

    assert sorted(rabbitmq.delivered) == others
    assert outbox.pending == refused
    rabbitmq.broker.answer = take
    clock.advance(runtime.timings.outage_to_outlive)
    relay.drain(SHARD)
    assert sorted(rabbitmq.delivered) == sorted([*refused, *others])
