"""Batches: as few calls as the limits allow, in order, and nothing left out."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailroom.needs import Need
from mailroom.outbox.event import Envelope
from mailroom.publishers.eventbridge import EventBridgePublisher
from mailroom.publishers.publisher import ClientMissing, Destination, Limits, batches
from mailroom.runtime import Runtime
from mailroom.testing import FakePublisher
from tests import stage
from tests.missing import without

ENTRIES, BYTES = 4, 100


class SmallPublisher(FakePublisher):
    """Takes little at once; an event is as large as its payload."""

    limits = Limits(entries=ENTRIES, entry_bytes=BYTES, call_bytes=BYTES)

    @staticmethod
    def size(event: Envelope) -> int:
        return len(event.payload)


def sized(*sizes: int) -> list[Envelope]:
    return [
        Envelope(id=str(position), type="t", source="s", subject=None, time="", payload="x" * size)
        for position, size in enumerate(sizes)
    ]


def cut(*sizes: int) -> list[list[int]]:
    return [[len(event.payload) for event in batch] for batch in batches(sized(*sizes), SmallPublisher())]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([1], [[1]]),
        ([1] * ENTRIES, [[1] * ENTRIES]),
        ([1] * (ENTRIES + 1), [[1] * ENTRIES, [1]]),
        ([50, 50, 1], [[50, 50], [1]]),
        ([50, 51], [[50], [51]]),
        ([100, 100], [[100], [100]]),
        ([1, 100, 1], [[1], [100], [1]]),
        ([99, 1, 99, 1], [[99, 1], [99, 1]]),
    ],
    ids=str,
)
def test_events_are_cut_into_batches__within_entries_and_bytes(sizes: list[int], expected: list[list[int]]) -> None:
    assert cut(*sizes) == expected


def test_an_event_beyond_the_limit_goes_alone__and_its_neighbours_without_it() -> None:
    assert cut(1, 101, 1, 1) == [[1], [101], [1, 1]]


@given(sizes=st.lists(st.integers(0, 120), max_size=60))
def test_no_event_is_lost_or_overtakes_another__and_no_call_is_too_large(sizes: list[int]) -> None:
    cut_up = list(batches(events := sized(*sizes), SmallPublisher()))

    assert [event for batch in cut_up for event in batch] == events
    for batch in cut_up:
        assert len(batch) == 1 or sum(map(SmallPublisher.size, batch)) <= BYTES
        assert 1 <= len(batch) <= ENTRIES


@given(sizes=st.lists(st.integers(0, 100), max_size=60))
def test_a_batch_ends__only_where_the_next_event_does_not_fit(sizes: list[int]) -> None:
    cut_up = list(batches(sized(*sizes), SmallPublisher()))

    for batch, following in pairwise(cut_up):
        assert len(batch) == ENTRIES or sum(map(SmallPublisher.size, [*batch, following[0]])) > BYTES


# The stage's destination


@pytest.fixture
def runtime() -> Runtime:
    return Runtime(stage.settings(publisher_url="eventbridge://the-bus"))


def test_a_stage_delivers_to_the_place_that_its_url_names(runtime: Runtime) -> None:
    assert isinstance(runtime.use(Destination).publisher, EventBridgePublisher)


def test_a_stage_needs_what_its_place_needs__known_without_connecting(runtime: Runtime) -> None:
    assert Destination.needs(runtime) == (
        Need(("events:DescribeEventBus", "events:PutEvents"), "events:event-bus/the-bus"),
    )


@pytest.mark.parametrize(
    ("url", "client"),
    [("amqps://broker.example/?exchange=events", "pika"), ("kafka://broker.example/events", "confluent_kafka")],
)
def test_a_brokers_client_that_is_missing_is_named__and_how_to_install_it(
    url: str, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(client, monkeypatch)

    with pytest.raises(ClientMissing, match=rf"needs the module {client}: pip install 'mailroom\[brokers\]'"):
        Runtime(stage.settings(publisher_url=url)).use(Destination)


def test_a_test_gives_the_runtime_its_own_destination() -> None:
    fake = Destination(FakePublisher())

    assert Runtime(ports={Destination: fake}).use(Destination) is fake
