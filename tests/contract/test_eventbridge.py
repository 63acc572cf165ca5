"""What is EventBridge's own: the bus that may be gone, calls refused as a whole, and what arrives at a target."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import EndpointConnectionError, NoCredentialsError, ReadTimeoutError

from mailroom import clients
from mailroom.failures import Failure, FailureKind
from mailroom.outbox.event import Envelope
from mailroom.publishers.eventbridge import EventBridgePublisher
from mailroom.publishers.place import Place
from mailroom.publishers.publisher import SENT, Outcome
from mailroom.testing import ManualClock

from .conftest import BUS, CHECK_PERIOD, REFUSED_AFTER, all_taken, envelopes, id_of, refused_whole

if TYPE_CHECKING:
    from .conftest import Answer, Entry, EventBridgeDestination

UNAVAILABLE, PERMANENT, TRANSIENT = FailureKind.UNAVAILABLE, FailureKind.PERMANENT, FailureKind.TRANSIENT


def failures(outcomes: list[Outcome]) -> list[Failure]:
    return [outcome for outcome in outcomes if isinstance(outcome, Failure)]


def kinds(outcomes: list[Outcome]) -> list[FailureKind]:
    return [failure.kind for failure in failures(outcomes)]


# A call as a whole


@pytest.mark.parametrize("guilty", range(10))
def test_only_the_guilty_event_fails__when_its_call_is_refused_as_a_whole(
    guilty: int, bus: EventBridgeDestination
) -> None:
    events = envelopes(10)
    bad = events[guilty].id
    bus.answer = lambda entries: (
        refused_whole("ValidationException") if bad in map(id_of, entries) else all_taken(entries)
    )

    outcomes = bus.publisher.publish(events)

    assert [position for position, outcome in enumerate(outcomes) if outcome is not SENT] == [guilty]
    assert kinds(outcomes) == [PERMANENT]
    assert bus.delivered == [event.id for event in events if event.id != bad]


def test_each_event_fails_by_itself__when_all_are_refused(bus: EventBridgeDestination) -> None:
    bus.answer = lambda _: refused_whole("ValidationException")

    assert kinds(bus.publisher.publish(envelopes(4))) == [PERMANENT] * 4


@pytest.mark.parametrize(
    "answer",
    [
        refused_whole("ThrottlingException"),
        refused_whole("AccessDeniedException"),
        refused_whole("InternalException"),
        refused_whole("ExpiredTokenException"),
        EndpointConnectionError(endpoint_url="https://aws.example"),
        ReadTimeoutError(endpoint_url="https://aws.example"),
        NoCredentialsError(),
        {},
        {"Entries": []},
        {"Entries": [{"EventId": "e"}] * 2},
    ],
    ids=str,
)
def test_nobody_is_blamed_and_nothing_sent_again__when_the_bus_does_not_answer_for_each(
    answer: dict[str, object] | Exception, bus: EventBridgeDestination
) -> None:
    bus.answer = lambda _: answer

    assert kinds(bus.publisher.publish(envelopes(3))) == [UNAVAILABLE] * 3
    assert len(bus.calls) == 1


@pytest.mark.parametrize("error", [RuntimeError("odd"), ValueError("odder"), KeyError("oddest")], ids=repr)
def test_nothing_is_raised__whatever_the_client_raises(error: Exception, bus: EventBridgeDestination) -> None:
    bus.answer = lambda _: error

    assert kinds(bus.publisher.publish(envelopes(3))) == [TRANSIENT] * 3


def test_the_search_for_the_guilty_ends_soon__when_the_bus_goes_down_in_it(bus: EventBridgeDestination) -> None:
    bus.answer = lambda entries: refused_whole("ValidationException" if len(entries) > 5 else "ThrottlingException")

    assert kinds(bus.publisher.publish(envelopes(10))) == [UNAVAILABLE] * 10
    assert len(bus.calls) == 3


# The bus


def missing_bus(clock: ManualClock) -> EventBridgePublisher:
    return EventBridgePublisher("gone", clock=clock, check_period=CHECK_PERIOD, refused_after=REFUSED_AFTER)


def test_a_missing_bus_is_nobodys_fault__and_nothing_is_sent_to_it(
    bus: EventBridgeDestination, clock: ManualClock
) -> None:
    publisher = missing_bus(clock)

    assert [kinds(publisher.publish(envelopes(2))) for _ in range(3)] == [[UNAVAILABLE] * 2] * 3
    assert bus.calls == []


def test_a_missing_bus_heals__as_soon_as_it_is_there(bus: EventBridgeDestination, clock: ManualClock) -> None:
    publisher = missing_bus(clock)
    publisher.publish(envelopes(1))
    clients.events().create_event_bus(Name="gone")

    assert publisher.publish(envelopes(1)) == [SENT]


def test_a_bus_that_goes_missing_is_noticed__within_the_period(bus: EventBridgeDestination, clock: ManualClock) -> None:
    bus.publisher.publish(envelopes(1))
    clients.events().delete_event_bus(Name=BUS)
    clock.advance(CHECK_PERIOD)

    assert kinds(bus.publisher.publish(envelopes(1))) == [UNAVAILABLE]


@pytest.mark.parametrize("code", ["AccessDeniedException", "ThrottlingException", "ValidationException", "Unheard"])
def test_a_bus_that_cannot_be_looked_at_is_nobodys_fault(code: str, bus: EventBridgeDestination) -> None:
    bus.description = refused_whole(code)

    assert kinds(bus.publisher.publish(envelopes(2))) == [UNAVAILABLE] * 2
    assert bus.calls == []


def test_the_bus_is_looked_at__at_start_and_once_per_period(bus: EventBridgeDestination, clock: ManualClock) -> None:
    for _ in range(5):
        bus.publisher.publish(envelopes(1))
    assert bus.checks == 1

    clock.advance(CHECK_PERIOD - 0.001)
    bus.publisher.publish(envelopes(1))
    assert bus.checks == 1

    clock.advance(0.001)
    bus.publisher.publish(envelopes(1))
    bus.publisher.publish(envelopes(1))
    assert bus.checks == 2


def test_nothing_is_looked_at__when_there_is_nothing_to_send(bus: EventBridgeDestination) -> None:
    bus.publisher.publish([])

    assert (bus.checks, bus.calls) == (0, [])


# What arrives


@pytest.fixture
def seen(bus: EventBridgeDestination) -> list[Entry]:
    """The entries that the bus sees from here on."""
    entries_seen: list[Entry] = []

    def answer(entries: list[Entry]) -> Answer:
        entries_seen.extend(entries)
        return all_taken(entries)

    bus.answer = answer
    return entries_seen


def test_the_detail_is_the_cloudevent_itself__so_that_a_target_gets_it_by_its_path(
    bus: EventBridgeDestination, seen: list[Entry]
) -> None:
    (event,) = envelopes(1, payload='{"name":"café 😀","count":1,"share":0.5,"none":null}', after="earlier")

    bus.publisher.publish([event])

    handed_on = json.dumps(json.loads(seen[0]["Detail"]))  # EventBridge parses the detail and writes it anew
    assert Envelope.from_json(handed_on) == event


def test_an_entry_says_where_it_comes_from_and_goes__and_its_type_for_the_rules(
    bus: EventBridgeDestination, seen: list[Entry]
) -> None:
    (event,) = envelopes(1)

    bus.publisher.publish([event])

    assert seen == [{"EventBusName": BUS, "Source": event.source, "DetailType": event.type, "Detail": event.to_json()}]


def test_an_entrys_size_is_what_eventbridge_counts__and_not_less(
    bus: EventBridgeDestination, seen: list[Entry]
) -> None:
    (event,) = envelopes(1, payload='"café 😀"')

    bus.publisher.publish([event])

    time, counted = 14, (seen[0][part] for part in ("Source", "DetailType", "Detail"))
    assert bus.publisher.size(event) == time + sum(len(part.encode()) for part in counted)


def test_publishing_needs_no_more_than_its_own_bus() -> None:
    (need,) = EventBridgePublisher.needs_at(Place.of(f"eventbridge://{BUS}"))

    assert need.actions == ("events:DescribeEventBus", "events:PutEvents")
    assert (need.resource, need.why_many) == (f"events:event-bus/{BUS}", None)
