"""The relay delivers to RabbitMQ, a real one, and to Kafka, the one inside its client: by the wire, through outages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from inspect import signature
from pathlib import Path
from threading import Thread
from uuid import uuid4

import pytest
import trustme

from local.account import HOST
from local.kafka import mock_kafka
from local.rabbitmq import RabbitMqServer
from local.waiting import eventually
from mailroom.clock import timestamp
from mailroom.failures import Failure, FailureKind
from mailroom.outbox.event import Envelope, EventIds, shard_of_subject
from mailroom.outbox.relay import Relay
from mailroom.outbox.table import DEAD, OutboxRow, pending, sent
from mailroom.publishers.broker import BrokerPublisher
from mailroom.publishers.publisher import SENT, Destination, Outcome
from mailroom.runtime import Runtime
from tests.contract import test_publishers

from .brokers import EXCHANGE, Broker, InKafka, InRabbitMq, keep_secret

SHARD = 5
RECOVERED_WITHIN = 60
UNAVAILABLE = FailureKind.UNAVAILABLE


@pytest.fixture
def rabbitmq(server: RabbitMqServer) -> Iterator[InRabbitMq]:
    """A queue with nothing in it."""
    broker = InRabbitMq(server)
    yield broker
    broker.remove(queue=True)


@pytest.fixture
def kafka() -> Iterator[InKafka]:
    """A topic with nothing in it."""
    with mock_kafka() as cluster:
        yield InKafka(cluster)


@pytest.fixture(params=["rabbitmq", "kafka"])
def broker(request: pytest.FixtureRequest) -> Broker:
    """Each in turn."""
    chosen: Broker = request.getfixturevalue(request.param)
    return chosen


class Publishing:
    """The destination of a URL, as the relay uses it, and what came of it."""

    def __init__(self, runtime: Runtime, url: str) -> None:
        # The durations of a laptop, whose pauses are short.
        settings = runtime.settings.model_copy(update={"publisher_url": url, "stage": "local"})
        self.runtime = Runtime(settings, clock=runtime.clock, random=runtime.random)
        publisher = self.runtime.use(Destination).publisher
        assert isinstance(publisher, BrokerPublisher)
        self.publisher = publisher
        self.relay = Relay(self.runtime, publisher)

    def publish(self, events: Sequence[Envelope]) -> list[Outcome]:
        """Publish past the relay."""
        return self.publisher.publish(events)

    def drain(self) -> bool:
        """Let the relay work; answer whether nothing waits any more."""
        self.relay.drain(SHARD)
        return not self.relay.has_mail(SHARD)


@pytest.fixture
def publishing(runtime: Runtime, request: pytest.FixtureRequest) -> Iterator[Publishing]:
    """The relay, to the broker that the test asks for."""
    name = next(name for name in ("broker", "rabbitmq") if name in request.fixturenames)
    made = Publishing(runtime, request.getfixturevalue(name).url)
    yield made
    made.publisher.close()


def fill(runtime: Runtime, *, subjects: int, each: int, type_: str = "thing.happened") -> list[Envelope]:
    """Commit events, each subject's one after the other."""
    names = [name for n in range(subjects * 30) if shard_of_subject(name := f"things/{n}") == SHARD][:subjects]
    ids, latest, events = EventIds(runtime.clock, runtime.random), dict[str, str](), list[Envelope]()
    for _ in range(each):
        for name in names:
            event_id, moment = ids.next(name, latest.get(name))
            after, latest[name] = latest.get(name), event_id
            events.append(
                Envelope(event_id, type_, "test.service", name, timestamp(moment), f'"{"x" * 300}"', after=after)
            )
    with OutboxRow.batch_write() as batch:
        for event in events:
            batch.save(OutboxRow.pending(event))
    return events


def first_arrivals(events: Sequence[Envelope]) -> dict[str, list[str]]:
    """Answer the ids of each subject's events as they arrived, repetitions left out."""
    arrived: dict[str, list[str]] = {}
    for event in events:
        ids = arrived.setdefault(str(event.subject), [])
        if event.id not in ids:
            ids.append(event.id)
    return arrived


