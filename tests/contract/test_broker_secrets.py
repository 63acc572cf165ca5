"""What keeps a broker's connection from being made is no event's fault, and said once: secrets of all wrong kinds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from urllib3 import HTTPResponse

from mailroom import clients
from mailroom.failures import Failure, FailureKind
from mailroom.publishers.broker import BrokerPublisher
from mailroom.testing import ManualClock

from .brokers import LONG_ENOUGH, to_kafka_at, to_rabbitmq
from .conftest import Answer, envelopes, refused_whole

NAME = "broker"
KAFKA, RABBITMQ = f"kafka://127.0.0.1:1/events?secret={NAME}", f"amqps://127.0.0.1:1/?exchange=events&secret={NAME}"
LOGIN = {"username": "relay", "password": "its password"}


def to(url: str, clock: ManualClock) -> BrokerPublisher:
    return to_kafka_at(url, clock=clock) if url == KAFKA else to_rabbitmq(url, clock=clock)


def keep(**content: str) -> None:
    clients.secretsmanager().create_secret(Name=NAME, SecretString=json.dumps(content))


@contextmanager
def asked(event: str, answer: Callable[..., Any]) -> Iterator[None]:
    """Answer whoever reads the secret."""
    hooks, name = clients.secretsmanager_once().meta.events, f"{event}.secrets-manager.GetSecretValue"
    hooks.register_first(name, answer)
    try:
        yield
    finally:
        hooks.unregister(name, answer)


def refused_with(code: str) -> Answer:
    return SimpleNamespace(status_code=400), refused_whole(code)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("url", "secret", "told"),
    [
        (KAFKA, {"mechanism": "SCRAM-SHA-51"}, "SCRAM-SHA-51"),
        (KAFKA, {"mechanism": "PLAIN", "ca": "no certificate"}, "not in PEM format"),
        (RABBITMQ, {"ca": "no certificate"}, "does not contain a certificate"),
    ],
)
def test_a_secret_that_no_connection_can_be_made_with_is_no_events_fault__and_what_to_mend_is_said(
    url: str, secret: dict[str, str], told: str, clock: ManualClock
) -> None:
    keep(**LOGIN, **secret)

    outcomes = to(url, clock).publish(envelopes(8))

    assert_says(outcomes, told)


@pytest.mark.parametrize("url", [KAFKA, RABBITMQ])
@pytest.mark.parametrize("code", ["InvalidRequestException", "DecryptionFailure"])
def test_a_secret_that_cannot_be_read_is_no_events_fault__and_is_asked_for_once(
    code: str, url: str, clock: ManualClock
) -> None:
    """One that is marked for deletion, and one whose key is gone."""
    reads = []

    def refuse(**_: Any) -> Answer:
        reads.append(code)
        return refused_with(code)

    with asked("before-call", refuse):
        outcomes = to(url, clock).publish(envelopes(8))

    assert_says(outcomes, "told so")
    assert reads == [code]


def assert_says(outcomes: list[Any], told: str) -> None:
    for outcome in outcomes:
        assert isinstance(outcome, Failure)
        assert outcome.kind is FailureKind.UNAVAILABLE
        assert told in outcome.message
        assert "; see that" in outcome.message
        assert "secret" in outcome.message
        assert LOGIN["password"] not in outcome.message


@pytest.mark.parametrize("url", [KAFKA, RABBITMQ])
def test_a_secret_is_tried_to_be_read_once__since_a_lease_has_no_room_for_more(url: str, clock: ManualClock) -> None:
    tries = []

    def fail(**_: Any) -> AWSResponse:
        tries.append(url)
        return AWSResponse(url, 503, {}, HTTPResponse(BytesIO(b"{}"), preload_content=False))

    with asked("before-send", fail):
        (outcome,) = to(url, clock).publish(envelopes(1))

    assert isinstance(outcome, Failure)
    assert outcome.kind is FailureKind.UNAVAILABLE
    assert len(tries) == 1


@pytest.mark.parametrize("url", [KAFKA, RABBITMQ])
def test_nothing_is_begun__when_reading_the_secret_took_all_the_time(
    url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(**LOGIN, mechanism="PLAIN")
    for connection in ("kafka_link.Producer", "rabbitmq_link.AmqpSession"):
        monkeypatch.setattr(f"mailroom.publishers.{connection}", lambda *_, **__: pytest.fail("it connects"))

    with asked("before-call", lambda **_: clock.advance(LONG_ENOUGH)):
        (outcome,) = to(url, clock).publish(envelopes(1))

    assert isinstance(outcome, Failure)
    assert outcome.kind is FailureKind.UNAVAILABLE
    assert "time" in outcome.message
