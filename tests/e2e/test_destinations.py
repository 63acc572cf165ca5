"""One relay, every destination: nothing is lost, the order is kept where it can be, and an outage burns no attempts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from random import Random
from typing import Any
from uuid import uuid4

import pytest

from local.kafka import mock_kafka
from local.rabbitmq import RabbitMqServer
from mailroom.clock import timestamp
from mailroom.outbox.event import SHARDS, Envelope, EventIds
from mailroom.outbox.relay import Relay
from mailroom.outbox.table import OutboxRow, pending, sent
from mailroom.publishers.broker import BrokerPublisher
from mailroom.publishers.publisher import Destination
from mailroom.runtime import Runtime
from mailroom.testing import ManualClock

from .brokers import InKafka, InRabbitMq
from .outlets import OUTLETS, InBroker, Outlet

EVENTS, SUBJECTS = 200, 40
LONGER_THAN_A_PAUSE = 100


@pytest.fixture
def rabbitmq_outlet(server: RabbitMqServer) -> Iterator[Outlet]:
    """An exchange that is not there yet."""
    broker = InRabbitMq(server)
    broker.remove(queue=True)
    yield InBroker(broker, broker.declare)
    broker.remove(queue=True)


@pytest.fixture
def kafka_outlet() -> Iterator[Outlet]:
    """A topic that lets nobody in yet."""
    with mock_kafka() as cluster:
        broker = InKafka(cluster)
        broker.forbid()
        yield InBroker(broker, broker.permit)


BROKERS = {"rabbitmq": "rabbitmq_outlet", "kafka": "kafka_outlet"}


@pytest.fixture(params=[*OUTLETS, *BROKERS])
def outlet(request: pytest.FixtureRequest, runtime: Runtime) -> Iterator[Outlet]:
    """Each destination in turn; it is not there yet."""
    if request.param in BROKERS:
        yield request.getfixturevalue(BROKERS[request.param])
        return
    with OUTLETS[request.param](f"things-{uuid4().hex[:8]}") as made:
        yield made


@pytest.fixture
def relaying(runtime: Runtime, outlet: Outlet) -> Iterator[Runtime]:
    """A process that relays to it, in which time passes when it is told to."""
    settings = runtime.settings.model_copy(update={"publisher_url": outlet.url})
    process = Runtime(settings, clock=ManualClock(datetime.now(UTC)), random=Random(1))  # noqa: S311 - repeatable
    yield process
    publisher = process.use(Destination).publisher
    if isinstance(publisher, BrokerPublisher):
        publisher.close()


def fill(runtime: Runtime) -> dict[str, list[str]]:
    """Add events to the outbox, in turn about each subject; answer their ids by subject, in order."""
    ids, written = EventIds(runtime.clock, runtime.random), dict[str, list[str]]()
    with OutboxRow.batch_write() as batch:
        for number in range(EVENTS):
            subject = f"things/{number % SUBJECTS}"
            earlier = written.setdefault(subject, [])
            after = earlier[-1] if earlier else None
            event_id, moment = ids.next(subject, after)
            payload = f'{{"number":{number},"name":"café 😀"}}'
            event = Envelope(
                event_id, "thing.happened", "test.service", subject, timestamp(moment), payload, after=after
            )
            batch.save(OutboxRow.pending(event))
            earlier.append(event_id)
    return written


def drain(runtime: Runtime) -> int:
    """Let the relay take every shard once; answer how many events it has sent."""
    return sum(runtime.use(Relay).drain(shard).sent for shard in range(SHARDS))


def waiting() -> list[OutboxRow]:
    return [row for shard in range(SHARDS) for row in OutboxRow.query(pending(shard))]


def test_every_event_goes_through_the_destination__in_order_where_it_keeps_it__after_an_outage_that_burns_nothing(
    relaying: Runtime, outlet: Outlet, eventually: Callable[..., Any]
) -> None:
    by_subject = fill(relaying)
    wanted = {each for ids in by_subject.values() for each in ids}

    # It is not there.
    assert drain(relaying) == 0
    assert len(rows := waiting()) == EVENTS
    assert {(row.retry_count, row.next_attempt_at, row.failure) for row in rows} == {(None, None, None)}

    # It is there.
    outlet.open()
    relaying.clock.sleep(LONGER_THAN_A_PAUSE)
    assert drain(relaying) == EVENTS
    assert waiting() == []
    assert {row.event_id for shard in range(SHARDS) for row in OutboxRow.query(sent(shard))} == wanted

    # It has arrived.
    arrived: list[Envelope] = []

    def all_there() -> bool:
        arrived.extend(outlet.read())
        return {event.id for event in arrived} >= wanted

    eventually(all_there, within=30)
    assert {event.id for event in arrived} == wanted
    assert {event.payload for event in arrived} == {f'{{"number":{n},"name":"café 😀"}}' for n in range(EVENTS)}
    if relaying.use(Destination).publisher.keeps_order:
        order = list(dict.fromkeys(event.id for event in arrived))
        for ids in by_subject.values():
            assert [event_id for event_id in order if event_id in ids] == ids
