"""One key, one effect: whatever callers send again, in whatever form, at whatever moment."""

from __future__ import annotations

import json
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest

from app.api import api
from app.owners import Owner
from mailroom.clients import Call as AwsCall
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
from tests.faults import Died, died, failing, refused
from tests.integration.api.conftest import ORDER, REPOS, Rows
from tests.integration.api.meanwhile import Meanwhile
from tests.integration.conftest import CallCounter

DAY = 86_400
OTHER = {**ORDER, "name": "another"}


class Label(Command):
    text: str
    weight: float = 0


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


@pytest.mark.parametrize("same", ["1", "1.0", "1e0", "10e-1"])
def test_a_request_is_the_same__however_its_number_is_spelt(runtime: Runtime, same: str) -> None:
    client = ApiClient(things, runtime)
    first, again = (label(client, weight) for weight in ("1", same))

    assert (first.status, again.status, again.headers["Idempotent-Replayed"]) == (201, 201, "true")


@pytest.mark.parametrize("other", ["1.0000001", "-1", "0"])
def test_another_number_makes_another_request__under_the_same_key(runtime: Runtime, other: str) -> None:
    client = ApiClient(things, runtime)
    label(client, "1")

    assert label(client, other).status == 422


def label(client: ApiClient, weight: str) -> ApiAnswer:
    headers = {"content-type": "application/json", "idempotency-key": "k"}
    return client.send("POST", "/things/a/labels", f'{{"text": "x", "weight": {weight}}}', headers)


def test_keys_are_different_ones__whatever_characters_tell_them_apart(client: ApiClient, rows: Rows) -> None:
    keys = ["k", "K", "k#", "#k", "k#k", "k|POST", "k'", '["k"]', "k\\", "k/../k", "k%23", "k" * 254, "k" * 255]

    answers = [client.post(REPOS, ORDER, key=key) for key in keys]

    assert {answer.status for answer in answers} == {201}
    assert not any("Idempotent-Replayed" in answer.headers for answer in answers)
    assert len(rows("repos")) == len(rows("idempotency")) == len(keys)


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
    assert (late.status, late.text) == (201, meanwhile.answer.text)
    assert ("Idempotent-Replayed" in meanwhile.answer.headers, "Idempotent-Replayed" in late.headers) == (False, True)
    assert (len(rows("repos")), len(rows("outbox"))) == (1, 1)


def test_a_late_attempt_is_answered_as_its_twin__though_that_used_up_the_quota(
    client: ApiClient, clock: ManualClock
) -> None:
    client.put("/api/v1/owners/owner-1", {"email": None, "repo_quota": 1})

    def take_over() -> ApiAnswer:
        clock.advance(31)
        return client.post(REPOS, ORDER, key="k")

    with observed(Meanwhile("TransactWriteItems", take_over)):
        late = client.post(REPOS, ORDER, key="k")

    assert (late.status, late.headers.get("Idempotent-Replayed")) == (201, "true")


def test_another_request_that_took_the_key_over_answers_for_itself_alone(client: ApiClient, clock: ManualClock) -> None:
    def take_over() -> ApiAnswer:
        clock.advance(31)
        return client.post(REPOS, OTHER, key="k")

    with observed(Meanwhile("TransactWriteItems", take_over)):
        late = client.post(REPOS, ORDER, key="k")

    assert (late.status, late.json["type"]) == (409, "/problems/request-in-progress")


def test_a_late_attempt_writes_nothing__though_the_one_that_took_over_is_not_done_either(
    client: ApiClient, rows: Rows, clock: ManualClock
) -> None:
    def take_over_and_die() -> None:
        clock.advance(31)
        with failing("TransactWriteItems", died), pytest.raises(Died):
            client.post(REPOS, ORDER, key="k")

    with observed(Meanwhile("TransactWriteItems", take_over_and_die)):
        late = client.post(REPOS, ORDER, key="k")

    assert (late.status, late.json["type"]) == (409, "/problems/request-in-progress")
    assert (rows("repos"), rows("outbox")) == ([], [])
    clock.advance(31)
    assert client.post(REPOS, ORDER, key="k").status == 201


def test_nobody_takes_over__before_the_first_attempts_time_is_up(
    client: ApiClient, rows: Rows, clock: ManualClock
) -> None:
    die_at_the_commit(client)
    clock.advance(30)

    answer = client.post(REPOS, ORDER, key="k")

    assert (answer.status, rows("repos")) == (409, [])


def test_exactly_one_takes_over__of_many_that_come_when_the_time_is_up(
    client: ApiClient, rows: Rows, clock: ManualClock
) -> None:
    die_at_the_commit(client)
    clock.advance(31)

    answers = side_by_side(8, lambda: client.post(REPOS, ORDER, key="k"))

    assert {answer.status for answer in answers} <= {201, 409}
    assert len({answer.text for answer in answers if answer.status == 201}) == 1
    assert sum("Idempotent-Replayed" not in answer.headers for answer in answers if answer.status == 201) == 1
    assert (len(answers), len(rows("repos")), len(rows("outbox"))) == (8, 1, 1)


def die_at_the_commit(client: ApiClient) -> None:
    with failing("TransactWriteItems", died), pytest.raises(Died):
        client.post(REPOS, ORDER, key="k")


def test_an_attempt_that_died_after_its_commit_is_answered_from_its_record(client: ApiClient, rows: Rows) -> None:
    with failing("TransactWriteItems", died, after=True), pytest.raises(Died):
        client.post(REPOS, ORDER, key="k")

    answer = client.post(REPOS, ORDER, key="k")

    assert (answer.status, answer.headers["Idempotent-Replayed"]) == (201, "true")
    assert [row["id"] for row in rows("repos")] == [answer.json["id"]]


@pytest.mark.parametrize(("times", "status"), [(1, 201), (100, 409)])
def test_a_request_that_meets_the_commit_of_its_key_waits_a_little__and_is_then_told_to(
    client: ApiClient, times: int, status: int
) -> None:
    with failing("UpdateItem", refused("TransactionConflictException"), times=times):
        answer = client.post(REPOS, ORDER, key="k")

    assert answer.status == status
    assert ("Retry-After" in answer.headers) == (status == 409)


@pytest.mark.parametrize(("times", "status"), [(1, 201), (100, 503)])
def test_a_commit_that_meets_others_is_tried_again__and_then_put_off(
    client: ApiClient, rows: Rows, times: int, status: int
) -> None:
    with failing("TransactWriteItems", conflict, times=times):
        answer = client.post(REPOS, ORDER, key="k")

    assert answer.status == status
    assert len(rows("repos")) == (1 if status == 201 else 0)
    assert client.post(REPOS, ORDER, key="k").status == 201


def conflict(call: AwsCall) -> BaseException:
    error = refused("TransactionCanceledException")(call)
    error.response["CancellationReasons"] = [{"Code": "TransactionConflict"}]  # type: ignore[attr-defined]
    return error


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


@pytest.mark.parametrize(
    "header", [None, "", " ", '""', "k" * 256, "k" * 2_049, "ä", "a\tb", "one,two", '"one", "two"', '"open']
)
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
    answers = side_by_side(8, lambda: client.post(REPOS, ORDER, key="k"))

    assert {answer.status for answer in answers} <= {201, 409}
    assert len({answer.text for answer in answers if answer.status == 201}) == 1
    assert (len(answers), len(rows("repos")), len(rows("outbox"))) == (8, 1, 1)


def side_by_side(count: int, ask: Callable[[], ApiAnswer]) -> list[ApiAnswer]:
    answers: list[ApiAnswer] = []
    threads = [Thread(target=lambda: answers.append(ask())) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers
