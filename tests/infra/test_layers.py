"""Layers: what every function stands on, and what only those get that need it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from aws_cdk import App, Stack

from infra.layers import Layers
from infra.stage import StageConfig, StageError
from mailroom.needs import Access
from mailroom.outbox.relay import Relay
from mailroom.runtime import Runtime
from tests.stage import settings

PUBLISHES = Access(uses=(Relay,))
TO_BROKERS = ["kafka://broker.example/events", "amqp://broker.example/?exchange=events"]


def runtime(url: str) -> Runtime:
    return Runtime(settings(publisher_url=url))


@pytest.fixture
def layers(app: App, stage: Callable[[str], StageConfig]) -> Layers:
    return Layers(Stack(app, "stack"), "Layers", stage=stage("prod"))


@pytest.mark.parametrize("url", TO_BROKERS)
def test_who_publishes_to_a_broker_has_its_client(url: str, layers: Layers) -> None:
    assert [layer.node.id for layer in layers.of(PUBLISHES, runtime(url))][3:] == ["Brokers"]


@pytest.mark.parametrize("url", TO_BROKERS)
def test_who_does_not_publish_has_no_brokers_client(url: str, layers: Layers) -> None:
    assert len(layers.of(Access(), runtime(url))) == 3


def test_there_is_no_brokers_client__when_nothing_is_published_to_a_broker(layers: Layers) -> None:
    assert len(layers.of(PUBLISHES, runtime("eventbridge://bus"))) == 3
    assert layers.node.try_find_child("Brokers") is None


def test_functions_share_their_layers(layers: Layers) -> None:
    first, second = (layers.of(PUBLISHES, runtime(url)) for url in TO_BROKERS)
    assert [a is b for a, b in zip(first, second, strict=True)] == [True] * 4


def test_a_layer_that_is_not_built_names_the_command_that_builds_it(app: App, built_layers: Path) -> None:
    built = built_layers.parent / "without-brokers"
    (built / "dependencies" / "aws" / "python").mkdir(parents=True, exist_ok=True)
    config = StageConfig.of("prod", email_sender="sender@example.com", built_layers=built)

    with pytest.raises(StageError, match=r"brokers.*`make build-aws`"):
        Layers(Stack(app, "stack"), "Layers", stage=config).of(PUBLISHES, runtime(TO_BROKERS[0]))
