"""What tests are given: fakes that remember, and a Lambda context that tells the time left."""

from __future__ import annotations

import pytest

from mailroom.failures import FailureKind
from mailroom.outbox.event import Envelope
from mailroom.publishers.publisher import SENT
from mailroom.runtime import Runtime
from mailroom.testing import FakePublisher, LambdaContext, ManualClock, permanent, transient, unavailable
from tests import stage

SETTINGS = stage.settings()


def event(event_id: str) -> Envelope:
    return Envelope(id=event_id, type="t", source="s", subject=None, time="", payload="{}")


def test_a_fake_destination_remembers_what_it_took__and_what_was_tried() -> None:
    publisher = FakePublisher(lambda tried: SENT if tried.id == "good" else permanent())

    outcomes = publisher.publish([event("bad"), event("good")])

    assert outcomes == [permanent(), SENT]
    assert (publisher.attempted, publisher.ids, publisher.calls) == (["bad", "good"], ["good"], 1)


def test_a_fake_destination_can_crash__after_it_took_some() -> None:
    def answer(tried: Envelope) -> object:
        if tried.id == "deadly":
            raise MemoryError
        return SENT

    publisher = FakePublisher(answer)  # type: ignore[arg-type]

    with pytest.raises(MemoryError):
        publisher.publish([event("good"), event("deadly"), event("never tried")])

    assert (publisher.ids, publisher.attempted) == (["good"], ["good", "deadly"])


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (transient, FailureKind.TRANSIENT),
        (permanent, FailureKind.PERMANENT),
        (unavailable, FailureKind.UNAVAILABLE),
    ],
)
def test_a_failure_of_each_kind_is_made_in_a_word(make: type, kind: FailureKind) -> None:
    assert (make("why").kind, make("why").message) == (kind, "why")


def test_an_invocation_stops_beginning_work__its_margin_before_the_end() -> None:
    clock = ManualClock()
    clock.advance(100)
    runtime = Runtime(SETTINGS, clock=clock)

    assert runtime.deadline(LambdaContext(30_000)) == 100 + 30 - runtime.timings.stop_margin


def test_an_invocation_that_cannot_tell_its_time_is_an_error__and_never_endless() -> None:
    with pytest.raises(AttributeError):
        Runtime(SETTINGS).deadline(object())
