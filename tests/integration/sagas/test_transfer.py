"""The transfer of a repository: what callers are told, and what comes of it whoever does what meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError, ParamValidationError

from app.api import api
from app.consumers.sagas import sagas
from app.owners import Owner
from app.repos import Repo
from app.sagas import transfer as module
from app.settings import AppSettings
from mailroom.clients import observed
from mailroom.consumer_edge import ConsumerEdge
from mailroom.failures import Permanent
from mailroom.http.testing import ApiAnswer, ApiClient
from mailroom.outbox.table import OutboxRow
from mailroom.runtime import Runtime
from mailroom.saga import StepCall
from mailroom.saga_row import SagaRow, Status
from mailroom.testing import ManualClock
from tests.faults import failing, throttled

from ..api.conftest import DocumentedClient
from ..api.meanwhile import Meanwhile
from .conftest import Line

REPOS = "/api/v1/repos"


class Moves:
    """The API, and the sagas that it starts."""

    def __init__(self, runtime: Runtime, clock: ManualClock) -> None:
        self.line = Line(runtime, clock)
        self.line.edge = ConsumerEdge(sagas, runtime, self.line.queue)
        self.api = DocumentedClient(api, runtime)
        self._keys = iter(f"key-{number}" for number in range(10_000))

    def quota(self, owner_id: str, quota: int) -> None:
        assert self.api.put(f"/api/v1/owners/{owner_id}", {"email": None, "repo_quota": quota}).status == 200

    def create(self, owner_id: str) -> str:
        answer = self.api.post(REPOS, {"name": "tool", "owner_id": owner_id}, key=next(self._keys))
        assert answer.status == 201, answer.text
        return str(answer.json["id"])

    def transfer(
        self, repo_id: str, new_owner_id: str, *, client: ApiClient | None = None, **headers: str
    ) -> ApiAnswer:
        body = {"new_owner_id": new_owner_id}
        return (client or self.api).post(f"{REPOS}/{repo_id}/transfer", body, key=next(self._keys), **headers)

    def begin(self, repo_id: str, new_owner_id: str) -> str:
        answer = self.transfer(repo_id, new_owner_id)
        assert answer.status == 202, answer.text
        return str(answer.json["saga_id"])

    def step(self) -> None:
        """Let each saga do one step."""
        self.line.carry()
        self.line.deliver()

    def status(self, saga_id: str) -> str:
        return str(self.api.get(f"/api/v1/sagas/{saga_id}").json["status"])

    def owner_of(self, repo_id: str) -> str | None:
        row = next(iter(Repo.query(repo_id, consistent_read=True)), None)
        return row and row.owner_id


def counts() -> dict[str, int]:
    return {owner.id: int(owner.repo_count or 0) for owner in Owner.scan(consistent_read=True)}


def events_of(kind: str) -> list[dict[str, Any]]:
    return [json.loads(row.payload) for row in OutboxRow.scan(consistent_read=True) if row.type == kind]


def failing_step(monkeypatch: pytest.MonkeyPatch, name: str, error: Exception) -> None:
    """Let a step of the deployed saga fail; its definition stays what it is."""

    def fail(data: object, call: StepCall) -> None:
        raise error

    fail.__name__ = name
    steps = [module.Step(fail) if step.name == name else step for step in module.transfer.steps]
    monkeypatch.setattr(
        sagas.function.__self__,  # type: ignore[attr-defined]
        "_definitions",
        {"transfer": module.saga("transfer", data=module.TransferData, steps=steps)},
    )


@pytest.fixture
def moves(runtime: Runtime, clock: ManualClock) -> Moves:
    return Moves(runtime, clock)


# What callers are told


def test_a_transfer_is_accepted__and_where_to_ask_for_it(moves: Moves) -> None:
    answer = moves.transfer(moves.create("a"), "b")
    assert answer.status == 202
    assert answer.headers["Location"] == f"/api/v1/sagas/{answer.json['saga_id']}"
    shown = moves.api.get(answer.headers["Location"])
    assert (shown.status, shown.json["status"], shown.json["failure"]) == (200, "running", None)
    assert shown.json["steps"] == [{"name": name, "state": "not begun"} for name in ("reserve", "move", "release")]


def test_the_same_key_begins_one_transfer(moves: Moves) -> None:
    path = f"{REPOS}/{moves.create('a')}/transfer"
    first, again = (moves.api.post(path, {"new_owner_id": "b"}, key="k") for _ in range(2))
    assert (again.text, again.headers["Idempotent-Replayed"]) == (first.text, "true")
    assert SagaRow.count(consistent_read=True) == 1


def test_nothing_is_begun__when_the_commit_fails(moves: Moves) -> None:
    repo_id = moves.create("a")
    with failing("TransactWriteItems", throttled, times=99):
        assert moves.transfer(repo_id, "b").status == 503
    assert (SagaRow.count(consistent_read=True), events_of("saga.step_requested")) == (0, [])


def test_a_transfer_to_oneself_is_refused(moves: Moves) -> None:
    answer = moves.transfer(moves.create("a"), "a")
    assert (answer.status, answer.json["type"]) == (422, "/problems/same-owner")
    assert SagaRow.count(consistent_read=True) == 0


def test_a_transfer_of_what_is_not_there_is_refused(moves: Moves) -> None:
    answer = moves.transfer("01ARZ3NDEKTSV4RRFFQ69G5FAV", "b")
    assert (answer.status, answer.json["type"]) == (404, "/problems/no-such-repo")


@pytest.mark.parametrize(("tags", "status"), [('"1"', 202), ("*", 202), ('"2"', 412), ('W/"1"', 412), ("1", 400)])
def test_a_transfer_is_begun_in_the_version_that_it_is_for__and_in_no_other(
    moves: Moves, tags: str, status: int
) -> None:
    assert moves.transfer(moves.create("a"), "b", if_match=tags).status == status
    assert SagaRow.count(consistent_read=True) == (1 if status == 202 else 0)


@pytest.mark.parametrize(("headers", "status"), [({"if_match": '"1"'}, 412), ({"if_match": "*"}, 412), ({}, 202)])
def test_a_transfer_learns_of_a_change_at_the_same_moment__if_it_is_for_a_version(
    moves: Moves, headers: dict[str, str], status: int
) -> None:
    repo_id = moves.create("a")
    other = Repo.get(repo_id, consistent_read=True)
    other.version += 1
    changed = Meanwhile("TransactWriteItems", other.save)
    with observed(changed):
        assert moves.transfer(repo_id, "b", **headers).status == status
    assert Repo.get(repo_id, consistent_read=True).version == 2
    assert (SagaRow.count(consistent_read=True), len(events_of("saga.step_requested"))) == (
        (1, 1) if status == 202 else (0, 0)
    )


@pytest.mark.parametrize("body", [{}, {"new_owner_id": ""}, {"new_owner_id": "a b"}, {"new_owner_id": 7}, []])
def test_a_transfer_to_nobody_is_refused(moves: Moves, body: Any) -> None:
    answer = moves.api.post(f"{REPOS}/{moves.create('a')}/transfer", body, key="k")
    assert answer.json["type"] == "/problems/invalid-body"


def test_a_saga_that_is_not_there_is_not_found(moves: Moves) -> None:
    answer = moves.api.get("/api/v1/sagas/01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert (answer.status, answer.json["type"]) == (404, "/problems/no-such-saga")


@pytest.fixture
def as_owner(runtime: Runtime) -> Callable[[str], ApiClient]:
    settings = runtime.settings.model_copy(update={"auth": "jwt"})
    jwt = Runtime(settings, runtime.of(AppSettings), clock=runtime.clock, random=runtime.random)
    return lambda subject: ApiClient(api, jwt, claims={"iss": "https://issuer.example", "sub": subject})


def test_an_owner_gives_away_what_is_its_own__and_nothing_else(
    moves: Moves, as_owner: Callable[[str], ApiClient]
) -> None:
    repo_id = moves.create("a")
    assert moves.transfer(repo_id, "b", client=as_owner("b")).status == 404
    assert moves.transfer(repo_id, "b", client=as_owner("a")).status == 202


def test_a_saga_is_shown_to_whose_repository_it_is_about__and_to_nobody_else(
    moves: Moves, as_owner: Callable[[str], ApiClient]
) -> None:
    path = moves.transfer(moves.create("a"), "b").headers["Location"]
    assert [as_owner(owner).get(path).status for owner in ("a", "b", "c")] == [200, 404, 404]


# What comes of it


def test_a_repository_goes_over__and_both_are_counted_right(moves: Moves) -> None:
    repo_id = moves.create("a")
    saga_id = moves.begin(repo_id, "b")
    moves.line.run()
    assert moves.status(saga_id) == Status.COMPLETED
    assert (moves.owner_of(repo_id), counts()) == ("b", {"a": 0, "b": 1})
    assert events_of("repo.transferred") == [
        {"repo_id": repo_id, "name": "tool", "owner_id": "b", "former_owner_id": "a"}
    ]
    assert [each["state"] for each in moves.api.get(f"/api/v1/sagas/{saga_id}").json["steps"]] == ["done"] * 3


def test_a_place_is_reserved_first__so_that_a_quota_is_never_exceeded(moves: Moves) -> None:
    moves.quota("b", 1)
    saga_id = moves.begin(moves.create("a"), "b")
    moves.step()
    assert moves.api.post(REPOS, {"name": "x", "owner_id": "b"}, key="k").status == 409
    moves.line.run()
    assert (moves.status(saga_id), counts()) == (Status.COMPLETED, {"a": 0, "b": 1})


def test_without_quota_everything_is_as_before__and_says_why(moves: Moves) -> None:
    moves.quota("b", 0)
    repo_id = moves.create("a")
    saga_id = moves.begin(repo_id, "b")
    assert moves.line.run() == 0
    shown = moves.api.get(f"/api/v1/sagas/{saga_id}").json
    assert shown["status"] == Status.COMPENSATED
    assert shown["failure"] == "owner b has as many repositories as the quota allows"
    assert (moves.owner_of(repo_id), counts()) == ("a", {"a": 1, "b": 0})
    assert events_of("repo.transferred") == []


def test_a_rename_meanwhile_does_no_harm(moves: Moves) -> None:
    repo_id = moves.create("a")
    saga_id = moves.begin(repo_id, "b")
    moves.step()
    assert moves.api.patch(f"{REPOS}/{repo_id}", {"name": "renamed"}).status == 200
    moves.line.run()
    assert moves.status(saga_id) == Status.COMPLETED
    assert [each["name"] for each in events_of("repo.transferred")] == ["renamed"]


@pytest.mark.parametrize("steps", [0, 1])
def test_a_repository_that_is_deleted_before_it_moves_goes_nowhere(moves: Moves, steps: int) -> None:
    repo_id = moves.create("a")
    saga_id = moves.begin(repo_id, "b")
    for _ in range(steps):
        moves.step()
    assert moves.api.delete(f"{REPOS}/{repo_id}").status == 204
    moves.line.run()
    shown = moves.api.get(f"/api/v1/sagas/{saga_id}").json
    assert shown["status"] == Status.COMPENSATED
    assert shown["failure"] == f"the repository {repo_id} is not with a any more"
    assert [each["state"] for each in shown["steps"]] == ["undone", "failed", "not begun"]
    assert (moves.owner_of(repo_id), counts()) == (None, {"a": 0, "b": 0})


def test_a_repository_that_its_new_owner_deletes_at_once_is_gone_from_both(moves: Moves) -> None:
    repo_id = moves.create("a")
    saga_id = moves.begin(repo_id, "b")
    moves.step()
    moves.step()
    assert moves.api.delete(f"{REPOS}/{repo_id}").status == 204
    moves.line.run()
    assert (moves.status(saga_id), counts()) == (Status.COMPLETED, {"a": 0, "b": 0})


def test_of_two_transfers_of_one_repository_the_first_to_move_it_wins(moves: Moves) -> None:
    repo_id = moves.create("a")
    first, second = moves.begin(repo_id, "b"), moves.begin(repo_id, "c")
    moves.line.run()
    assert {moves.status(first), moves.status(second)} == {Status.COMPLETED, Status.COMPENSATED}
    owner_id = moves.owner_of(repo_id)
    assert owner_id in {"b", "c"}
    assert counts() == {"a": 0, "b": 0, "c": 0} | {owner_id: 1}


def test_a_transfer_back_while_one_runs_brings_it_back(moves: Moves) -> None:
    repo_id = moves.create("a")
    there = moves.begin(repo_id, "b")
    moves.step()
    moves.step()
    back = moves.begin(repo_id, "a")
    moves.line.run()
    assert [moves.status(there), moves.status(back)] == [Status.COMPLETED] * 2
    assert (moves.owner_of(repo_id), counts()) == ("a", {"a": 1, "b": 0})


def test_two_owners_with_full_quotas_cannot_swap__and_lose_nothing(moves: Moves) -> None:
    moves.quota("a", 1)
    moves.quota("b", 1)
    first, second = moves.create("a"), moves.create("b")
    sagas_ = [moves.begin(first, "b"), moves.begin(second, "a")]
    moves.line.run()
    assert [moves.status(each) for each in sagas_] == [Status.COMPENSATED] * 2
    assert (moves.owner_of(first), moves.owner_of(second), counts()) == ("a", "b", {"a": 1, "b": 1})


# When the last step fails


def test_a_repository_moves_back__when_its_old_place_cannot_be_released(
    moves: Moves, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_step(monkeypatch, "release", Permanent("no"))
    repo_id = moves.create("a")
    saga_id = moves.begin(repo_id, "b")
    moves.line.run()
    assert moves.status(saga_id) == Status.COMPENSATED
    assert (moves.owner_of(repo_id), counts()) == ("a", {"a": 1, "b": 0})
    assert [each["owner_id"] for each in events_of("repo.transferred")] == ["b", "a"]


def test_a_repository_that_its_new_owner_deleted_cannot_move_back__and_is_counted_nowhere(
    moves: Moves, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_step(monkeypatch, "release", Permanent("no"))
    repo_id = moves.create("a")
    saga_id = moves.begin(repo_id, "b")
    for _ in range(3):
        moves.step()
    assert moves.api.delete(f"{REPOS}/{repo_id}").status == 204
    moves.line.run()
    assert (moves.status(saga_id), counts()) == (Status.COMPENSATED, {"a": 0, "b": 0})


ARN = "arn:aws:dynamodb:eu-central-1:123456789012:table/secret"


@pytest.mark.parametrize(
    "error",
    [
        ValueError(ARN),
        ClientError({"Error": {"Code": "ValidationException", "Message": f"no such index: {ARN}"}}, "UpdateItem"),
        ParamValidationError(report=ARN),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_callers_are_told_of_a_failure_is_the_applications_own_word(
    moves: Moves, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    failing_step(monkeypatch, "reserve", error)
    saga_id = moves.begin(moves.create("a"), "b")
    moves.line.run()
    assert moves.api.get(f"/api/v1/sagas/{saga_id}").json["failure"] == "a step could not be done"


def test_the_consumer_is_granted_what_the_transfer_touches__and_the_rows_of_sagas() -> None:
    assert set(sagas.access.writes) == {SagaRow, Repo, Owner}
