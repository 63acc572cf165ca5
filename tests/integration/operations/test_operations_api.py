"""The operators' API in process: what it shows, what it refuses, and that a redrive is safe to repeat."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from mailroom import clients
from mailroom.consumer import record_prefix
from mailroom.dead_letters.letter import Fate
from mailroom.deployment import Deployment
from mailroom.http.testing import ApiAnswer, ApiClient
from mailroom.idempotency import COMPLETED, IdempotencyRow, record_id
from mailroom.operations.api import api
from mailroom.outbox.relay import Relay
from mailroom.outbox.table import DEAD as DEAD_PARTITION
from mailroom.outbox.table import DISCARDED, OutboxRow, pending
from mailroom.reading import UNREADABLE
from mailroom.runtime import Runtime
from mailroom.testing import FakePublisher, ManualClock, permanent
from tests.faults import Died
from tests.lagging_reads import LaggingReads

from ..conftest import CallCounter
from ..outbox.conftest import SHARD, Outbox
from ..outbox.test_unreadable import raw, spoil
from .conftest import BROKEN, CONSUMER, LETTERS, OUTBOX, REDRIVE, STATUS, die, fates, waiting


def redrive(client: ApiClient, ids: list[str], *, key: str = "key-1", **more: Any) -> ApiAnswer:
    return client.post(REDRIVE, {"source": "outbox", "ids": ids, "why": "mended", **more}, key=key)


def follow(client: ApiClient, path: str, **query: str) -> list[list[str]]:
    """Answer the ids on each page, to the end."""
    pages, cursor = [], None
    while True:
        answer = client.get(path, query={**query, **({"cursor": cursor} if cursor else {})})
        assert answer.status == 200, answer.text
        pages.append([item["id"] for item in answer.json["items"]])
        cursor = answer.json["next_cursor"]
        if cursor is None:
            return pages


# The outbox


def test_pending_events_of_every_shard_are_listed__page_by_page(client: ApiClient, outbox: Outbox) -> None:
    events = [outbox.add(f"anything/{number}") for number in range(20)]
    pages = follow(client, OUTBOX, status="pending", limit="3")
    listed = [event_id for page in pages for event_id in page]
    assert max(map(len, pages)) == 3
    assert sorted(listed) == sorted(events)
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize("limit", ["1", "2", "4", "5"])
def test_a_page_may_end_where_a_shard_ends(client: ApiClient, outbox: Outbox, limit: str) -> None:
    events = [outbox.add() for _ in range(4)]
    assert [each for page in follow(client, OUTBOX, status="pending", limit=limit) for each in page] == events


def test_one_shard_is_listed_alone__oldest_first(client: ApiClient, outbox: Outbox) -> None:
    events = [outbox.add() for _ in range(5)]
    outbox.add("anything/0")
    assert follow(client, OUTBOX, status="pending", shard=str(SHARD), limit="2") == [
        events[:2],
        events[2:4],
        events[4:],
    ]


def test_a_dead_event_is_listed_with_its_failure__and_without_its_payload(
    client: ApiClient, kill: Callable[[int], list[str]]
) -> None:
    (event_id,) = kill(1)
    answer = client.get(OUTBOX, query={"status": "dead"})
    (item,) = answer.json["items"]
    assert (item["id"], item["status"], item["retry_count"]) == (event_id, "dead", 1)
    assert (item["failure"]["kind"], item["failure"]["message"]) == ("permanent", "never")
    assert "amount" not in answer.text


def test_a_list_does_not_even_read_payloads(
    client: ApiClient, kill: Callable[[int], list[str]], calls: CallCounter
) -> None:
    kill(1)
    client.get(OUTBOX, query={"status": "dead"})
    read = calls.calls[-1].parameters
    assert len(read["ProjectionExpression"].split(",")) > 10
    assert "payload" not in read["ExpressionAttributeNames"].values()


def test_a_single_event_is_shown_with_its_payload__wherever_it_lies(
    client: ApiClient, runtime: Runtime, outbox: Outbox, kill: Callable[[int], list[str]]
) -> None:
    (dead,) = kill(1)
    sent = outbox.add(payload='{"amount":18}')
    Relay(runtime, FakePublisher()).drain(SHARD)
    pending = outbox.add(payload='{"amount":19}')
    shown = [client.get(f"{OUTBOX}/{event_id}").json for event_id in (dead, sent, pending)]
    assert [each["status"] for each in shown] == ["dead", "sent", "pending"]
    assert [each["payload"] for each in shown] == [{"amount": 17}, {"amount": 18}, {"amount": 19}]


@pytest.mark.parametrize("event_id", ["01JDW3NDEKTSV4RRFFQ69G5FAV-03", "01JDW3NDEKTSV4RRFFQ69G5FAV-99", "nonsense"])
def test_an_event_that_nobody_knows_is_404(client: ApiClient, event_id: str) -> None:
    answer = client.get(f"{OUTBOX}/{event_id}")
    assert (answer.status, answer.json["type"]) == (404, "/problems/no-such-event")


@pytest.mark.parametrize(
    ("path", "query"),
    [
        (OUTBOX, {}),
        (OUTBOX, {"status": "lost"}),
        (OUTBOX, {"status": "pending", "shard": "8"}),
        (OUTBOX, {"status": "pending", "shard": "-1"}),
        (OUTBOX, {"status": "dead", "shard": "1"}),
        (OUTBOX, {"status": "dead", "limit": "0"}),
        (OUTBOX, {"status": "dead", "limit": "101"}),
        (OUTBOX, {"status": "dead", "limit": "ten"}),
        (OUTBOX, {"status": "dead", "lmit": "5"}),
        (OUTBOX, {"status": "dead", "cursor": ""}),
        (OUTBOX, {"status": "dead", "cursor": "e30="}),
        (OUTBOX, {"status": "dead", "cursor": "\ud800"}),
        (LETTERS, {"cursor": "nonsense"}),
        (LETTERS, {"limit": "1000"}),
        (LETTERS, {"page": "2"}),
        (STATUS, {"verbose": "1"}),
        (f"{OUTBOX}/01JDW3NDEKTSV4RRFFQ69G5FAV-03", {"raw": "1"}),
    ],
    ids=str,
)
def test_what_a_route_does_not_know_is_refused(client: ApiClient, path: str, query: dict[str, str]) -> None:
    answer = client.get(path, query=query)
    assert (answer.status, answer.json["type"]) == (400, "/problems/invalid-query")


def test_a_cursor_belongs_to_its_own_list(client: ApiClient, outbox: Outbox, kill: Callable[[int], list[str]]) -> None:
    kill(2)
    for _ in range(2):
        outbox.add()
    cursor = client.get(OUTBOX, query={"status": "dead", "limit": "1"}).json["next_cursor"]
    for query in ({"status": "pending"}, {"status": "sent"}, {"status": "discarded"}):
        assert client.get(OUTBOX, query={**query, "cursor": cursor}).status == 400
    assert client.get(LETTERS, query={"cursor": cursor}).status == 400


# Dead letters


def test_dead_letters_of_every_source_are_listed__page_by_page(
    client: ApiClient, kill: Callable[[int], list[str]], bounce: Callable[[], str]
) -> None:
    events, messages = kill(3), [bounce() for _ in range(3)]
    pages = follow(client, LETTERS, limit="2")
    assert [event_id for page in pages for event_id in page] == events + messages


def test_dead_letters_of_one_source_are_listed_alone__and_say_why(
    client: ApiClient, kill: Callable[[int], list[str]], bounce: Callable[[], str]
) -> None:
    kill(1)
    message = bounce()
    (item,) = client.get(LETTERS, query={"source": CONSUMER}).json["items"]
    assert (item["id"], item["source"], item["state"]) == (message, CONSUMER, "dead")
    assert item["failure"]["message"] == BROKEN.message
    assert "payload" not in item


def test_an_unknown_source_is_404__and_names_those_there_are(client: ApiClient) -> None:
    answer = client.get(LETTERS, query={"source": "blling"})
    assert (answer.status, answer.json["type"]) == (404, "/problems/no-such-source")
    assert CONSUMER in answer.json["detail"]
    assert redrive(client, ["x"], source="blling").status == 404


# Redrive


def test_dead_events_are_pending_again__and_remember_who_and_why(
    runtime: Runtime, deployment: Deployment, kill: Callable[[int], list[str]]
) -> None:
    events = kill(3)
    answer = redrive(ApiClient(api, runtime), events)
    assert (answer.status, answer.json["done"], answer.json["failed"]) == (200, 3, 0)
    assert [each["id"] for each in answer.json["results"]] == events
    row = OutboxRow.get(pending(SHARD), events[0], consistent_read=True)
    (deed,) = json.loads(row.history)
    assert (deed["action"], deed["by"], deed["why"]) == ("redrive", "anybody", "mended")


def test_a_dead_message_is_sent_to_its_consumer_again(
    client: ApiClient, deployment: Deployment, bounce: Callable[[], str]
) -> None:
    message, other = bounce(), bounce()
    answer = redrive(client, [message], source=CONSUMER)
    assert (answer.json["done"], fates(answer)) == (1, ["done"])
    assert waiting(deployment, CONSUMER) == 1
    assert redrive(client, [other], source=CONSUMER, key="key-2").json["done"] == 1


def test_partial_success_is_200__and_says_what_came_of_each(
    client: ApiClient, kill: Callable[[int], list[str]]
) -> None:
    (event_id,) = kill(1)
    absent = "01JDW3NDEKTSV4RRFFQ69G5FAV-03"
    answer = redrive(client, [absent, event_id, "nonsense"])
    assert (answer.status, answer.json["done"], answer.json["failed"]) == (200, 1, 2)
    assert fates(answer) == [Fate.UNKNOWN, Fate.DONE, Fate.UNKNOWN]


def test_a_letter_that_is_named_twice_is_one(client: ApiClient, kill: Callable[[int], list[str]]) -> None:
    (event_id,) = kill(1)
    assert fates(redrive(client, [event_id, event_id])) == ["done"]


def test_the_same_key_answers_as_before__and_moves_nothing_again(
    client: ApiClient, runtime: Runtime, kill: Callable[[int], list[str]]
) -> None:
    events = kill(1)
    first = redrive(client, events)
    Relay(runtime, FakePublisher(lambda _: permanent())).drain(SHARD)
    again = redrive(client, events)
    assert (again.text, again.headers["Idempotent-Replayed"]) == (first.text, "true")
    assert [row.event_id for row in OutboxRow.query(DEAD_PARTITION, consistent_read=True)] == events


def test_another_key_redrives_again__and_what_is_alive_stays_as_it_is(
    client: ApiClient, kill: Callable[[int], list[str]]
) -> None:
    events = kill(1)
    redrive(client, events)
    assert fates(redrive(client, events, key="key-2")) == [Fate.NOT_DEAD]


def test_a_crash_before_the_reply_is_kept_is_repeated_by_the_same_key__with_one_message_in_the_end(
    client: ApiClient,
    deployment: Deployment,
    bounce: Callable[[], str],
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    message = bounce()
    with monkeypatch.context() as patch:
        patch.setattr("mailroom.http.edge.UnitOfWork.commit", die)
        with pytest.raises(Died):
            redrive(client, [message], source=CONSUMER)
    assert waiting(deployment, CONSUMER) == 1
    clock.advance(31)
    assert fates(redrive(client, [message], source=CONSUMER)) == [Fate.NOT_IN_QUEUE]
    assert waiting(deployment, CONSUMER) == 1


def test_what_succeeded_before_runs_again_by_force_alone(
    client: ApiClient, deployment: Deployment, bounce: Callable[[], str]
) -> None:
    message = bounce()
    row = IdempotencyRow(record_id(record_prefix(CONSUMER), message))
    row.update([IdempotencyRow.status.set(COMPLETED)])
    assert fates(redrive(client, [message], source=CONSUMER)) == [Fate.SUCCEEDED_BEFORE]
    assert waiting(deployment, CONSUMER) == 0
    assert fates(redrive(client, [message], source=CONSUMER, key="key-2", force=True)) == ["done"]


def test_a_redrive_stops_in_time__and_says_what_is_left(
    client: ApiClient, kill: Callable[[int], list[str]], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = kill(3)
    monkeypatch.setattr("mailroom.dead_letters.outbox.write", lambda *_: clock.advance(13))
    answer = redrive(client, events)
    assert fates(answer) == [Fate.DONE, Fate.DONE, Fate.NOT_TRIED]
    assert (answer.json["done"], answer.json["failed"]) == (2, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"ids": []},
        {"ids": ["x"] * 251},
        {"ids": [""]},
        {"ids": ["x" * 129]},
        {"ids": "all"},
        {"why": ""},
        {"why": "  \n"},
        {"why": "x" * 201},
        {"source": ""},
        {"force": "yes"},
        {"rate": 1},
    ],
    ids=str,
)
def test_a_redrive_is_refused__that_does_not_say_plainly_what_and_why(client: ApiClient, wrong: dict[str, Any]) -> None:
    answer = redrive(client, ["x"], **wrong) if "ids" not in wrong else redrive(client, **wrong)
    assert (answer.status, answer.json["type"]) == (400, "/problems/invalid-body")


def test_a_redrive_without_a_key_is_refused(client: ApiClient, kill: Callable[[int], list[str]]) -> None:
    body = json.dumps({"source": "outbox", "ids": kill(1), "why": "mended"})
    answer = client.send("POST", REDRIVE, body, {"content-type": "application/json"})
    assert (answer.status, answer.json["type"]) == (400, "/problems/invalid-idempotency-key")
    assert len(list(OutboxRow.query(DEAD_PARTITION, consistent_read=True))) == 1


def test_a_redrive_with_a_parameter_that_it_does_not_know_is_refused__and_moves_nothing(
    client: ApiClient, kill: Callable[[int], list[str]]
) -> None:
    body = json.dumps({"source": "outbox", "ids": kill(1), "why": "mended"})
    headers = {"content-type": "application/json", "idempotency-key": "key-1"}
    assert client.send("POST", REDRIVE, body, headers, query={"dry_run": "1"}).status == 400
    assert len(list(OutboxRow.query(DEAD_PARTITION, consistent_read=True))) == 1


# Identity and status


@pytest.mark.parametrize("path", [OUTBOX, LETTERS, STATUS, f"{OUTBOX}/x"])
def test_nobody_gets_in_without_an_identity__outside_the_laptop(
    runtime: Runtime, calls: CallCounter, path: str
) -> None:
    signed = Runtime(runtime.settings.model_copy(update={"auth": "iam"}), clock=runtime.clock, random=runtime.random)
    assert ApiClient(api, signed).get(path).status == 401
    assert not calls.calls


def test_a_deed_carries_the_callers_own_name(
    runtime: Runtime, deployment: Deployment, kill: Callable[[int], list[str]]
) -> None:
    arn = "arn:aws:sts::111122223333:assumed-role/on-call/somebody"
    identity = {"accountId": "111122223333", "userId": "AROAEXAMPLE:somebody", "userArn": arn}
    signed = Runtime(runtime.settings.model_copy(update={"auth": "iam"}), clock=runtime.clock, random=runtime.random)
    signed.provide(Deployment, deployment)
    (event_id,) = kill(1)
    redrive(ApiClient(api, signed, identity=identity), [event_id])
    (deed,) = json.loads(OutboxRow.get(pending(SHARD), event_id, consistent_read=True).history)
    assert deed["by"] == arn


def test_the_status_shows_shards_consumers_and_jobs(
    client: ApiClient, outbox: Outbox, monkeypatch: pytest.MonkeyPatch, lagging_tables: LaggingReads
) -> None:
    outbox.add()
    lagging_tables.forget()
    monkeypatch.setattr("mailroom.operations.ports.consumer_status", lambda *_: [])
    status = client.get(STATUS).json
    assert status["stage"] == "test"
    assert [shard["pending"] for shard in status["shards"]] == [1 if shard == SHARD else 0 for shard in range(8)]
    assert (status["consumers"], status["jobs"]) == ([], [])


def test_nothing_is_discarded_here(client: ApiClient) -> None:
    assert client.get(OUTBOX, query={"status": DISCARDED}).json == {"items": [], "next_cursor": None}


# Rows that cannot be read


def test_a_row_that_cannot_be_read_is_listed_as_such__among_the_others(client: ApiClient, outbox: Outbox) -> None:
    before, bad, after = (outbox.add() for _ in range(3))
    spoil(bad, retry_count={"S": "0"}, created_at=None)
    answer = client.get(OUTBOX, query={"status": "pending", "shard": str(SHARD)})
    assert answer.status == 200, answer.text
    items = {item["id"]: item for item in answer.json["items"]}
    assert list(items) == [before, bad, after]
    assert [items[each]["unreadable"] for each in (before, after)] == [None, None]
    assert items[bad]["unreadable"]["type"] == UNREADABLE
    assert items[bad]["unreadable"]["message"].startswith("created_at is missing; retry_count is a text")
    assert (items[bad]["created_at"], items[bad]["type"]) == (None, "thing.happened")


def test_a_row_that_cannot_be_read_is_shown_as_it_is(client: ApiClient, outbox: Outbox) -> None:
    bad, good = outbox.add(), outbox.add(payload='{"amount":17}')
    spoil(bad, payload={"S": "{"}, retry_count={"S": "0"}, tags={"SS": ["a"]})
    shown = client.get(f"{OUTBOX}/{bad}").json
    assert shown["payload"] is None
    assert shown["row"]["payload"] == {"S": "{"}
    assert shown["row"]["retry_count"] == {"S": "0"}
    assert shown["row"]["tags"] == {"SS": ["a"]}
    fine = client.get(f"{OUTBOX}/{good}").json
    assert (fine["row"], fine["unreadable"]) == (None, None)


@pytest.mark.parametrize("partition", [pending(5), DEAD_PARTITION])
def test_a_row_whose_key_is_no_events_id_is_shown__wherever_it_lies(
    client: ApiClient, outbox: Outbox, partition: str
) -> None:
    row = raw(outbox.add(), pending(SHARD))
    row |= {"partition": {"S": partition}, "event_id": {"S": "by-hand"}}
    clients.dynamodb().put_item(TableName=OutboxRow.table_name(), Item=row)
    assert client.get(f"{OUTBOX}/by-hand").json["unreadable"]["message"] == "event_id is no event id"


@pytest.mark.parametrize("event_id", ["unheard-of", "x" * 1025])
def test_what_is_no_events_id_and_no_rows_key_is_not_found(client: ApiClient, event_id: str) -> None:
    assert client.get(f"{OUTBOX}/{event_id}").status == 404


def test_a_redrive_of_a_row_that_cannot_be_read_says_so__and_sends_the_others(
    client: ApiClient, kill: Callable[[int], list[str]]
) -> None:
    bad, good = kill(2)
    spoil(bad, DEAD_PARTITION, payload=None)
    answer = redrive(client, [bad, good])
    assert fates(answer) == [Fate.UNREADABLE, Fate.DONE]
    assert answer.json["results"][0]["detail"] == "payload is missing: edit it, or discard it"
