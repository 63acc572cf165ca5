"""Lists of repositories: page by page, each repository once, and no cursor where it does not belong."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from app.api import api
from app.repos import Repo
from app.settings import AppSettings
from mailroom.http.testing import ApiAnswer, ApiClient
from mailroom.runtime import Runtime
from mailroom.settings import Auth
from tests.faults import failing, throttled
from tests.integration.api.conftest import REPOS
from tests.integration.conftest import CallCounter

ROLE = {"accountId": "000000000000", "userId": "AROAEXAMPLE:session-1"}


def having(count: int, owner_id: str = "owner-1") -> list[str]:
    """Put repositories into the table; answer their ids, oldest first."""
    ids = [f"01JDW3NDEKTSV4RRFFQ69G{number:04d}" for number in range(count)]
    with Repo.batch_write() as batch:
        for repo_id in reversed(ids):
            row_id = repo_id if owner_id == "owner-1" else f"{repo_id}-{owner_id}"
            batch.save(Repo(row_id, name="n", owner_id=owner_id, created_at="2030-01-01T00:00:00.000Z", version=1))
    return ids


def page(client: ApiClient, owner_id: str = "owner-1", **query: str) -> ApiAnswer:
    return client.get(REPOS, query={"owner_id": owner_id, **query})


def ids_of(answer: ApiAnswer) -> list[str]:
    return [item["id"] for item in answer.json["items"]]


def cursor_of(client: ApiClient, **query: str) -> str:
    return str(page(client, limit="1", **query).json["next_cursor"])


def on(runtime: Runtime, auth: Auth, **known: Any) -> ApiClient:
    """A client of the same surroundings on a stage that knows its callers."""
    settings = runtime.settings.model_copy(update={"auth": auth})
    stage = Runtime(settings, runtime.of(AppSettings), clock=runtime.clock, random=runtime.random)
    return ApiClient(api, stage, **known)


def test_a_repository_is_listed_as_it_is_shown(client: ApiClient) -> None:
    made = client.post(REPOS, {"name": "a", "owner_id": "owner-1"}, key="k")

    answer = page(client)

    assert (answer.status, answer.json) == (200, {"items": [made.json], "next_cursor": None})


def test_an_owner_without_repositories_has_an_empty_list(client: ApiClient) -> None:
    having(1, "owner-2")

    assert page(client).json == {"items": [], "next_cursor": None}


@pytest.mark.parametrize("limit", ["1", "7", "10", "100"])
def test_every_repository_comes_once_and_in_order__whatever_the_pages(client: ApiClient, limit: str) -> None:
    wanted = having(20)
    having(3, "owner-2")

    found, query = [], {"limit": limit}
    for _ in range(len(wanted) + 1):
        answer = page(client, **query)
        assert len(ids_of(answer)) <= int(limit)
        found += ids_of(answer)
        if answer.json["next_cursor"] is None:
            break
        query["cursor"] = answer.json["next_cursor"]

    assert found == wanted


def test_a_page_has_25__unless_the_request_says_otherwise(client: ApiClient) -> None:
    wanted = having(26)

    assert ids_of(page(client)) == wanted[:25]


def test_a_page_is_one_query_of_the_index__and_reads_no_further(client: ApiClient, calls: CallCounter) -> None:
    having(9)
    calls.calls.clear()

    page(client, limit="3")

    [query] = calls.calls
    assert (query.operation, query.parameters["IndexName"], query.parameters["Limit"]) == ("Query", "of_owner", 3)


def test_what_was_there_all_the_time_comes_once__though_others_come_and_go(client: ApiClient) -> None:
    first, second, third, fourth = having(4)
    start = page(client, limit="2")

    client.delete(f"{REPOS}/{second}")
    having(6)

    following = page(client, limit="100", cursor=start.json["next_cursor"])
    assert ids_of(start) == [first, second]
    assert ids_of(following)[:2] == [third, fourth]


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ({}, "owner_id"),
        ({"owner_id": ""}, "owner_id"),
        ({"owner_id": "a b"}, "owner_id"),
        ({"owner_id": "owner-1,owner-2"}, "owner_id"),
        ({"owner_id": "o" * 65}, "owner_id"),
        *(
            ({"owner_id": "owner-1", "limit": limit}, "limit")
            for limit in ("0", "-1", "100000", "101", "", "ten", "1.5", "1e1", "5,5", "9" * 400)
        ),
        ({"owner_id": "owner-1", "limt": "5"}, "limt"),
        ({"owner_id": "owner-1", "Limit": "5"}, "Limit"),
        ({"owner_id": "owner-1", "": "5"}, "query"),
    ],
    ids=str,
)
def test_a_parameter_is_refused_by_its_name__that_a_list_does_not_take(
    client: ApiClient, calls: CallCounter, query: dict[str, str], parameter: str
) -> None:
    answer = client.get(REPOS, query=query)

    assert (answer.status, answer.json["type"]) == (400, "/problems/invalid-query")
    assert [error["field"] for error in answer.json["errors"]] == [parameter]
    assert not calls.calls


def forged(**attributes: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(attributes).encode()).decode()


def refused(answer: ApiAnswer, calls: CallCounter) -> bool:
    named = answer.status == 400 and [error["field"] for error in answer.json["errors"]] == ["cursor"]
    return named and answer.json["type"] == "/problems/invalid-query" and not calls.calls


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        " ",
        "1",
        "nonsense",
        "e30=",
        "W10=",
        "bnVsbA==",
        "\u00e9",
        "\ud800",
        "A" * 10_000,
        base64.urlsafe_b64encode(b"[" * 50_000).decode(),
        forged(id={"S": "1"}, owner_id={"S": "owner-1"}),
        forged(id={"S": "1"}, owner_id={"S": "owner-1"}, of={"S": "0" * 32}),
        forged(partition={"S": "dead"}, event_id={"S": "1"}),
        forged(place={"S": "pending#00"}, start={"S": ""}),
    ],
    ids=lambda cursor: repr(cursor[:20]),
)
def test_a_cursor_is_refused__that_no_page_ended_with(client: ApiClient, calls: CallCounter, cursor: str) -> None:
    assert refused(page(client, cursor=cursor), calls)


@pytest.mark.parametrize(
    "change",
    [
        {"id": {"S": ""}},
        {"id": {"S": "x" * 3_000}},
        {"id": {"S": "\ud800"}},
        {"id": {"S": "\x00"}},
        {"id": {"N": "1"}},
        {"id": {"S": 1}},
        {"id": "1"},
        {"owner_id": {"S": "owner-2"}},
        {"more": {"S": "1"}},
        {"of": {"S": "0" * 32}},
    ],
    ids=str,
)
def test_a_cursor_is_refused__that_somebody_tampered_with(
    client: ApiClient, calls: CallCounter, change: dict[str, Any]
) -> None:
    having(2)
    key = json.loads(base64.urlsafe_b64decode(cursor_of(client)))
    calls.calls.clear()

    assert refused(page(client, cursor=forged(**{**key, **change})), calls)


def test_a_cursor_is_refused__of_another_owners_list(client: ApiClient, calls: CallCounter) -> None:
    having(2)
    cursor = cursor_of(client)
    calls.calls.clear()

    assert refused(page(client, "owner-2", cursor=cursor), calls)


def test_a_cursor_is_refused__of_another_caller(runtime: Runtime, calls: CallCounter) -> None:
    having(2)
    cursor = cursor_of(on(runtime, "iam", identity=ROLE))
    calls.calls.clear()

    assert refused(page(on(runtime, "iam", identity={**ROLE, "userId": "AROAOTHER:session-1"}), cursor=cursor), calls)


def test_a_role_goes_on_with_its_list__in_another_session(runtime: Runtime) -> None:
    _, second = having(2)
    cursor = cursor_of(on(runtime, "iam", identity=ROLE))

    again = on(runtime, "iam", identity={**ROLE, "userId": "AROAEXAMPLE:session-2"})

    assert ids_of(page(again, cursor=cursor)) == [second]


def test_an_owner_with_a_token_lists_its_own_alone(runtime: Runtime, calls: CallCounter) -> None:
    having(2)
    client = on(runtime, "jwt", claims={"iss": "https://issuer.example", "sub": "owner-1"})
    assert len(ids_of(page(client))) == 2
    calls.calls.clear()

    answer = page(client, "owner-2")

    assert (answer.status, answer.json["type"]) == (403, "/problems/forbidden")
    assert answer.json["errors"][0]["field"] == "owner_id"
    assert not calls.calls


def test_the_caller_is_asked_to_come_back__while_aws_refuses(client: ApiClient) -> None:
    with failing("Query", throttled, times=100):
        assert page(client).status == 503
