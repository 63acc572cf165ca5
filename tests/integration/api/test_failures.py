"""What goes wrong on the way: the caller learns what to do, nothing half done stays behind, nothing is hidden."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.owners import Owner
from mailroom.http.api import Api
from mailroom.http.call import Call
from mailroom.http.command import Command
from mailroom.http.reply import Reply
from mailroom.http.testing import ApiClient
from mailroom.needs import Access
from mailroom.outbox.event import Event
from mailroom.runtime import Runtime
from tests.faults import failing, refused, throttled, timed_out
from tests.integration.api.conftest import ORDER, REPOS, Rows
from tests.log_lines import Lines


class Inflated(Event, type="test.inflated"):
    text: str = ""
    number: int = 0


class Inflate(Command):
    size: int = 0
    number: int = 0


class Weird(Exception):
    pass


odd = Api(access=Access(writes=(Owner,), publishes=(Inflated,)))


@odd.post("/inflate", body=Inflate)
def inflate(command: Inflate, call: Call) -> Reply:
    call.work.update(Owner("owner-1"), [Owner.repo_quota.set(1)])
    call.work.publish(Inflated(text="x" * command.size, number=command.number * 2**52))
    return Reply(202)


@odd.post("/forget", body=Inflate)
def forget(command: Inflate, call: Call) -> Reply:
    raise Weird("hush: the password is in here")


@odd.get("/write")
def write(call: Call) -> Reply:
    call.work.update(Owner("owner-1"), [Owner.repo_quota.set(1)])
    return Reply(200)


@pytest.fixture
def strange(runtime: Runtime) -> ApiClient:
    return ApiClient(odd, runtime)


@pytest.mark.parametrize(
    ("command", "status", "kind"),
    [
        ({"size": 400_000}, 413, "too-large"),
        ({"number": 4}, 400, "event-refused"),
    ],
)
def test_nothing_is_written__if_the_event_could_never_be_delivered(
    strange: ApiClient, written: Callable[[], int], command: dict[str, int], status: int, kind: str
) -> None:
    answer = strange.post("/inflate", command, key="k")

    assert (answer.status, answer.json["type"]) == (status, f"/problems/{kind}")
    assert "Inflated" in answer.json["detail"] or "test.inflated" in answer.json["detail"]
    assert written() == 0


def test_the_same_key_serves_the_mended_request__after_a_failure(strange: ApiClient) -> None:
    strange.post("/inflate", {"size": 400_000}, key="k")

    assert strange.post("/inflate", {"size": 4}, key="k").status == 202


def test_the_caller_learns_nothing_of_our_insides__but_the_log_does(
    strange: ApiClient, logs: Lines, written: Callable[[], int]
) -> None:
    answer = strange.post("/forget", {}, key="k")

    assert (answer.status, answer.json["type"]) == (500, "/problems/internal")
    assert "hush" not in answer.text
    [line] = logs()
    assert line["message"] == "request failed"
    assert (line["level"], line["route"], line["exception_name"]) == ("ERROR", "POST /forget", "Weird")
    assert line["correlation_id"] == answer.json["trace_id"]
    assert written() == 0


def test_a_get_that_would_write_fails__rather_than_forget_it(strange: ApiClient, written: Callable[[], int]) -> None:
    assert strange.get("/write").status == 500
    assert written() == 0


@pytest.mark.parametrize("operation", ["UpdateItem", "TransactWriteItems"])
@pytest.mark.parametrize("error", [throttled, timed_out, refused("AccessDeniedException")])
def test_the_caller_is_asked_to_come_back__while_aws_refuses(
    client: ApiClient, rows: Rows, operation: str, error: Any
) -> None:
    with failing(operation, error, times=100):
        answer = client.post(REPOS, ORDER, key="k")

    assert (answer.status, answer.json["type"]) == (503, "/problems/unavailable")
    assert int(answer.headers["Retry-After"]) >= 1
    assert not rows("repos")
    assert client.post(REPOS, ORDER, key="k").status == 201


def test_the_answer_is_the_first_one__though_the_commits_own_answer_was_lost(client: ApiClient, rows: Rows) -> None:
    with failing("TransactWriteItems", timed_out, after=True):
        answer = client.post(REPOS, ORDER, key="k")

    assert answer.status == 201
    assert [row["id"] for row in rows("repos")] == [answer.json["id"]]


def test_the_same_key_finds_what_took_effect__after_an_answer_that_left_it_open(client: ApiClient, rows: Rows) -> None:
    with failing("TransactWriteItems", timed_out, after=True, times=100), failing("GetItem", timed_out, times=100):
        assert client.post(REPOS, ORDER, key="k").status in (409, 503)

    again = client.post(REPOS, ORDER, key="k")

    assert (again.status, again.headers["Idempotent-Replayed"]) == (201, "true")
    assert [row["id"] for row in rows("repos")] == [again.json["id"]]


@pytest.mark.parametrize("error", [throttled, timed_out])
def test_a_read_asks_to_come_back_too__while_aws_refuses(client: ApiClient, error: Any) -> None:
    with failing("GetItem", error, times=100):
        assert client.get(f"{REPOS}/1").status == 503


def test_a_refusal_is_logged__without_what_the_caller_sent(client: ApiClient, logs: Lines) -> None:
    client.post(REPOS, {"hush": "hush"}, key="hush")

    [line] = logs()
    assert "hush" not in str(line)
    assert (line["message"], line["status"], line["problem"]) == ("request refused", 400, "invalid-body")


def test_the_runtime_is_made_once__and_not_before_the_first_request(runtime: Runtime) -> None:
    made: list[Runtime] = []

    def make() -> Runtime:
        made.append(runtime)
        return runtime

    client = ApiClient(odd, runtime)
    client._handler = odd.handler(make)
    assert not made

    client.get("/write")
    client.get("/write")

    assert len(made) == 1
