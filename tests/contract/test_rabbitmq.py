"""What is RabbitMQ's own: returns, nacks, channels and connections that close at any point, and what arrives."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from pika import spec

from mailroom.failures import Failure, FailureKind
from mailroom.outbox.event import Envelope
from mailroom.publishers.place import Place, PublisherUrlError
from mailroom.publishers.publisher import SENT, Outcome, kind_of
from mailroom.publishers.rabbitmq import RabbitMq, RabbitMqPublisher
from mailroom.publishers.rabbitmq_link import RabbitMqLink
from mailroom.testing import ManualClock

from .brokers import EXCHANGE, IDLE, UNROUTABLE_AFTER, to_rabbitmq
from .conftest import envelopes
from .fake_rabbitmq import (
    HOST,
    Answer,
    Conversation,
    Delivery,
    block,
    close_channel,
    close_connection,
    give_back,
    hang_up,
    hang_up_after_taking,
    refuse,
    take,
    take_silently,
)

if TYPE_CHECKING:
    from .brokers import RabbitMqDestination

SOON = 0.3
PERMANENT, TRANSIENT, UNAVAILABLE = FailureKind.PERMANENT, FailureKind.TRANSIENT, FailureKind.UNAVAILABLE
NO_EXCHANGE = close_channel(404, "NOT_FOUND - no exchange 'events' in vhost '/'")
TOO_LARGE = close_channel(406, "PRECONDITION_FAILED - message size 200 is larger than configured max size 100")


def kinds(outcomes: list[Outcome]) -> list[FailureKind | None]:
    return [outcome.kind if isinstance(outcome, Failure) else None for outcome in outcomes]


def only(outcomes: list[Outcome]) -> Failure:
    (outcome,) = outcomes
    assert isinstance(outcome, Failure)
    return outcome


def answering(answers: dict[str, Answer]) -> Answer:
    """Answer these messages so, by id, and take the others."""
    return lambda talk, tag, delivery: answers.get(delivery.id, take)(talk, tag, delivery)


@pytest.fixture
def impatient(rabbitmq: RabbitMqDestination) -> Iterator[RabbitMqPublisher]:
    """A publisher that does not wait for long."""
    publisher = to_rabbitmq(f"amqp://{HOST}:{rabbitmq.broker.port}/?exchange=events", timeout=SOON)
    yield publisher
    publisher.close()


# Messages


def test_a_message_is_the_cloudevent__persistent_mandatory_and_routed_by_its_type(
    rabbitmq: RabbitMqDestination,
) -> None:
    (event,) = envelopes(1, payload='{"name":"café 😀"}')

    rabbitmq.publisher.publish([event])

    (delivery,) = rabbitmq.broker.delivered
    properties = delivery.properties
    assert Envelope.from_json(delivery.body) == event
    assert (delivery.exchange, delivery.routing_key, delivery.mandatory) == (EXCHANGE, event.type, True)
    assert (properties.content_type, properties.delivery_mode) == ("application/cloudevents+json; charset=UTF-8", 2)
    assert (properties.message_id, properties.type, properties.app_id) == (event.id, event.type, event.source)
    assert properties.headers == {"subject": event.subject}


def test_an_event_without_a_subject_has_no_headers(rabbitmq: RabbitMqDestination) -> None:
    rabbitmq.publisher.publish(envelopes(1, subject=None))

    assert rabbitmq.broker.delivered[0].properties.headers is None


def test_a_batch_is_sent_whole__before_the_first_confirm(rabbitmq: RabbitMqDestination) -> None:
    def confirm_the_last(conversation: Conversation, tag: int, delivery: Delivery) -> None:
        conversation.keep(delivery)
        if tag == 100:
            conversation.say(spec.Basic.Ack(tag, multiple=True))

    rabbitmq.broker.answer = confirm_the_last
    events = envelopes(100)

    assert rabbitmq.publisher.publish(events) == [SENT] * 100
    assert rabbitmq.delivered == [event.id for event in events]


def test_confirms_in_any_order_and_in_bulk_are_each_events_own(rabbitmq: RabbitMqDestination) -> None:
    def confirm(conversation: Conversation, tag: int, delivery: Delivery) -> None:
        if tag == 5:
            conversation.say(spec.Basic.Ack(4))
            conversation.say(spec.Basic.Nack(2, multiple=True))
            conversation.say(spec.Basic.Nack(5))
            conversation.say(spec.Basic.Ack(5, multiple=True))

    rabbitmq.broker.answer = confirm

    assert kinds(rabbitmq.publisher.publish(envelopes(5))) == [TRANSIENT, TRANSIENT, None, None, TRANSIENT]


@pytest.mark.parametrize("type_", ["x" * 256, "é" * 128])
def test_a_type_that_no_routing_key_holds_is_never_sent__and_the_others_are(
    type_: str, rabbitmq: RabbitMqDestination
) -> None:
    events = [*envelopes(1, type=type_), *envelopes(3)[1:]]

    assert kinds(rabbitmq.publisher.publish(events)) == [PERMANENT, None, None]
    assert rabbitmq.delivered == [event.id for event in events[1:]]


# Refusals


def test_an_event_that_no_queue_takes_waits_by_itself__long_enough_to_bind_one(rabbitmq: RabbitMqDestination) -> None:
    events = envelopes(3)
    rabbitmq.broker.answer = answering({events[1].id: give_back})

    first, returned, last = rabbitmq.publisher.publish(events)

    assert (first, last) == (SENT, SENT)
    assert isinstance(returned, Failure)
    assert (returned.kind, returned.type, returned.retry_after) == (TRANSIENT, "Unroutable", UNROUTABLE_AFTER)
    assert "exchange 'events'" in returned.message
    assert "'thing.happened': bind one" in returned.message
    assert rabbitmq.publisher.publish(events[:1]) == [SENT]
    assert rabbitmq.broker.connections == 1


def test_an_event_that_a_queue_refuses_waits_by_itself__long_enough_to_make_room(
    rabbitmq: RabbitMqDestination,
) -> None:
    events = envelopes(3)
    rabbitmq.broker.answer = answering({events[1].id: refuse})

    first, refused, last = rabbitmq.publisher.publish(events)

    assert (first, last) == (SENT, SENT)
    assert isinstance(refused, Failure)
    assert (refused.kind, refused.type, refused.retry_after) == (TRANSIENT, "Nack", UNROUTABLE_AFTER)
    assert "'thing.happened' is full or has failed: make room" in refused.message


def test_a_missing_exchange_is_nobodys_fault__and_heals_when_it_is_declared(rabbitmq: RabbitMqDestination) -> None:
    rabbitmq.broker.answer = NO_EXCHANGE

    outcomes = rabbitmq.publisher.publish(envelopes(2))
    rabbitmq.broker.answer = take

    assert kinds(outcomes) == [UNAVAILABLE] * 2
    assert isinstance(outcomes[0], Failure)
    assert outcomes[0].message.endswith("NOT_FOUND - no exchange 'events' in vhost '/'; declare it")
    assert rabbitmq.publisher.publish(envelopes(2)) == [SENT] * 2


def test_an_exchange_that_we_may_not_write_to_is_nobodys_fault(rabbitmq: RabbitMqDestination) -> None:
    rabbitmq.broker.answer = close_channel(403, "ACCESS_REFUSED - access to exchange 'events' refused")

    failure = only(rabbitmq.publisher.publish(envelopes(1)))

    assert (failure.kind, failure.type) == (UNAVAILABLE, "AMQP 403")
    assert "may write there" in failure.message


@pytest.mark.parametrize("guilty", [0, 3, 6])
@pytest.mark.parametrize("answer", [TOO_LARGE, close_connection(501, "FRAME_ERROR - cannot decode")])
def test_only_the_guilty_message_fails__when_the_broker_closes_over_it(
    answer: Answer, guilty: int, rabbitmq: RabbitMqDestination
) -> None:
    events = envelopes(7)
    rabbitmq.broker.answer = answering({events[guilty].id: answer})

    outcomes = rabbitmq.publisher.publish(events)

    assert kinds(outcomes) == [PERMANENT if position == guilty else None for position in range(7)]
    assert set(rabbitmq.delivered) == {event.id for event in events if event is not events[guilty]}


def test_what_was_confirmed_is_not_sent_again__when_the_broker_closes_over_a_later_message(
    rabbitmq: RabbitMqDestination,
) -> None:
    events = envelopes(4)
    rabbitmq.broker.answer = answering({events[2].id: TOO_LARGE})

    rabbitmq.publisher.publish(events)

    assert [rabbitmq.delivered.count(event.id) for event in events[:2]] == [1, 1]


# Connections


@pytest.mark.parametrize("answer", [hang_up, close_connection(320, "CONNECTION_FORCED - broker forced it")])
@pytest.mark.parametrize("at", [0, 2])
def test_what_was_confirmed_is_sent__and_the_rest_nobodys_fault__when_the_connection_is_lost(
    at: int, answer: Answer, rabbitmq: RabbitMqDestination
) -> None:
    events = envelopes(4)
    rabbitmq.broker.answer = answering({events[at].id: answer})

    outcomes = rabbitmq.publisher.publish(events)
    rabbitmq.broker.answer = take

    assert kinds(outcomes) == [None] * at + [UNAVAILABLE] * (4 - at)
    assert rabbitmq.publisher.publish(events[at:]) == [SENT] * (4 - at)


def test_an_event_is_not_called_sent__whose_confirm_was_lost(rabbitmq: RabbitMqDestination) -> None:
    rabbitmq.broker.answer = hang_up_after_taking

    assert kinds(rabbitmq.publisher.publish(envelopes(1))) == [UNAVAILABLE]


def test_a_connection_that_was_closed_meanwhile_is_made_anew__and_nothing_fails(rabbitmq: RabbitMqDestination) -> None:
    rabbitmq.publisher.publish(envelopes(1))
    (conversation,) = rabbitmq.broker.open
    rabbitmq.broker.hang_up()
    while conversation in rabbitmq.broker.open:
        pass

    assert rabbitmq.publisher.publish(envelopes(2)) == [SENT] * 2
    assert rabbitmq.broker.connections == 2


def test_a_connection_is_kept(rabbitmq: RabbitMqDestination) -> None:
    for _ in range(3):
        rabbitmq.publisher.publish(envelopes(2))

    assert rabbitmq.broker.connections == 1


def test_a_connection_is_not_trusted__that_was_not_used_for_long(rabbitmq: RabbitMqDestination) -> None:
    clock = ManualClock()
    publisher = to_rabbitmq(f"amqp://{HOST}:{rabbitmq.broker.port}/?exchange=events", clock=clock)

    publisher.publish(envelopes(1))
    clock.advance(IDLE - 1)
    publisher.publish(envelopes(1))
    assert rabbitmq.broker.connections == 1

    clock.advance(IDLE)
    publisher.publish(envelopes(1))
    assert rabbitmq.broker.connections == 2
    publisher.close()


def test_a_broker_that_takes_nothing_is_nobodys_fault__and_says_why(
    rabbitmq: RabbitMqDestination, impatient: RabbitMqPublisher
) -> None:
    rabbitmq.broker.answer = block

    failure = only(impatient.publish(envelopes(1)))

    assert failure.kind is UNAVAILABLE
    assert failure.message.endswith("not confirmed in time: the broker takes none now, low on memory")


def test_a_broker_that_does_not_confirm_is_given_up(
    rabbitmq: RabbitMqDestination, impatient: RabbitMqPublisher
) -> None:
    rabbitmq.broker.answer = take_silently

    assert kinds(impatient.publish(envelopes(2))) == [UNAVAILABLE] * 2
    rabbitmq.broker.answer = take
    assert impatient.publish(envelopes(2)) == [SENT] * 2


def test_a_broker_that_says_nothing_is_given_up() -> None:
    with socket.create_server((HOST, 0)) as silent:
        publisher = to_rabbitmq(f"amqp://{HOST}:{silent.getsockname()[1]}/?exchange=events", timeout=SOON)
        assert kinds(publisher.publish(envelopes(2))) == [UNAVAILABLE] * 2


def test_a_broker_that_is_not_there_is_nobodys_fault() -> None:
    with socket.create_server((HOST, 0)) as once:
        port = once.getsockname()[1]

    failure = only(to_rabbitmq(f"amqp://{HOST}:{port}/?exchange=events").publish(envelopes(1)))

    assert failure.kind is UNAVAILABLE
    assert f"RabbitMQ at {HOST}:{port}" in failure.message


def test_nothing_is_raised__when_what_answers_is_no_rabbitmq(
    rabbitmq: RabbitMqDestination, impatient: RabbitMqPublisher
) -> None:
    rabbitmq.broker.greeting = lambda talk: talk._connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    assert kinds(impatient.publish(envelopes(1))) == [UNAVAILABLE]


def test_batches_of_several_threads_wait_for_each_other__and_not_for_ever(impatient: RabbitMqPublisher) -> None:
    with impatient._lock:
        failure = only(impatient.publish(envelopes(1)))

    assert (failure.kind, failure.type) == (UNAVAILABLE, "Busy")
    assert impatient.publish(envelopes(1)) == [SENT]


# Its URL


@pytest.mark.parametrize(
    "url",
    [
        "amqp://broker.example/",
        "amqp://broker.example/?exchange=",
        "amqp://broker.example?secret=name",
        "amqp://user:password@broker.example/?exchange=events",
        "amqp://one.example,two.example/?exchange=events",
        "amqp://broker.example/?exchange=events&heartbeat=3",
    ],
)
def test_a_url_without_an_exchange__or_with_what_it_does_not_know__is_refused(url: str) -> None:
    with pytest.raises(PublisherUrlError):
        kind_of(url)


def test_an_ipv6_address_is_asked_for__and_known_to_certificates__without_its_brackets() -> None:
    rabbitmq = RabbitMq.at(Place.of("amqps://[::1]/things?exchange=events"))
    link = RabbitMqLink(rabbitmq, clock=ManualClock(), idle=IDLE, unroutable_after=UNROUTABLE_AFTER)

    parameters = link._read_parameters()

    assert (parameters.host, parameters.ssl_options.server_hostname) == ("::1", "::1")


def test_publishing_needs_its_secret_and_nothing_else() -> None:
    kind, place = kind_of("amqps://broker.example/things?exchange=events&secret=rabbitmq/relay")

    assert kind is RabbitMqPublisher
    (need,) = kind.needs_at(place)
    assert need.actions == ("secretsmanager:GetSecretValue",)
    assert need.resource.startswith("secretsmanager:secret:rabbitmq/relay-")


def test_publishing_without_a_secret_needs_nothing() -> None:
    kind, place = kind_of("amqp://broker.example/?exchange=events")

    assert kind.needs_at(place) == ()