def test_every_event_arrives_once__each_subjects_in_order(broker: Broker, publishing: Publishing) -> None:
    events = fill(publishing.runtime, subjects=60, each=3)

    assert publishing.drain()

    arrived = broker.arrived()
    assert len(arrived) == len(events)
    assert first_arrivals(arrived) == first_arrivals(events)
    assert [row.event_id for row in OutboxRow.query(sent(SHARD))] == sorted(event.id for event in events)


def test_nothing_is_lost__when_the_broker_dies_in_the_middle_and_comes_back(
    broker: Broker, publishing: Publishing, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = fill(publishing.runtime, subjects=150, each=4)
    batches: list[list[Outcome]] = []
    publish = publishing.publisher.publish
    death = Thread(target=broker.die)

    def dying(batch: Sequence[Envelope]) -> list[Outcome]:
        if len(batches) == 2:
            death.start()
        batches.append(publish(batch))
        return batches[-1]

    monkeypatch.setattr(publishing.publisher, "publish", dying)
    while death.ident is None or all(outcome is SENT for outcome in batches[-1]):
        assert not publishing.drain(), "the broker died too late"
    death.join()
    broker.come_back()
    eventually(publishing.drain, within=RECOVERED_WITHIN, every=0.2)

    assert first_arrivals(broker.arrived()) == first_arrivals(events)
    assert list(OutboxRow.query(DEAD)) == []
    assert not any(row.retry_count for row in OutboxRow.query(sent(SHARD))), "the outage cost somebody an attempt"


def test_an_exchange_that_is_declared_again_gets_what_waited(rabbitmq: InRabbitMq, publishing: Publishing) -> None:
    events = fill(publishing.runtime, subjects=5, each=2)
    rabbitmq.remove()

    assert not publishing.drain()
    assert len(list(OutboxRow.query(pending(SHARD)))) == len(events)
    rabbitmq.declare()
    eventually(publishing.drain, within=RECOVERED_WITHIN, every=0.2)

    assert first_arrivals(rabbitmq.arrived()) == first_arrivals(events)


def test_an_event_that_no_queue_takes_holds_back_its_subject_alone__and_arrives_when_one_does(
    rabbitmq: InRabbitMq, publishing: Publishing
) -> None:
    rabbitmq.remove(queue=True)
    rabbitmq.declare("thing.*")
    (lonely,) = fill(publishing.runtime, subjects=1, each=1, type_="unheard.of")
    next_of_its_subject, *events = fill(publishing.runtime, subjects=20, each=1)

    publishing.drain()

    waiting = [lonely.id, next_of_its_subject.id]
    assert [row.event_id for row in OutboxRow.query(pending(SHARD))] == waiting
    assert first_arrivals(rabbitmq.arrived()) == first_arrivals(events)
    rabbitmq.declare("unheard.*")
    eventually(publishing.drain, within=RECOVERED_WITHIN, every=0.2)
    assert [event.id for event in rabbitmq.arrived()][-2:] == waiting


def test_a_full_queue_holds_back_what_goes_there__and_gets_it_once_there_is_room(
    rabbitmq: InRabbitMq, publishing: Publishing
) -> None:
    """What it refuses lies in the other queue all the same, once for each attempt."""
    with rabbitmq.full("refused.*") as empty:
        (refused,) = fill(publishing.runtime, subjects=1, each=1, type_="refused.thing")
        next_of_its_subject, *events = fill(publishing.runtime, subjects=20, each=1)

        publishing.drain()

        waiting = [refused.id, next_of_its_subject.id]
        rows = list(OutboxRow.query(pending(SHARD)))
        assert [(row.event_id, row.retry_count) for row in rows] == list(zip(waiting, (1, None), strict=True))
        assert first_arrivals(rabbitmq.arrived()) == first_arrivals([refused, *events])
        empty()
        eventually(publishing.drain, within=RECOVERED_WITHIN, every=0.2)
    assert [event.id for event in rabbitmq.arrived()][-2:] == waiting


class InRabbitMqAlone:
    """A destination as the contract of publishers knows it."""

    deduplicates = False

    def __init__(self, broker: InRabbitMq, publisher: BrokerPublisher) -> None:
        self.publisher = publisher
        self._broker = broker

    @property
    def delivered(self) -> Sequence[str]:
        return [event.id for event in self._broker.arrived()]


FACTS = [
    fact
    for name, fact in vars(test_publishers).items()
    if name.startswith("test_") and [*signature(fact).parameters] == ["destination"]
]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.__name__)
def test_what_holds_for_every_destination_holds_for_a_real_broker(
    fact: Callable[[InRabbitMqAlone], None], rabbitmq: InRabbitMq, publishing: Publishing
) -> None:
    fact(InRabbitMqAlone(rabbitmq, publishing.publisher))


