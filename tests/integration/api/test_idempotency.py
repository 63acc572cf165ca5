"""One key, one effect: whatever callers send again, in whatever form, at whatever moment."""

from __future__ import annotations

import json
from threading import Thread
from typing import Any

import pytest

from app.api import api
from app.owners import Owner
from mailroom.clients import observed
from mailroom.http.api import Api
from mailroom.http.call import Call
from mailroom.http.command import Command
from mailroom.http.reply import Reply
from mailroom.http.testing import ApiAnswer, ApiClient
from mailroom.needs import Access
from mailroom.runtime import Runtime
from mailroom.telemetry import metrics
from mailroom.testing import ManualClock
from tests.integration.api.conftest import ORDER, REPOS, Rows
from tests.integration.api.meanwhile import Meanwhile
from tests.integration.conftest import CallCounter

DAY = 86_400
OTHER = {**ORDER, "name": "another"}


class Label(Command):
    text: str


things = Api(access=Access(writes=(Owner,)))


@things.post("/things/{thing_id}/labels", body=Label)
def post_label(command: Label, call: Call, thing_id: str) -> Reply:
    call.work.save(Owner(thing_id, email=command.text))
    return Reply(201)


def post(client: ApiClient, body: str, key: str = "k", **more: Any) -> ApiAnswer:
    return client.send("POST", REPOS, body, {"content-type": "application/json", "idempotency-key": key}, **more)


def test_the_same_answer_comes_back__for_the_same_request(
    client: ApiClient, rows: Rows, calls: CallCounter, clock: ManualClock
) -> None:
    first = client.post(REPOS, ORDER, key="k")
    clock.advance(60)
    calls.calls.clear()

    again = client.post(REPOS, ORDER, key="k")

    assert (again.status, again.text) == (first.status, first.text)
    assert again.headers == {**first.headers, "Idempotent-Replayed": "true"}
    assert "Idempotent-Replayed" not in first.headers
    assert calls.counts == {"UpdateItem": 1}
    assert (len(rows("repos")), len(rows("outbox"))) == (1, 1)


def test_a_replay_is_counted__and_a_first_time_is_not(client: ApiClient, capsys: pytest.CaptureFixture[str]) -> None:
    client.post(REPOS, ORDER, key="k")
    assert "replayed_requests" not in capsys.readouterr().out

    client.post(REPOS, ORDER, key="k")

    line = next(line for line in capsys.readouterr().out.splitlines() if "replayed_requests" in line)
    assert json.loads(line)["replayed_requests"] == [1.0]
    assert not metrics.metric_set


@pytest.mark.parametrize(
    "same",
    [
        '{"owner_id": "owner-1", "name": "a repository"}',
        '{\n  "name": "a repository",\n  "owner_id": "owner-1"\n}\n',
        '{"name":"\\u0061 repository","owner_id":"owner-1"}',
    ],
)
def test_a_request_is_the_same__however_its_json_is_written(client: ApiClient, same: str) -> None:
    first = client.post(REPOS, ORDER, key="k")

    assert post(client, same).text == first.text


def test_a_request_is_the_same__whether_its_key_is_quoted_or_not(client: ApiClient, rows: Rows) -> None:
    answers = [client.post(REPOS, ORDER, key=key) for key in ("abc", '"abc"', " abc ")]

    assert len({answer.text for answer in answers}) == len(rows("repos")) == 1


def test_another_request_is_refused__under_the_same_key(client: ApiClient, rows: Rows, calls: CallCounter) -> None:
    client.post(REPOS, ORDER, key="k")
    calls.calls.clear()

    answer = client.post(REPOS, OTHER, key="k")

    assert (answer.status, answer.json["type"]) == (422, "/problems/idempotency-key-reused")
    assert calls.counts == {"UpdateItem": 1}
    assert len(rows("repos")) == 1


def test_another_query_makes_another_request__under_the_same_key(client: ApiClient) -> None:
    client.post(REPOS, ORDER, key="k")

    assert post(client, json.dumps(ORDER), query={"dry": "1"}).status == 422


def test_another_precondition_makes_another_request__under_the_same_key(client: ApiClient) -> None:
    headers = {"content-type": "application/json", "idempotency-key": "k"}
    client.send("POST", REPOS, json.dumps(ORDER), {**headers, "if-match": '"1"'})

    assert client.send("POST", REPOS, json.dumps(ORDER), {**headers, "If-Match": '"2"'}).status == 422


