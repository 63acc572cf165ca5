"""Callers with a token: each sees and changes what is its own, and learns nothing of the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.api import api
from app.settings import AppSettings
from mailroom.http.testing import ApiAnswer, ApiClient
from mailroom.runtime import Runtime
from tests.integration.api.conftest import ORDER, REPOS, Rows
from tests.integration.conftest import CallCounter

ISSUER = "https://issuer.example"
OTHERS = {**ORDER, "owner_id": "owner-2"}
GOOD = {"email": None, "repo_quota": 3}


@pytest.fixture
def jwt(runtime: Runtime) -> Runtime:
    """The same surroundings on a stage that knows its callers by their tokens."""
    settings = runtime.settings.model_copy(update={"auth": "jwt"})
    return Runtime(settings, runtime.of(AppSettings), clock=runtime.clock, random=runtime.random)


@pytest.fixture
def owner(jwt: Runtime) -> ApiClient:
    """`owner-1`."""
    return as_owner(jwt, "owner-1")


@pytest.fixture
def other(jwt: Runtime) -> ApiClient:
    """`owner-2`."""
    return as_owner(jwt, "owner-2")


@pytest.fixture
def others_repo(other: ApiClient) -> str:
    """The path of a repository of `owner-2`."""
    return other.post(REPOS, OTHERS, key="k").headers["Location"]


def as_owner(runtime: Runtime, subject: str, issuer: str = ISSUER) -> ApiClient:
    return ApiClient(api, runtime, claims={"iss": issuer, "sub": subject})


def test_an_owner_does_with_its_own_things_whatever_there_is_to_do(owner: ApiClient) -> None:
    made = owner.post(REPOS, ORDER, key="k")
    path = made.headers["Location"]

    assert made.status == 201
    assert owner.get(path).status == 200
    assert owner.patch(path, {"name": "b"}, if_match='"1"').status == 200
    assert owner.delete(path, if_match='"2"').status == 204
    assert owner.put("/api/v1/owners/owner-1", GOOD).status == 200
    assert owner.get("/api/v1/owners/owner-1").status == 200


def forbidden(answer: ApiAnswer, calls: CallCounter) -> bool:
    named = answer.status == 403 and [error["field"] for error in answer.json["errors"]] == ["owner_id"]
    return named and answer.json["type"] == "/problems/forbidden" and not calls.calls


@pytest.mark.parametrize(
    "ask",
    [
        lambda owner: owner.post(REPOS, OTHERS, key="k"),
        lambda owner: owner.put("/api/v1/owners/owner-2", GOOD),
        lambda owner: owner.get("/api/v1/owners/owner-2"),
    ],
    ids=["create for", "set", "show"],
)
def test_nobody_may_name_another_owner(
    owner: ApiClient, calls: CallCounter, ask: Callable[[ApiClient], ApiAnswer]
) -> None:
    assert forbidden(ask(owner), calls)


@pytest.mark.parametrize("headers", [{}, {"if_match": '"1"'}, {"if_match": '"9"'}, {"idempotency_key": "k"}])
@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
def test_anothers_repository_is_not_there__in_the_very_words_of_one_that_never_was(
    owner: ApiClient, others_repo: str, rows: Rows, method: str, headers: dict[str, str]
) -> None:
    never = f"{REPOS}/01ARZ3NDEKTSV4RRFFQ69G5FAV"

    hidden, missing = (change(owner, method, path, headers) for path in (others_repo, never))

    assert hidden.status == missing.status == 404
    assert same_words(hidden, others_repo) == same_words(missing, never)
    assert ([row["version"] for row in rows("repos")], len(rows("outbox"))) == (["1"], 1)


def change(client: ApiClient, method: str, path: str, headers: dict[str, str]) -> ApiAnswer:
    match method:
        case "PATCH":
            return client.patch(path, {"name": "b"}, **headers)
        case "DELETE":
            return client.delete(path, **headers)
        case _:
            return client.get(path)


def same_words(answer: ApiAnswer, path: str) -> dict[str, Any]:
    document = {name: value for name, value in answer.json.items() if name != "trace_id"}
    return {**document, "detail": document["detail"].replace(path.rpartition("/")[2], "…"), **answer.headers}


def test_a_key_is_its_callers_own__by_issuer_and_subject(jwt: Runtime, owner: ApiClient, rows: Rows) -> None:
    owner.post(REPOS, ORDER, key="k")

    again = owner.post(REPOS, ORDER, key="k")
    same_name = as_owner(jwt, "owner-1", issuer="https://other.example").post(REPOS, ORDER, key="k")

    assert (again.headers["Idempotent-Replayed"], "Idempotent-Replayed" in same_name.headers) == ("true", False)
    assert len(rows("repos")) == 2


@pytest.mark.parametrize("claims", [None, {}, {"sub": "owner-1"}, {"iss": ISSUER}, {"iss": ISSUER, "sub": ""}])
@pytest.mark.parametrize(
    ("method", "path"), [("GET", f"{REPOS}/1"), ("POST", REPOS), ("PATCH", f"{REPOS}/1"), ("DELETE", f"{REPOS}/1")]
)
def test_nobody_gets_in__without_a_subject(
    jwt: Runtime, calls: CallCounter, method: str, path: str, claims: dict[str, str] | None
) -> None:
    answer = ApiClient(api, jwt, claims=claims).send(method, path, "{}")

    assert (answer.status, answer.json["type"]) == (401, "/problems/unauthenticated")
    assert not calls.calls


def test_an_identity_of_another_kind_is_none__on_a_stage_that_wants_tokens(jwt: Runtime) -> None:
    identity = {"accountId": "000000000000", "userId": "AIDAEXAMPLE"}

    assert ApiClient(api, jwt, identity=identity).get(f"{REPOS}/1").status == 401