def an_event() -> Envelope:
    return Envelope("01JDW3NDEKTSV4RRFFQ69G5FAV-05", "thing.happened", "test", None, "2030-01-01T00:00:00.000Z", "{}")


def failure_at(runtime: Runtime, url: str) -> Failure:
    publishing = Publishing(runtime, url)
    (outcome,) = publishing.publish([an_event()])
    publishing.publisher.close()
    assert isinstance(outcome, Failure)
    assert outcome.kind is UNAVAILABLE
    return outcome


def test_a_login_that_is_refused_says_what_to_do__and_heals_when_the_secret_does(
    server: RabbitMqServer, rabbitmq: InRabbitMq, runtime: Runtime
) -> None:
    name = f"broker-{uuid4().hex[:8]}"
    keep_secret(name, username="guest", password="wrong")
    publishing = Publishing(runtime, f"{rabbitmq.url}&secret={name}")

    (outcome,) = publishing.publish([an_event()])
    keep_secret(name, username="guest", password="guest")

    assert isinstance(outcome, Failure)
    assert (outcome.kind, "ACCESS_REFUSED" in outcome.message) == (UNAVAILABLE, True)
    assert "see that the user and the password of the URL's secret are right" in outcome.message
    assert publishing.publish([an_event()]) == [SENT]
    publishing.publisher.close()


def test_a_virtual_host_that_is_missing_says_what_to_do(server: RabbitMqServer, runtime: Runtime) -> None:
    failure = failure_at(runtime, f"amqp://{HOST}:{server.port}/nowhere?exchange={EXCHANGE}")

    assert failure.message.endswith("create it, and let the user in")


def test_a_broker_that_stands_still_is_given_up_within_the_time_limit(
    server: RabbitMqServer, rabbitmq: InRabbitMq, publishing: Publishing
) -> None:
    assert publishing.publish([an_event()]) == [SENT]
    server.pause()
    began = publishing.runtime.clock.monotonic()

    (outcome,) = publishing.publish([an_event()])
    took = publishing.runtime.clock.monotonic() - began
    server.go_on()

    assert isinstance(outcome, Failure)
    assert outcome.kind is UNAVAILABLE
    assert took < publishing.runtime.timings.longest_call
    assert publishing.publish([an_event()]) == [SENT]


def test_an_encrypted_connection_trusts_the_authority_of_the_secret_alone(
    server: RabbitMqServer, rabbitmq: InRabbitMq, authority: trustme.CA, runtime: Runtime
) -> None:
    name = f"broker-{uuid4().hex[:8]}"
    url = f"amqps://{HOST}:{server.tls_port}/?exchange={EXCHANGE}"
    keep_secret(name, username="guest", password="guest", ca=authority.cert_pem.bytes().decode())
    trusting = Publishing(runtime, f"{url}&secret={name}")

    assert trusting.publish([an_event()]) == [SENT]
    assert "certificate verify failed" in failure_at(runtime, url).message
    trusting.publisher.close()


def test_nothing_is_left_running__when_a_broker_is_stopped(
    server: RabbitMqServer, certificate: Path, tmp_path: Path
) -> None:
    with RabbitMqServer(tmp_path / "rabbitmq", certificate=certificate):
        assert len(processes_below(tmp_path)) > 1

    eventually(lambda: not processes_below(tmp_path), within=10)


def processes_below(folder: Path) -> list[str]:
    """Answer the processes whose home is below a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes()
        except OSError:
            continue
        if f"HOME={folder}".encode() in environment:
            found.append(process.name)
    return found
