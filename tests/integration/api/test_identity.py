"""Who may call, and whose key is whose."""

from __future__ import annotations

import pytest

from app.api import api
from app.settings import AppSettings
from mailroom.http.testing import ApiClient
from mailroom.runtime import Runtime
from tests.integration.api.conftest import ORDER, REPOS, Rows
from tests.integration.conftest import CallCounter

ACCOUNT = "000000000000"
ROLE = {"accountId": ACCOUNT, "userId": "AROAEXAMPLE:session-1"}


@pytest.fixture
def iam(runtime: Runtime) -> Runtime:
    """The same surroundings on a stage that knows its callers by IAM."""
    settings = runtime.settings.model_copy(update={"auth": "iam"})
    return Runtime(settings, runtime.of(AppSettings), clock=runtime.clock, random=runtime.random)


@pytest.mark.parametrize(
    ("method", "path"), [("GET", f"{REPOS}/1"), ("POST", REPOS), ("PUT", "/api/v1/owners/owner-1")]
)
def test_nobody_gets_in__without_an_identity(iam: Runtime, calls: CallCounter, method: str, path: str) -> None:
    answer = ApiClient(api, iam).send(method, path, "{}")

    assert (answer.status, answer.json["type"]) == (401, "/problems/unauthenticated")
    assert not calls.calls


def test_a_role_finds_its_key_again__in_another_session(iam: Runtime) -> None:
    first = ApiClient(api, iam, identity=ROLE).post(REPOS, ORDER, key="k")

    other = ApiClient(api, iam, identity={**ROLE, "userId": "AROAEXAMPLE:session-2"}).post(REPOS, ORDER, key="k")

    assert (other.status, other.text) == (201, first.text)


@pytest.mark.parametrize("other", [{**ROLE, "userId": "AROAOTHER:session-1"}, {**ROLE, "accountId": "111111111111"}])
def test_a_key_is_the_callers_own__and_nobody_elses(iam: Runtime, rows: Rows, other: dict[str, str]) -> None:
    ApiClient(api, iam, identity=ROLE).post(REPOS, ORDER, key="k")

    answer = ApiClient(api, iam, identity=other).post(REPOS, ORDER, key="k")

    assert "Idempotent-Replayed" not in answer.headers
    assert len(rows("repos")) == 2
