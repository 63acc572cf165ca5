"""Repositories over HTTP: what one request reads, writes and answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.owners import Owner
from mailroom.http.testing import ApiClient
from tests.integration.api.conftest import ORDER, REPOS, Rows
from tests.integration.conftest import CallCounter


def test_a_repository_is_made__and_shown_at_its_location(client: ApiClient) -> None:
    made = client.post(REPOS, ORDER, key="k")

    assert made.status == 201
    assert made.headers["Location"] == f"{REPOS}/{made.json['id']}"
    assert made.headers["ETag"] == '"1"'
    assert made.json == {
        "id": made.json["id"],
        "name": "a repository",
        "owner_id": "owner-1",
        "version": 1,
        "created_at": "2030-01-01T00:00:00.000Z",
    }
    shown = client.get(made.headers["Location"])
    assert (shown.status, shown.text, shown.headers["ETag"]) == (200, made.text, '"1"')


def test_row_event_and_answer_are_written_in_one_transaction__of_a_request(
    client: ApiClient, calls: CallCounter
) -> None:
    client.post(REPOS, ORDER, key="k")

    assert calls.counts == {"UpdateItem": 1, "TransactWriteItems": 1}
    items = calls.calls[-1].parameters["TransactItems"]
    assert sorted(next(iter(item.values()))["TableName"] for item in items) == [
        "idempotency-table",
        "outbox-table",
        "owners-table",
        "repos-table",
    ]


def test_the_event_says_what_happened__and_the_repository_remembers_it(client: ApiClient, rows: Rows) -> None:
    repo = client.post(REPOS, ORDER, key="k").json

    [event] = rows("outbox")
    assert (event["type"], event["subject"]) == ("repo.created", f"repos/{repo['id']}")
    assert json.loads(event["payload"]) == {
        "repo_id": repo["id"],
        "name": "a repository",
        "owner_id": "owner-1",
    }
    [row] = rows("repos")
    assert row["last_event_id"] == event["event_id"]


def test_the_event_belongs_to_the_trace__that_the_request_came_with(client: ApiClient, rows: Rows) -> None:
    traceparent = f"00-{'a' * 32}-{'b' * 16}-01"
    headers = {"Content-Type": "application/json", "Idempotency-Key": "k", "TraceParent": traceparent}

    client.send("POST", REPOS, json.dumps(ORDER), headers)

    assert rows("outbox")[0]["traceparent"] == traceparent


def test_white_space_around_a_name_is_dropped__but_not_inside(client: ApiClient) -> None:
    made = client.post(REPOS, {**ORDER, "name": "  two  words\n"}, key="k")

    assert made.json["name"] == "two  words"


def test_a_repository_is_not_found__that_was_never_made(client: ApiClient, calls: CallCounter) -> None:
    answer = client.get(f"{REPOS}/01ARZ3NDEKTSV4RRFFQ69G5FAV")

    assert (answer.status, answer.json["type"]) == (404, "/problems/no-such-repo")
    assert calls.counts == {"GetItem": 1}


@pytest.mark.parametrize("repo_id", ["", "a b", "a%00", "..", "a#b", "ä", "x" * 65, "x" * 3_000, "a/b", "%F0%9F%92%A9"])
def test_a_repository_is_not_looked_for__under_an_id_that_none_can_have(
    client: ApiClient, calls: CallCounter, repo_id: str
) -> None:
    answer = client.get(f"{REPOS}/{repo_id}")

    assert (answer.status, answer.json["type"]) == (404, "/problems/not-found")
    assert not calls.calls


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [("DELETE", REPOS, "GET, POST"), ("PUT", REPOS, "GET, POST"), ("POST", f"{REPOS}/1", "DELETE, GET, PATCH"),
     ("PROPFIND", "/api/v1/owners/owner-1", "GET, PUT")],
)  # fmt: skip
def test_the_answer_says_which_methods_there_are__to_another_one(
    client: ApiClient, method: str, path: str, allow: str
) -> None:
    answer = client.send(method, path)

    assert (answer.status, answer.headers["Allow"]) == (405, allow)
    assert answer.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("path", ["/", "", "/api/v1/repo", "/api/v1/repos/", "/api/v2/repos", "/API/v1/repos"])
def test_the_answer_is_a_problem__at_a_path_that_nobody_declared(client: ApiClient, path: str) -> None:
    answer = client.send("POST", path)

    assert (answer.status, answer.json["type"]) == (404, "/problems/not-found")


class TestQuota:
    """An owner may have so many repositories and no more, though no request reads how many there are."""

    def test_the_quota_lets_so_many_in__and_refuses_the_next(self, client: ApiClient, rows: Rows) -> None:
        client.put("/api/v1/owners/owner-1", {"email": None, "repo_quota": 2})

        answers = [client.post(REPOS, ORDER, key=f"k{number}") for number in range(3)]

        assert [answer.status for answer in answers] == [201, 201, 409]
        assert answers[-1].json["type"] == "/problems/quota-exceeded"
        assert (len(rows("repos")), len(rows("outbox")), len(rows("idempotency"))) == (2, 2, 2)

    def test_a_quota_of_none_lets_nobody_in__not_even_the_first(self, client: ApiClient) -> None:
        client.put("/api/v1/owners/owner-1", {"email": None, "repo_quota": 0})

        assert client.post(REPOS, ORDER, key="k").status == 409

    @pytest.mark.parametrize(
        ("owner", "status"),
        [
            ({}, 201),
            ({"repo_count": 99}, 201),
            ({"repo_count": 100}, 409),
            ({"repo_quota": 1}, 201),
            ({"repo_quota": 0}, 409),
            ({"repo_quota": 200, "repo_count": 199}, 201),
            ({"repo_quota": 200, "repo_count": 200}, 409),
            ({"repo_quota": 1, "repo_count": 5}, 409),
        ],
    )
    def test_the_quota_holds__whatever_the_row_says_and_lacks(
        self, client: ApiClient, owner: dict[str, Any], status: int
    ) -> None:
        Owner("owner-1", **owner).save()

        assert client.post(REPOS, ORDER, key="k").status == status

    def test_a_raised_quota_counts_at_once__for_the_very_same_request(self, client: ApiClient) -> None:
        client.put("/api/v1/owners/owner-1", {"email": None, "repo_quota": 0})
        client.post(REPOS, ORDER, key="k")
        client.put("/api/v1/owners/owner-1", {"email": None, "repo_quota": 1})

        assert client.post(REPOS, ORDER, key="k").status == 201
