"""Renaming and deleting repositories: the right version, once, told in order."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.repos import Repo
from mailroom.clients import observed
from mailroom.http.testing import ApiAnswer, ApiClient
from mailroom.testing import ManualClock
from tests.faults import failing, refused, throttled, timed_out
from tests.integration.api.conftest import ORDER, REPOS, Rows
from tests.integration.api.meanwhile import Meanwhile
from tests.integration.conftest import CallCounter

RENAME = {"name": "another name"}


@pytest.fixture
def repo(client: ApiClient) -> str:
    """The path of a repository."""
    return client.post(REPOS, ORDER, key="of the fixture").headers["Location"]


def change(client: ApiClient, method: str, path: str, **headers: str) -> ApiAnswer:
    return client.patch(path, RENAME, **headers) if method == "PATCH" else client.delete(path, **headers)


def of_type(rows: Rows, kind: str) -> list[dict[str, Any]]:
    return [event for event in rows("outbox") if event["type"] == kind]


both = pytest.mark.parametrize("method", ["PATCH", "DELETE"])


# What they do


def test_a_repository_has_its_new_name_and_version__in_the_answer_and_afterwards(client: ApiClient, repo: str) -> None:
    answer = client.patch(repo, RENAME)

    assert (answer.status, answer.json["name"], answer.json["version"]) == (200, "another name", 2)
    assert answer.headers["ETag"] == '"2"'
    shown = client.get(repo)
    assert (shown.text, shown.headers["ETag"]) == (answer.text, '"2"')


def test_a_repository_is_gone__after_its_deletion(client: ApiClient, repo: str, rows: Rows) -> None:
    answer = client.delete(repo)

    assert (answer.status, answer.text, dict(answer.headers)) == (204, "", {})
    assert (client.get(repo).status, rows("repos")) == (404, [])


def test_a_deleted_repository_makes_room_for_another__within_the_quota(client: ApiClient, rows: Rows) -> None:
    client.put("/api/v1/owners/owner-1", {"email": None, "repo_quota": 1})
    made = client.post(REPOS, ORDER, key="k-1")
    assert client.post(REPOS, ORDER, key="k-2").status == 409

    client.delete(made.headers["Location"])

    assert rows("owners")[0]["repo_count"] == "0"
    assert client.post(REPOS, ORDER, key="k-2").status == 201


def test_a_rename_reads_once_and_writes_once__row_and_event_together(
    client: ApiClient, repo: str, calls: CallCounter
) -> None:
    client.patch(repo, RENAME)

    assert calls.counts == {"GetItem": 1, "TransactWriteItems": 1}
    assert tables_of(calls) == ["outbox-table", "repos-table"]


def test_a_deletion_takes_the_row_tells_of_it_and_counts_it__together(
    client: ApiClient, repo: str, calls: CallCounter
) -> None:
    client.delete(repo)

    assert calls.counts == {"GetItem": 1, "TransactWriteItems": 1}
    assert tables_of(calls) == ["outbox-table", "owners-table", "repos-table"]


def tables_of(calls: CallCounter) -> list[str]:
    items = calls.calls[-1].parameters["TransactItems"]
    return sorted(next(iter(item.values()))["TableName"] for item in items)


def test_the_events_say_what_happened(client: ApiClient, repo: str, rows: Rows) -> None:
    client.patch(repo, RENAME)
    client.delete(repo)

    repo_id = repo.rpartition("/")[2]
    [renamed], [deleted] = of_type(rows, "repo.renamed"), of_type(rows, "repo.deleted")
    assert json.loads(renamed["payload"]) == {
        "repo_id": repo_id,
        "name": "another name",
        "former_name": "a repository",
        "owner_id": "owner-1",
    }
    assert json.loads(deleted["payload"]) == {"repo_id": repo_id, "name": "another name", "owner_id": "owner-1"}


def test_the_events_of_a_repository_form_a_chain__though_the_clock_goes_backwards(
    client: ApiClient, repo: str, rows: Rows, clock: ManualClock
) -> None:
    clock.jump(-3_600)
    client.patch(repo, RENAME)
    client.delete(repo)

    created, renamed, deleted = (of_type(rows, f"repo.{what}")[0] for what in ("created", "renamed", "deleted"))
    assert (renamed["after"], deleted["after"]) == (created["event_id"], renamed["event_id"])
    assert created["event_id"] < renamed["event_id"] < deleted["event_id"]
    assert len({event["partition"] for event in (created, renamed, deleted)}) == 1


def test_a_rename_to_the_same_name_changes_nothing__and_tells_nobody(
    client: ApiClient, repo: str, rows: Rows, calls: CallCounter
) -> None:
    calls.calls.clear()

    answer = client.patch(repo, {"name": f" {ORDER['name']} "})

    assert (answer.status, answer.headers["ETag"]) == (200, '"1"')
    assert (calls.counts, of_type(rows, "repo.renamed")) == ({"GetItem": 1}, [])


@both
def test_nothing_is_done_to_a_repository__that_is_not_there(client: ApiClient, method: str, rows: Rows) -> None:
    answer = change(client, method, f"{REPOS}/01ARZ3NDEKTSV4RRFFQ69G5FAV", if_match='"1"')

    assert (answer.status, answer.json["type"]) == (404, "/problems/no-such-repo")
    assert (rows("owners"), rows("outbox")) == ([], [])


@pytest.mark.parametrize(
    "body", [{}, {"name": ""}, {"name": 7}, {"name": "x" * 101}, {**RENAME, "owner_id": "o-2"}, []]
)
def test_a_rename_is_refused__that_is_none(client: ApiClient, repo: str, calls: CallCounter, body: Any) -> None:
    calls.calls.clear()

    assert client.patch(repo, body).json["type"] == "/problems/invalid-body"
    assert not calls.calls


# Which version they are for


@both
@pytest.mark.parametrize("tags", ['"1"', "*", '"7", "1"'])
def test_a_change_is_made__to_the_version_that_it_is_for(client: ApiClient, repo: str, method: str, tags: str) -> None:
    assert change(client, method, repo, if_match=tags).status in (200, 204)


@both
@pytest.mark.parametrize("tags", ['"2"', 'W/"1"', '"7", "8"', '""'])
def test_a_change_is_refused__that_is_for_another_version(
    client: ApiClient, repo: str, rows: Rows, method: str, tags: str
) -> None:
    answer = change(client, method, repo, if_match=tags)

    assert (answer.status, answer.json["type"]) == (412, "/problems/stale")
    assert '"1"' in answer.json["detail"]
    assert ([row["version"] for row in rows("repos")], len(rows("outbox"))) == (["1"], 1)


@both
@pytest.mark.parametrize("tags", ["", "1", '"1', '"1" "2"', "one"])
def test_a_precondition_is_refused_by_its_name__that_is_malformed(
    client: ApiClient, repo: str, calls: CallCounter, method: str, tags: str
) -> None:
    calls.calls.clear()

    answer = change(client, method, repo, if_match=tags)

    assert (answer.status, answer.json["type"]) == (400, "/problems/invalid-if-match")
    assert answer.json["errors"][0]["field"] == "If-Match"
    assert not calls.calls


@both
@pytest.mark.parametrize(("headers", "status"), [({"if_match": '"1"'}, 412), ({"if_match": "*"}, 412), ({}, 409)])
def test_of_two_changes_at_once_one_is_made__and_the_other_one_learns_it(
    client: ApiClient, repo: str, rows: Rows, method: str, headers: dict[str, str], status: int
) -> None:
    meanwhile = Meanwhile("TransactWriteItems", lambda: client.patch(repo, {"name": "faster"}))
    with observed(meanwhile):
        slower = change(client, method, repo, **headers)

    assert meanwhile.answer is not None
    assert (meanwhile.answer.status, slower.status) == (200, status)
    assert [row["name"] for row in rows("repos")] == ["faster"]
    assert len(rows("outbox")) == 2
    assert rows("owners")[0]["repo_count"] == "1"


# Under a key


@both
def test_the_same_answer_comes_back__under_a_key(client: ApiClient, repo: str, rows: Rows, method: str) -> None:
    first = change(client, method, repo, idempotency_key="k", if_match='"1"')

    again = change(client, method, repo, idempotency_key="k", if_match='"1"')

    assert first.status in (200, 204)
    assert (again.status, again.text) == (first.status, first.text)
    assert again.headers == {**first.headers, "Idempotent-Replayed": "true"}
    assert (len(rows("outbox")), rows("owners")[0]["repo_count"]) == (2, "1" if method == "PATCH" else "0")


@both
def test_the_version_is_gone__for_a_repeated_change_without_a_key(client: ApiClient, repo: str, method: str) -> None:
    change(client, method, repo, if_match='"1"')

    assert change(client, method, repo, if_match='"1"').status == (412 if method == "PATCH" else 404)


@both
def test_another_precondition_makes_another_request__under_the_same_key(
    client: ApiClient, repo: str, method: str
) -> None:
    change(client, method, repo, idempotency_key="k", if_match='"1"')

    assert change(client, method, repo, idempotency_key="k", if_match='"2"').status == 422


def test_another_name_makes_another_request__under_the_same_key(client: ApiClient, repo: str) -> None:
    client.patch(repo, RENAME, idempotency_key="k")

    assert client.patch(repo, {"name": "a third"}, idempotency_key="k").status == 422


def test_a_key_is_another_one__for_another_method_on_the_same_path(client: ApiClient, repo: str) -> None:
    assert client.patch(repo, RENAME, idempotency_key="k").status == 200
    assert client.delete(repo, idempotency_key="k").status == 204


def test_a_rename_that_changes_nothing_is_remembered_too__under_its_key(client: ApiClient, repo: str) -> None:
    client.patch(repo, {"name": ORDER["name"]}, idempotency_key="k")
    client.patch(repo, RENAME)

    again = client.patch(repo, {"name": ORDER["name"]}, idempotency_key="k")

    assert (again.json["version"], again.headers["Idempotent-Replayed"]) == (1, "true")
    assert client.get(repo).json["name"] == "another name"


@both
def test_a_refused_change_is_not_remembered(client: ApiClient, repo: str, method: str) -> None:
    assert change(client, method, repo, idempotency_key="k", if_match='"7"').status == 412

    assert change(client, method, repo, idempotency_key="k", if_match='"1"').status in (200, 204)


@both
@pytest.mark.parametrize("key", ["", " ", '""', "k" * 256, "k" * 2_049, "ä", "one,two", '"open'])
def test_a_key_that_is_sent_must_be_one(
    client: ApiClient, repo: str, calls: CallCounter, method: str, key: str
) -> None:
    calls.calls.clear()

    answer = change(client, method, repo, idempotency_key=key)

    assert (answer.status, answer.json["type"]) == (400, "/problems/invalid-idempotency-key")
    assert not calls.calls


@both
def test_the_answer_is_the_first_one__though_the_commits_own_answer_was_lost(
    client: ApiClient, repo: str, rows: Rows, method: str
) -> None:
    with failing("TransactWriteItems", timed_out, after=True):
        answer = change(client, method, repo, idempotency_key="k", if_match='"1"')

    assert answer.status in (200, 204)
    assert len(rows("outbox")) == 2


@both
@pytest.mark.parametrize("error", [throttled, timed_out, refused("AccessDeniedException")])
@pytest.mark.parametrize("operation", ["GetItem", "TransactWriteItems"])
def test_the_caller_is_asked_to_come_back__while_aws_refuses(
    client: ApiClient, repo: str, method: str, operation: str, error: Any
) -> None:
    with failing(operation, error, times=100):
        answer = change(client, method, repo)

    assert (answer.status, answer.json["type"]) == (503, "/problems/unavailable")
    assert Repo.get(repo.rpartition("/")[2], consistent_read=True).version == 1
