"""The operators' API sends all that is dead again, or what passes filters, up to so many: and says if more is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mailroom.clock import timestamp
from mailroom.consumer import record_prefix
from mailroom.dead_letters.demand import redrive_matching
from mailroom.dead_letters.filter import Filter
from mailroom.dead_letters.letter import DeadLetter, Deed, Fate, Result
from mailroom.deployment import Deployment
from mailroom.http.testing import ApiAnswer, ApiClient
from mailroom.idempotency import COMPLETED, IdempotencyRow, record_id
from mailroom.outbox.relay import Relay
from mailroom.outbox.table import DEAD, OutboxRow, pending
from mailroom.runtime import Runtime
from mailroom.testing import FakePublisher, ManualClock, permanent
from tests.faults import Died

from ..outbox.conftest import SHARD, Outbox
from .conftest import CONSUMER, REDRIVE, die, fates, waiting


def redrive(client: ApiClient, *, key: str = "key-1", **body: Any) -> ApiAnswer:
    answer = client.post(REDRIVE, {"why": "mended", **body}, key=key)
    assert answer.status == 200, answer.text
    return answer


def ids(answer: ApiAnswer) -> list[str]:
    return [each["id"] for each in answer.json["results"]]


def test_all_that_is_dead_is_sent_again__whatever_the_source(
    client: ApiClient,
    deployment: Deployment,
    kill: Callable[[int], list[str]],
    bounce: Callable[[], str],
) -> None:
    events, message = kill(3), bounce()
    answer = redrive(client)
    assert (answer.json["retried"], answer.json["failed"], answer.json["more"]) == (4, 0, False)
    assert ids(answer) == [*events, message]
    assert len(list(OutboxRow.query(pending(SHARD), consistent_read=True))) == 3
    assert waiting(deployment, CONSUMER) == 1


def test_nothing_dead_is_no_error(client: ApiClient) -> None:
    answer = redrive(client, limit=100)
    assert answer.json == {"retried": 0, "done": 0, "failed": 0, "more": False, "results": []}


def test_a_limit_is_kept__and_it_is_said_that_more_is_left(
    client: ApiClient,
    kill: Callable[[int], list[str]],
) -> None:
    events = kill(5)
    first, second = redrive(client, limit=3), redrive(client, limit=3, key="key-2")
    assert (first.json["retried"], first.json["more"], ids(first)) == (3, True, events[:3])
    assert (second.json["retried"], second.json["more"], ids(second)) == (2, False, events[3:])


def test_as_many_as_the_limit_leave_nothing(client: ApiClient, kill: Callable[[int], list[str]]) -> None:
    kill(3)
    answer = redrive(client, limit=3)
    assert (answer.json["retried"], answer.json["more"]) == (3, False)


def test_a_hundred_are_sent_unless_it_is_said_how_many(
    client: ApiClient,
    kill: Callable[[int], list[str]],
) -> None:
    kill(101)
    answer = redrive(client)
    assert (answer.json["retried"], answer.json["more"]) == (100, True)


def test_filters_keep_what_is_meant(
    client: ApiClient,
    runtime: Runtime,
    clock: ManualClock,
    outbox: Outbox,
) -> None:
    def die_now(subject: str, reason: str) -> str:
        clock.advance(60)
        event = outbox.add(subject)
        relay = Relay(runtime, FakePublisher(lambda _: permanent(reason)))
        relay.drain(int(event[-2:]))
        return event

    start = clock.now()
    events = [die_now(f"things/{number}", f"reason {word}") for number, word in enumerate(("one", "two", "three"))]
    fingerprint = permanent("reason two").fingerprint
    for number, (wanted, meant) in enumerate(
        [
            ({"type": "no.such"}, []),
            ({"subject": "things/0"}, events[:1]),
            ({"fingerprint": fingerprint}, events[1:2]),
            ({"source": CONSUMER}, []),
            ({"before": timestamp(start)}, []),
            ({"after": timestamp(clock.now())}, events[2:]),
            ({"source": "outbox", "before": timestamp(clock.now())}, []),
        ]
    ):
        assert ids(redrive(client, key=f"key-{number}", **wanted)) == meant, wanted


def test_letters_that_cannot_be_sent_are_told__and_keep_none_back(
    client: ApiClient,
    bounce: Callable[[], str],
) -> None:
    messages = [bounce() for _ in range(4)]
    for message in messages[:2]:
        IdempotencyRow(record_id(record_prefix(CONSUMER), message)).update([IdempotencyRow.status.set(COMPLETED)])
    answer = redrive(client, limit=2)
    assert (answer.json["retried"], answer.json["failed"], answer.json["more"]) == (2, 2, False)
    assert fates(answer) == ["succeeded before", "succeeded before", "done", "done"]


def test_it_stops_in_time__and_says_that_more_is_left(
    client: ApiClient,
    kill: Callable[[int], list[str]],
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kill(3)
    monkeypatch.setattr("mailroom.dead_letters.outbox.write", lambda *_: clock.advance(13))
    answer = redrive(client)
    assert (answer.json["retried"], answer.json["more"]) == (2, True)


def test_the_same_key_answers_as_before__and_another_finds_what_died_since(
    client: ApiClient,
    runtime: Runtime,
    kill: Callable[[int], list[str]],
) -> None:
    events = kill(2)
    first = redrive(client)
    Relay(runtime, FakePublisher(lambda _: permanent())).drain(SHARD)
    again = redrive(client)
    assert (again.text, again.headers["Idempotent-Replayed"]) == (first.text, "true")
    assert len(list(OutboxRow.query(DEAD, consistent_read=True))) == 2
    assert ids(redrive(client, key="key-2")) == events


def test_a_crash_before_the_reply_is_kept_is_repeated_by_the_same_key__and_doubles_nothing(
    client: ApiClient,
    deployment: Deployment,
    bounce: Callable[[], str],
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounce()
    with monkeypatch.context() as patch:
        patch.setattr("mailroom.http.edge.UnitOfWork.commit", die)
        with pytest.raises(Died):
            client.post(REDRIVE, {"why": "mended"}, key="key-1")
    clock.advance(31)
    assert redrive(client).json["retried"] == 0
    assert waiting(deployment, CONSUMER) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"why": " "},
        {"limit": 0},
        {"limit": 251},
        {"limit": "100"},
        {"limit": 1.5},
        {"type": ""},
        {"subject": 7},
        {"before": "yesterday"},
        {"before": "2030-01-01T00:00:00"},
        {"after": 0},
        {"ids": ["x"]},
        {"ids": ["x"], "source": "outbox", "limit": 5},
        {"ids": ["x"], "source": "outbox", "type": "x"},
        {"older_than": "1h"},
    ],
    ids=str,
)
def test_what_is_not_plainly_said_is_refused__and_nothing_is_moved(
    client: ApiClient,
    kill: Callable[[int], list[str]],
    wrong: dict[str, Any],
) -> None:
    kill(1)
    answer = client.post(REDRIVE, {"why": "mended", **wrong}, key="key-1")
    assert (answer.status, answer.json["type"]) == (400, "/problems/invalid-body")
    assert len(list(OutboxRow.query(DEAD, consistent_read=True))) == 1


def test_an_unknown_source_is_404(client: ApiClient) -> None:
    assert client.post(REDRIVE, {"why": "mended", "source": "nobody"}, key="key-1").status == 404


def test_a_letter_that_dies_again_meanwhile_is_sent_once() -> None:
    letter = DeadLetter("event", "somewhere", "dead", "t", None, permanent(), attempts=1, died_at="")
    asked: list[str] = []

    class Reviving:
        """A desk on which what was sent lies again, further down."""

        def letters(self, **_: Any) -> Iterator[DeadLetter]:
            yield from (letter, letter)

        def of(self, name: str) -> Any:
            return self

        def redrive(self, ids: list[str], *_: Any, **__: Any) -> list[Result]:
            asked.extend(ids)
            return [Result(each, letter.source, Fate.DONE) for each in ids]

    desk: Any = Reviving()
    demanded = redrive_matching(desk, Filter(), Deed("operator", "2030", "mended"), limit=10)
    assert (len(demanded.results), demanded.more, asked) == (1, False, ["event"])