def test_a_key_is_another_one__for_another_thing_on_the_same_route(runtime: Runtime, rows: Rows) -> None:
    client = ApiClient(things, runtime)
    for thing in ("a", "b"):
        assert client.post(f"/things/{thing}/labels", {"text": "x"}, key="k").status == 201

    assert [row["id"] for row in rows("owners")] == ["a", "b"]


def test_the_refused_request_does_not_spoil_the_key__for_the_right_one(client: ApiClient) -> None:
    first = client.post(REPOS, ORDER, key="k")
    client.post(REPOS, OTHER, key="k")

    assert client.post(REPOS, ORDER, key="k").text == first.text


def test_the_same_request_is_told_to_wait__while_the_first_is_running(client: ApiClient, rows: Rows) -> None:
    meanwhile = Meanwhile("TransactWriteItems", lambda: client.post(REPOS, ORDER, key="k"))
    with observed(meanwhile):
        first = client.post(REPOS, ORDER, key="k")

    assert first.status == 201
    assert meanwhile.answer is not None
    assert (meanwhile.answer.status, meanwhile.answer.json["type"]) == (409, "/problems/request-in-progress")
    assert int(meanwhile.answer.headers["Retry-After"]) >= 1
    assert len(rows("repos")) == 1


def test_another_request_is_refused__even_while_the_first_is_running(client: ApiClient) -> None:
    meanwhile = Meanwhile("TransactWriteItems", lambda: client.post(REPOS, OTHER, key="k"))
    with observed(meanwhile):
        client.post(REPOS, ORDER, key="k")

    assert meanwhile.answer is not None
    assert meanwhile.answer.status == 422


def test_only_one_of_two_commits__when_the_first_outlives_its_time(
    client: ApiClient, rows: Rows, clock: ManualClock
) -> None:
    def take_over() -> ApiAnswer:
        clock.advance(31)
        return client.post(REPOS, ORDER, key="k")

    meanwhile = Meanwhile("TransactWriteItems", take_over)
    with observed(meanwhile):
        late = client.post(REPOS, ORDER, key="k")

    assert meanwhile.answer is not None
    assert (meanwhile.answer.status, late.status) == (201, 409)
    assert (len(rows("repos")), len(rows("outbox"))) == (1, 1)
    assert client.post(REPOS, ORDER, key="k").text == meanwhile.answer.text


def test_a_key_lives_for_a_day__and_is_new_afterwards(client: ApiClient, rows: Rows, clock: ManualClock) -> None:
    client.post(REPOS, ORDER, key="k")
    clock.advance(DAY - 1)
    assert "Idempotent-Replayed" in client.post(REPOS, ORDER, key="k").headers

    clock.advance(2)

    assert "Idempotent-Replayed" not in client.post(REPOS, OTHER, key="k").headers
    assert len(rows("repos")) == 2


def test_a_refused_request_is_not_remembered__so_it_can_succeed_later(client: ApiClient, rows: Rows) -> None:
    client.put("/api/v1/owners/owner-1", {"email": None, "repo_quota": 0})

    assert client.post(REPOS, ORDER, key="k").status == 409

    assert not rows("idempotency")


@pytest.mark.parametrize("header", [None, "", " ", '""', "k" * 256, "ä", "a\tb", "one,two", '"one", "two"', '"open'])
def test_nothing_happens__without_a_well_formed_key(client: ApiClient, calls: CallCounter, header: str | None) -> None:
    headers = {"content-type": "application/json"} | ({} if header is None else {"idempotency-key": header})

    answer = client.send("POST", REPOS, json.dumps(ORDER), headers)

    assert (answer.status, answer.json["type"]) == (400, "/problems/invalid-idempotency-key")
    assert not calls.calls


@pytest.mark.parametrize("name", ["Idempotency-Key", "idempotency-key", "IDEMPOTENCY-KEY"])
def test_the_key_is_found__however_the_header_is_written(client: ApiClient, name: str) -> None:
    headers = {"Content-Type": "application/json", name: "k"}

    assert client.send("POST", REPOS, json.dumps(ORDER), headers).status == 201


def test_requests_side_by_side_have_one_effect__under_one_key(runtime: Runtime, rows: Rows) -> None:
    client = ApiClient(api, runtime)
    answers: list[ApiAnswer] = []
    threads = [Thread(target=lambda: answers.append(client.post(REPOS, ORDER, key="k"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {answer.status for answer in answers} <= {201, 409}
    assert len({answer.text for answer in answers if answer.status == 201}) == 1
    assert (len(answers), len(rows("repos")), len(rows("outbox"))) == (8, 1, 1)
