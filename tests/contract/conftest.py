"""Destinations that keep the publishers' contract: the fake of the tests, and the real ones against a double of AWS."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Protocol, Self

import pytest

from local.kafka import MockKafka, mock_kafka
from mailroom import clients
from mailroom.failures import failure_of_code
from mailroom.outbox.event import Envelope
from mailroom.publishers.entries import advised, by_itself
from mailroom.publishers.eventbridge import EventBridgePublisher
from mailroom.publishers.publisher import SENT, Outcome, Publisher
from mailroom.testing import FakePublisher, ManualClock
from tests.moto_account import BUS, MotoAccount
from tests.moto_server import moto_server

from .brokers import KafkaDestination, RabbitMqDestination
from .fake_rabbitmq import fake_rabbitmq
from .messages import KEYS, REGION, Messages, answering, sns_destination, sqs_destination, ymq_destination

CHECK_PERIOD = 60.0
REFUSED_AFTER = 900.0


@pytest.fixture(autouse=True)
def aws(moto_account: MotoAccount) -> Iterator[None]:
    """AWS with an event bus in it, and nothing else."""
    yield
    moto_account.empty()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def envelopes(count: int, **changes: Any) -> list[Envelope]:
    """Make envelopes with ids that tell their position."""
    attributes: dict[str, Any] = {
        "type": "thing.happened",
        "source": "test.service",
        "subject": "things/1",
        "time": "2030-01-01T00:00:00.000Z",
        "payload": "{}",
    }
    return [Envelope(**{"id": f"01JDW3NDEKTSV4RRFFQ69G5F{n:02d}-03", **attributes, **changes}) for n in range(count)]


class Destination(Protocol):
    """A publisher, and what its other side can be asked."""

    publisher: Publisher

    @property
    def deduplicates(self) -> bool:
        """Whether what arrives a second time, soon after the first, vanishes."""

    @property
    def delivered(self) -> Sequence[str]:
        """The ids of what the other side has taken, in order."""


class AwsDestination(Destination, Protocol):
    """One that tells of each entry by a code of AWS's."""

    def refuse(self, codes: Mapping[str, str]) -> None:
        """Answer these events, by id, with an error code of their own; take the others."""


class FakeDestination:
    """The destination that other tests use."""

    deduplicates = False

    def __init__(self) -> None:
        self.publisher = FakePublisher()

    def refuse(self, codes: Mapping[str, str]) -> None:
        def answer(event: Envelope) -> Outcome:
            if event.id not in codes:
                return SENT
            refusal = by_itself(failure_of_code(codes[event.id], "told so"))
            return advised(refusal, "the fake", remedy="none", refused_after=REFUSED_AFTER)

        self.publisher.answer = answer

    @property
    def delivered(self) -> Sequence[str]:
        return self.publisher.ids


Entry = Mapping[str, Any]
Answer = dict[str, Any]


class EventBridgeDestination:
    """A bus that answers as it is told: what the client serialized is what it sees."""

    deduplicates = False

    def __init__(self, clock: ManualClock) -> None:
        self.publisher = EventBridgePublisher(BUS, clock=clock, check_period=CHECK_PERIOD, refused_after=REFUSED_AFTER)
        self.calls: list[list[str]] = []
        """The ids in each PutEvents."""
        self.checks = 0
        self.delivered: list[str] = []
        self.answer: Callable[[list[Entry]], Answer | Exception] = lambda entries: {
            "Entries": [{"EventId": "e"} for _ in entries]
        }
        self.description: Answer | None = None
        """What the bus says of itself, if not whether it is there."""

    @contextmanager
    def connected(self) -> Iterator[Self]:
        """Answer the process's client in the place of AWS."""
        hooks = clients.events().meta.events
        handlers = {
            "before-call.events.PutEvents": self._put_events,
            "before-call.events.DescribeEventBus": self._describe_event_bus,
        }
        for name, handler in handlers.items():
            hooks.register(name, handler)
        try:
            yield self
        finally:
            for name, handler in handlers.items():
                hooks.unregister(name, handler)

    def refuse(self, codes: Mapping[str, str]) -> None:
        def of(entry: Entry) -> dict[str, str]:
            code = codes.get(id_of(entry))
            return {"EventId": "e"} if code is None else {"ErrorCode": code, "ErrorMessage": "told so"}

        self.answer = lambda entries: {"FailedEntryCount": len(codes), "Entries": [of(entry) for entry in entries]}

    def _put_events(self, params: dict[str, Any], **_: Any) -> tuple[Any, dict[str, Any]]:
        entries = json.loads(params["body"])["Entries"]
        ids = [id_of(entry) for entry in entries]
        self.calls.append(ids)
        answer = self.answer(entries)
        if isinstance(answer, Exception):
            raise answer
        for event_id, entry in zip(ids, answer.get("Entries", ()), strict=False):
            if "ErrorCode" not in entry:
                self.delivered.append(event_id)
        return _response(answer)

    def _describe_event_bus(self, **_: Any) -> tuple[Any, Answer] | None:
        self.checks += 1
        return None if self.description is None else _response(self.description)


