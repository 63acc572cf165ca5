"""What is Kafka's own: keys and partitions, errors of records and of clusters, and producers that end for good."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError

from local.kafka import INIT_PRODUCER_ID, PRODUCE, MockKafka
from mailroom import clients
from mailroom.failures import Failure, FailureKind
from mailroom.outbox.event import Envelope
from mailroom.publishers.kafka import Kafka, KafkaPublisher
from mailroom.publishers.place import Place, PublisherUrlError
from mailroom.publishers.publisher import SENT, NotTaken, Outcome, kind_of
from mailroom.testing import ManualClock

from .brokers import KafkaDestination, to_kafka, to_kafka_at
from .conftest import envelopes

if TYPE_CHECKING:
    from mailroom.publishers.publisher import Publisher

SOON = 1.5
PERMANENT, TRANSIENT, UNAVAILABLE = FailureKind.PERMANENT, FailureKind.TRANSIENT, FailureKind.UNAVAILABLE
PARTITIONS = 3


def kinds(outcomes: list[Outcome]) -> list[FailureKind | None]:
    return [outcome.kind if isinstance(outcome, Failure) else None for outcome in outcomes]


def only(outcomes: list[Outcome]) -> Failure:
    (outcome,) = outcomes
    assert isinstance(outcome, Failure)
    return outcome


def settle(publisher: Publisher) -> None:
    """Let the producer connect, so that what comes next is about what comes next."""
    assert publisher.publish(envelopes(1, id="settle")) == [SENT]


@pytest.fixture
def spread(kafka_cluster: MockKafka) -> Iterator[KafkaDestination]:
    """A topic of several partitions."""
    destination = KafkaDestination(kafka_cluster, partitions=PARTITIONS)
    yield destination
    destination.publisher.close()


@pytest.fixture
def cluster() -> Iterator[MockKafka]:
    """A cluster of its own, to be brought down."""
    kafka = MockKafka()
    yield kafka
    kafka.close()


@pytest.fixture
def impatient(cluster: MockKafka) -> Iterator[KafkaPublisher]:
    """A publisher to it that does not wait for long."""
    publisher = to_kafka(cluster, cluster.topic(), timeout=SOON)
    yield publisher
    publisher.close()


# Records


def test_a_record_is_the_cloudevent__under_its_subject(kafka: KafkaDestination) -> None:
    (event,) = envelopes(1, payload='{"name":"café 😀"}')

    kafka.publisher.publish([event])

    (record,) = kafka.records
    assert Envelope.from_json(record.value) == event
    assert record.key == event.subject
    assert record.headers == {"content-type": "application/cloudevents+json; charset=UTF-8"}


def test_an_event_without_a_subject_has_no_key(kafka: KafkaDestination) -> None:
    kafka.publisher.publish(envelopes(1, subject=None))

    assert [record.key for record in kafka.records] == [None]


def test_a_subjects_events_are_in_one_partition__in_order(spread: KafkaDestination) -> None:
    events = [envelopes(1, id=f"{number:02d}", subject=f"things/{number % 7}")[0] for number in range(28)]

    for start in range(0, 28, 7):  # as waves are: no two of a subject
        assert spread.publisher.publish(events[start : start + 7]) == [SENT] * 7

    records = spread.records
    for subject in {event.subject for event in events}:
        of_subject = [record for record in records if record.key == subject]
        assert len({record.partition for record in of_subject}) == 1
        ids = [Envelope.from_json(record.value).id for record in of_subject]
        assert ids == [event.id for event in events if event.subject == subject]
    assert len({record.partition for record in records}) > 1


def test_a_key_is_where_kafkas_own_clients_would_put_it(spread: KafkaDestination) -> None:
    """Murmur2 of the key, as `org.apache.kafka.common.utils.Utils`, without its sign, by the number of partitions."""
    spread.publisher.publish(
        [envelopes(1, id=key, subject=key)[0] for key in ("21", "foobar", "a-little-bit-long-string")]
    )

    hashes = {"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536}
    partitions = {record.key: record.partition for record in spread.records}
    assert partitions == {key: (value & 0x7FFFFFFF) % PARTITIONS for key, value in hashes.items()}


# Errors of records


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, PERMANENT),
        (KafkaError.INVALID_RECORD, PERMANENT),
        (KafkaError.RECORD_LIST_TOO_LARGE, PERMANENT),
        (KafkaError.UNKNOWN, TRANSIENT),
        (KafkaError.POLICY_VIOLATION, TRANSIENT),
    ],
)
def test_a_record_that_is_refused_alone_is_judged_by_its_error(
    error: int, kind: FailureKind, kafka: KafkaDestination
) -> None:
    kafka.kafka.answer(PRODUCE, error)

    failure = only(kafka.publisher.publish(envelopes(1)))

    assert failure.kind is kind
    assert kafka.publisher.publish(envelopes(1)) == [SENT]


def test_records_that_are_refused_together_are_tried_apart__so_that_nobody_dies_of_anothers_fault(
    kafka: KafkaDestination,
) -> None:
    kafka.kafka.answer(PRODUCE, KafkaError.MSG_SIZE_TOO_LARGE)
    events = envelopes(6)

    assert kafka.publisher.publish(events) == [SENT] * 6
    assert kafka.delivered == [event.id for event in events]


def test_only_an_event_that_is_too_large_for_any_broker_fails(kafka: KafkaDestination) -> None:
    events = envelopes(3)
    (large,) = envelopes(1, id="large", payload=f'"{"x" * 1_100_000}"')

    outcomes = kafka.publisher.publish([events[0], large, events[1]])

    assert kinds(outcomes) == [None, PERMANENT, None]
    assert kafka.delivered == [event.id for event in events[:2]]


# Errors of the topic, the cluster and us


@pytest.mark.parametrize(
    "error",
    [
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.TOPIC_EXCEPTION,
    ],
)
def test_an_error_of_the_cluster_is_nobodys_fault__and_heals(error: int, kafka: KafkaDestination) -> None:
    kafka.kafka.answer(PRODUCE, error)

    assert kinds(kafka.publisher.publish(envelopes(2))) == [UNAVAILABLE] * 2
    assert kafka.publisher.publish(envelopes(2)) == [SENT] * 2


@pytest.mark.parametrize("error", [KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_LEADER_FOR_PARTITION])
def test_what_passes_soon_is_waited_for(error: int, kafka: KafkaDestination) -> None:
    kafka.kafka.answer(PRODUCE, error)

    assert kafka.publisher.publish(envelopes(2)) == [SENT] * 2


class PartlyTaken:
    """A producer that delivers the first record, and not the second: its partition has no leader."""

    def __init__(self, _: Any) -> None:
        self._reports: list[Any] = []

    def produce(self, *_: Any, on_delivery: Any, **__: Any) -> None:
        self._reports.append(on_delivery)

    def flush(self, _: float) -> None:
        for report, error in zip(self._reports, [None, KafkaError(KafkaError._MSG_TIMED_OUT)], strict=True):
            report(error, None)

    def purge(self) -> None: ...


def test_a_record_whose_partition_takes_nothing_waits_by_itself__since_others_were_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mailroom.publishers.kafka_link.Producer", PartlyTaken)
    publisher = to_kafka_at("kafka://127.0.0.1:1/events", timeout=SOON)

    first, second = publisher.publish(envelopes(2))

    assert first is SENT
    assert isinstance(second, NotTaken)
    assert second.retry_after == SOON, "its client has tried for so long"


def test_a_producer_that_ended_for_good_is_made_anew(kafka: KafkaDestination) -> None:
    """Without the right to write idempotently the client says at once that it is of no more use."""
    kafka.publisher.close()
    kafka.kafka.answer(INIT_PRODUCER_ID, KafkaError.CLUSTER_AUTHORIZATION_FAILED)

    failure = only(kafka.publisher.publish(envelopes(1)))

    assert failure.kind is UNAVAILABLE
    assert failure.message.endswith("let the user of the URL's secret write idempotently to the cluster")
    assert kafka.publisher.publish(envelopes(1)) == [SENT]


def test_a_missing_topic_is_nobodys_fault__and_heals_when_it_is_made(kafka: KafkaDestination) -> None:
    kafka.publisher.close()
    kafka.kafka.refuse_topic(kafka.topic, KafkaError.UNKNOWN_TOPIC_OR_PART)

    for _ in range(2):
        failure = only(kafka.publisher.publish(envelopes(1)))
        assert failure.kind is UNAVAILABLE
        assert failure.message.endswith("; make the topic")

    kafka.kafka.refuse_topic(kafka.topic, KafkaError.NO_ERROR)
    assert kafka.publisher.publish(envelopes(1)) == [SENT]


def test_a_cluster_that_is_down_is_nobodys_fault__says_why__and_heals(
    cluster: MockKafka, impatient: KafkaPublisher
) -> None:
    settle(impatient)
    cluster.go_down()

    failures = impatient.publish(envelopes(2))
    cluster.come_back()

    assert kinds(failures) == [UNAVAILABLE] * 2
    assert isinstance(failures[0], Failure)
    assert "Connection refused" in failures[0].message
    assert [impatient.publish(envelopes(2)) for _ in range(2)][-1] == [SENT] * 2


def test_a_cluster_that_does_not_answer_is_given_up(cluster: MockKafka, impatient: KafkaPublisher) -> None:
    settle(impatient)
    cluster.answer_late(20_000)

    assert kinds(impatient.publish(envelopes(1))) == [UNAVAILABLE]


def test_events_that_a_full_queue_does_not_hold_wait_for_room(kafka_cluster: MockKafka) -> None:
    publisher = to_kafka(kafka_cluster, kafka_cluster.topic(), settings={"queue.buffering.max.messages": 5})

    assert publisher.publish(envelopes(60)) == [SENT] * 60
    publisher.close()


def test_a_queue_that_stays_full_is_nobodys_fault(cluster: MockKafka) -> None:
    publisher = to_kafka(cluster, cluster.topic(), timeout=SOON, settings={"queue.buffering.max.messages": 5})
    settle(publisher)
    cluster.go_down()

    assert kinds(publisher.publish(envelopes(20))) == [UNAVAILABLE] * 20
    publisher.close()


# Its URL and its secret


@pytest.mark.parametrize(
    "url",
    [
        "kafka://broker.example:9092",
        "kafka://broker.example:9092/",
        "kafka://broker.example/no topic",
        "kafka://broker.example/" + "t" * 250,
        "kafka://user:password@broker.example/events",
        "kafka://broker.example,/events",
        "kafka://broker.example/events?acks=0",
    ],
)
def test_a_url_without_a_topic__or_with_what_it_does_not_know__is_refused(url: str) -> None:
    with pytest.raises(PublisherUrlError):
        kind_of(url)


def test_a_url_names_many_brokers__each_with_its_port() -> None:
    place = Kafka.at(Place.of("kafka://one.example,two.example:9094/events.v1"))

    assert (place.brokers, place.topic) == ("one.example:9092,two.example:9094", "events.v1")


def with_secret(**content: str) -> KafkaPublisher:
    clients.secretsmanager().create_secret(Name="kafka", SecretString=json.dumps(content))
    return to_kafka_at("kafka://127.0.0.1:1/events?secret=kafka", timeout=SOON, clock=ManualClock())


def test_a_secret_logs_in__over_an_encrypted_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []

    def make(settings: dict[str, Any]) -> Any:
        made.append(settings)
        raise ConnectionError

    monkeypatch.setattr("mailroom.publishers.kafka_link.Producer", make)
    publisher = with_secret(username="relay", password="its password", mechanism="SCRAM-SHA-512", ca="-----BEGIN")

    assert kinds(publisher.publish(envelopes(1))) == [UNAVAILABLE]
    assert (
        made[0].items()
        >= {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "relay",
            "sasl.password": "its password",
            "ssl.ca.pem": "-----BEGIN",
            "acks": "all",
            "enable.idempotence": True,
        }.items()
    )


def test_a_secret_that_lacks_something_is_nobodys_fault__and_is_not_told() -> None:
    failure = only(with_secret(username="relay", password="its password").publish(envelopes(1)))

    assert failure.kind is UNAVAILABLE
    assert "mechanism" in failure.message
    assert "its password" not in failure.message


def test_publishing_needs_its_secret_and_nothing_else() -> None:
    kind, place = kind_of("kafka://broker.example/events?secret=kafka")

    assert [need.actions for need in kind.needs_at(place)] == [("secretsmanager:GetSecretValue",)]
    kind, place = kind_of("kafka://broker.example/events")
    assert kind.needs_at(place) == ()
