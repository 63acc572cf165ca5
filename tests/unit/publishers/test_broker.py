"""What publishers with a broker of their own share: the search for the one at fault, and that nothing is raised."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from mailroom.failures import Failure, FailureKind, Unavailable
from mailroom.outbox.event import Envelope
from mailroom.publishers.broker import BrokerPublisher, Suspect, permanent
from mailroom.publishers.publisher import SENT, Outcome
from mailroom.testing import ManualClock

Answer = Callable[[Sequence[str]], Sequence[Outcome | Suspect]]
PERMANENT, TRANSIENT, UNAVAILABLE = FailureKind.PERMANENT, FailureKind.TRANSIENT, FailureKind.UNAVAILABLE


class FakeLink:
    """A way to a broker that answers as it is told."""

    def __init__(self, answer: Answer, *, on_connect: Exception | None = None) -> None:
        self._answer = answer
        self._on_connect = on_connect
        self.attempts_to_connect = 0
        self.batches: list[str] = []
        self.hung_up = 0

    def connect(self, deadline: float) -> None:
        self.attempts_to_connect += 1
        if self._on_connect is not None:
            raise self._on_connect

    def send(self, events: Sequence[Envelope], deadline: float) -> Sequence[Outcome | Suspect]:
        ids = [event.id for event in events]
        self.batches.append("".join(ids))
        return self._answer(ids)

    def hang_up(self) -> None:
        self.hung_up += 1


def publish(
    ids: str, answer: Answer, *, on_connect: Exception | None = None
) -> tuple[list[FailureKind | None], FakeLink]:
    link = FakeLink(answer, on_connect=on_connect)
    events = [Envelope(each, "t", "s", None, "2030-01-01T00:00:00.000Z", "{}") for each in ids]
    outcomes = BrokerPublisher(link, clock=ManualClock(), timeout=1).publish(events)
    assert len(outcomes) == len(events)
    return [outcome.kind if isinstance(outcome, Failure) else None for outcome in outcomes], link


def together(guilty: str) -> Answer:
    """Refuse every batch with one of these in it, as a whole."""
    refusal = Suspect(permanent("TooLarge", "one of them is"))
    return lambda ids: [refusal if set(guilty) & set(ids) else SENT for _ in ids]


def raising(error: Exception) -> Answer:
    def answer(_: Sequence[str]) -> Sequence[Outcome]:
        raise error

    return answer


def test_the_guilty_are_found_by_halves() -> None:
    kinds, link = publish("abcdefgh", together("f"))

    assert kinds == [PERMANENT if each == "f" else None for each in "abcdefgh"]
    assert link.batches == ["abcdefgh", "abcd", "efgh", "ef", "e", "f", "gh"]


def test_all_that_are_guilty_are_found() -> None:
    kinds, _ = publish("abcde", together("ae"))

    assert kinds == [PERMANENT, None, None, None, PERMANENT]


def test_only_suspects_are_sent_again__each_outcome_at_its_place() -> None:
    def answer(ids: Sequence[str]) -> Sequence[Outcome | Suspect]:
        refusal = permanent("TooLarge", "it is")
        return [Suspect(refusal) if each in "bd" else SENT for each in ids]

    kinds, link = publish("abcd", answer)

    assert kinds == [None, PERMANENT, None, PERMANENT]
    assert link.batches == ["abcd", "b", "d"]


def test_nothing_is_searched__when_the_broker_is_down() -> None:
    kinds, link = publish("abcd", raising(Unavailable("it is down")))

    assert kinds == [UNAVAILABLE] * 4
    assert (link.batches, link.hung_up) == (["abcd"], 1)


@pytest.mark.parametrize("error", [RuntimeError("odd"), KeyError("odder")], ids=repr)
def test_nothing_is_raised__and_the_connection_is_not_trusted_any_more(error: Exception) -> None:
    kinds, link = publish("ab", raising(error))

    assert kinds == [TRANSIENT] * 2
    assert link.hung_up == len(link.batches) == 3


@pytest.mark.parametrize("error", [RuntimeError("odd"), KeyError("odder"), ValueError("a typo")], ids=repr)
def test_whatever_keeps_a_connection_from_being_made_is_no_events_fault__and_is_met_once(error: Exception) -> None:
    kinds, link = publish("abcdefgh", together(""), on_connect=error)

    assert kinds == [UNAVAILABLE] * 8
    assert (link.batches, link.attempts_to_connect, link.hung_up) == ([], 1, 1)


def test_nothing_is_sent__when_there_is_nothing_to_send() -> None:
    assert publish("", together(""))[1].batches == []