def _response(answer: Answer) -> tuple[Any, Answer]:
    return SimpleNamespace(status_code=400 if "Error" in answer else 200), answer


def id_of(entry: Entry) -> str:
    """Answer the id of the CloudEvent in an entry."""
    event_id: str = json.loads(entry["Detail"])["id"]
    return event_id


def all_taken(entries: Sequence[Entry]) -> Answer:
    """Make the answer of a call that went well for every entry."""
    return {"FailedEntryCount": 0, "Entries": [{"EventId": "e"} for _ in entries]}


def refused_whole(code: str) -> dict[str, Any]:
    """Make the answer of a call that is refused as a whole."""
    return {"Error": {"Code": code, "Message": "told so"}, "ResponseMetadata": {"HTTPStatusCode": 400}}


@pytest.fixture
def bus(clock: ManualClock) -> Iterator[EventBridgeDestination]:
    with EventBridgeDestination(clock).connected() as connected:
        yield connected


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """Moto by HTTP: host and port."""
    with moto_server() as place:
        yield place


@contextmanager
def _to_messages(name: str, request: pytest.FixtureRequest) -> Iterator[Messages]:
    scheme, _, kind = name.partition("-")
    queue = f"things.{kind}" if kind else "things"
    if scheme == "ymq":
        made = ymq_destination(queue, request.getfixturevalue("server"))
        client = clients.sqs_elsewhere(f"http://{request.getfixturevalue('server')}", region=REGION, **KEYS)
    else:
        made = (sns_destination if scheme == "sns" else sqs_destination)(queue)
        client = getattr(clients, scheme)(REGION)
    with answering(made, client) as messages:
        yield messages


@pytest.fixture(params=["sqs", "sqs-fifo", "sns", "sns-fifo", "ymq", "ymq-fifo"])
def messages(request: pytest.FixtureRequest) -> Iterator[Messages]:
    """Each destination that takes batches of messages, in turn."""
    with _to_messages(request.param, request) as made:
        yield made


@pytest.fixture
def rabbitmq() -> Iterator[RabbitMqDestination]:
    """An exchange of a broker that does as it is told."""
    with fake_rabbitmq() as broker:
        destination = RabbitMqDestination(broker)
        yield destination
        destination.publisher.close()


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[MockKafka]:
    """A Kafka for all."""
    with mock_kafka() as kafka:
        yield kafka


@pytest.fixture(scope="session")
def shared_topic(kafka_cluster: MockKafka) -> Iterator[KafkaDestination]:
    """A topic of one partition."""
    destination = KafkaDestination(kafka_cluster)
    yield destination
    destination.publisher.close()


@pytest.fixture
def kafka(shared_topic: KafkaDestination) -> KafkaDestination:
    """A topic that is as good as new."""
    shared_topic.forget()
    return shared_topic


@contextmanager
def _to(name: str, request: pytest.FixtureRequest) -> Iterator[Any]:
    if name == "fake":
        yield FakeDestination()
    elif name in ("bus", "kafka", "rabbitmq"):
        yield request.getfixturevalue(name)
    else:
        with _to_messages(name, request) as made:
            yield made


AWS = ["fake", "bus", "sqs", "sqs-fifo", "sns", "sns-fifo", "ymq", "ymq-fifo"]


@pytest.fixture(params=[*AWS, "kafka", "rabbitmq"])
def destination(request: pytest.FixtureRequest) -> Iterator[Destination]:
    """Each destination in turn."""
    with _to(request.param, request) as made:
        yield made


@pytest.fixture(params=AWS)
def aws_destination(request: pytest.FixtureRequest) -> Iterator[AwsDestination]:
    """Each that answers by AWS's codes, in turn."""
    with _to(request.param, request) as made:
        yield made
