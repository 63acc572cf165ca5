"""What the relay relies on with every destination: an outcome per event at its position, and never an exception."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mailroom.failures import Failure, FailureKind
from mailroom.outbox.event import Envelope
from mailroom.publishers.publisher import SENT, NotTaken, Outcome, batches
from mailroom.timings import Timings

from .conftest import envelopes

if TYPE_CHECKING:
    from .conftest import AwsDestination, Destination


def kind_of(outcome: Outcome) -> FailureKind | None:
    return outcome.kind if isinstance(outcome, Failure) else None


def test_every_event_is_sent__when_all_goes_well(destination: Destination) -> None:
    events = envelopes(3)

    assert destination.publisher.publish(events) == [SENT] * 3
    assert destination.delivered == [event.id for event in events]


def test_an_empty_batch_is_no_trouble(destination: Destination) -> None:
    assert destination.publisher.publish([]) == []


def test_each_outcome_is_at_its_events_position__when_some_fail(aws_destination: AwsDestination) -> None:
    events = envelopes(5)
    aws_destination.refuse({events[0].id: "MalformedDetail", events[3].id: "InternalFailure"})

    outcomes = aws_destination.publisher.publish(events)

    assert [kind_of(outcome) for outcome in outcomes] == [
        FailureKind.PERMANENT,
        None,
        None,
        FailureKind.UNAVAILABLE,
        None,
    ]
    assert aws_destination.delivered == [events[n].id for n in (1, 2, 4)]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("ThrottlingException", FailureKind.UNAVAILABLE),
        ("InternalFailure", FailureKind.UNAVAILABLE),
        ("AccessDeniedException", FailureKind.UNAVAILABLE),
        ("NotAuthorizedForSourceException", FailureKind.TRANSIENT),
        ("NotAuthorizedForDetailTypeException", FailureKind.TRANSIENT),
        ("MalformedDetail", FailureKind.PERMANENT),
        ("InvalidArgument", FailureKind.PERMANENT),
        ("SomethingNew", FailureKind.TRANSIENT),
    ],
)
def test_an_event_that_is_refused_is_judged_by_its_own_code(
    code: str, kind: FailureKind, aws_destination: AwsDestination
) -> None:
    (event,) = envelopes(1)
    aws_destination.refuse({event.id: code})

    (outcome,) = aws_destination.publisher.publish([event])

    assert isinstance(outcome, Failure)
    assert (outcome.kind, outcome.type) == (kind, code)
    assert outcome.message.endswith(("told so", " (told so)"))  # before it, what to do about it


@pytest.mark.parametrize("code", ["ThrottlingException", "InternalFailure", "ServiceUnavailable"])
def test_an_event_that_was_throttled_by_itself_says_nothing_of_the_destination(
    code: str, aws_destination: AwsDestination
) -> None:
    throttled, good = envelopes(2)
    aws_destination.refuse({throttled.id: code})

    first, second = aws_destination.publisher.publish([throttled, good])

    assert (type(first), second) == (NotTaken, SENT)


@pytest.mark.parametrize(
    ("code", "kind"), [("NotAuthorizedForDetailTypeException", Failure), ("AccessDeniedException", NotTaken)]
)
def test_an_event_that_was_refused_by_policy_waits_by_itself__for_as_long_as_one_that_no_queue_takes(
    code: str, kind: type[Failure], aws_destination: AwsDestination
) -> None:
    """A policy names types and sources. Who is denied may be so with every event, which is no event's fault."""
    refused, good = envelopes(2)
    aws_destination.refuse({refused.id: code})

    first, second = aws_destination.publisher.publish([refused, good])

    assert isinstance(first, Failure)
    assert (type(first), first.retry_after, second) == (kind, Timings().unroutable_after, SENT)


def test_an_event_may_be_sent_again__with_the_same_id(destination: Destination) -> None:
    (event,) = envelopes(1)

    destination.publisher.publish([event])

    assert destination.publisher.publish([event]) == [SENT]
    assert destination.delivered == [event.id] * (1 if destination.deduplicates else 2)


def test_an_event_that_was_redriven_arrives__however_soon_after_the_attempts_before(destination: Destination) -> None:
    (event,) = envelopes(1)

    for again in (event, replace(event, redriven=1), replace(event, redriven=2)):
        assert destination.publisher.publish([again]) == [SENT]
    assert destination.delivered == [event.id] * 3


def test_a_subjects_events_arrive_in_order__where_the_destination_keeps_it(destination: Destination) -> None:
    events = [
        event
        for number in range(5)
        for event in (*envelopes(1, id=f"{number}-a"), *envelopes(1, id=f"{number}-b", subject="b"))
    ]

    for event in events:
        destination.publisher.publish([event])

    assert sorted(destination.delivered) == sorted(event.id for event in events)
    assert not destination.publisher.keeps_order or destination.delivered == [event.id for event in events]


def test_an_event_at_its_own_limit_is_taken(destination: Destination) -> None:
    (event,) = envelopes(1)
    room = destination.publisher.limits.entry_bytes - destination.publisher.size(event)
    (large,) = envelopes(1, payload=f'"{"x" * room}"')

    assert destination.publisher.size(large) == destination.publisher.limits.entry_bytes
    assert destination.publisher.publish([large]) == [SENT]
    assert destination.delivered == [large.id]


def test_a_batch_at_the_limits_is_taken(destination: Destination) -> None:
    limits = destination.publisher.limits
    events = envelopes(limits.entries)
    (first, *_), room = events, limits.call_bytes - sum(map(destination.publisher.size, events))
    events[0] = Envelope(**{**_attributes(first), "payload": f'"{"x" * room}"'})  # in place of {}

    assert sum(map(destination.publisher.size, events)) == limits.call_bytes
    assert destination.publisher.publish(events) == [SENT] * limits.entries


def _attributes(event: Envelope) -> dict[str, str | None]:
    names = ("id", "type", "source", "subject", "time", "payload", "traceparent", "after")
    return {name: getattr(event, name) for name in names}


def test_a_size_is_in_utf8_bytes__and_not_in_characters(destination: Destination) -> None:
    (plain,), (smiling,) = envelopes(1, payload='"xx"'), envelopes(1, payload='"x😀"')

    assert destination.publisher.size(smiling) - destination.publisher.size(plain) == 3


def test_a_size_counts_at_least_what_is_on_the_wire(destination: Destination) -> None:
    (event,) = envelopes(1)

    assert destination.publisher.size(event) >= len(event.to_json().encode())


def test_an_event_at_its_own_limit_fits_a_call(destination: Destination) -> None:
    limits = destination.publisher.limits

    assert limits.entry_bytes <= limits.call_bytes


def test_batches_are_within_the_limits__whatever_is_to_be_sent(destination: Destination) -> None:
    publisher = destination.publisher
    events = envelopes(25, payload=f'"{"x" * 150_000}"')

    for batch in batches(events, publisher):
        assert len(batch) <= publisher.limits.entries
        assert sum(map(publisher.size, batch)) <= publisher.limits.call_bytes
        assert publisher.publish(batch) == [SENT] * len(batch)
    assert destination.delivered == [event.id for event in events]
