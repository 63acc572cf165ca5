"""Transfers over the deployed stack: one that arrives, one that is undone, and one that an operator mends."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from local.api import Api
from local.stack import LocalStack
from local.waiting import eventually
from mailroom.saga_consumer import SAGAS
from mailroom.saga_row import Status

from .test_dead_letters import Operator, depth

REPOS = "/api/v1/repos"


@pytest.fixture
def operator() -> Operator:
    return Operator()


class Owners:
    """Owners of this test alone."""

    def __init__(self, api: Api, table: Callable[[str], Any]) -> None:
        self.api, self._table = api, table
        self._mark = uuid4().hex[:8]

    def __call__(self, name: str, *, quota: int = 10) -> str:
        owner_id = f"{name}-{self._mark}"
        assert self.api.put(f"/api/v1/owners/{owner_id}", {"email": None, "repo_quota": quota}).status == 200
        return owner_id

    def create(self, owner_id: str) -> str:
        answer = self.api.post(REPOS, {"name": "tool", "owner_id": owner_id}, key=uuid4().hex)
        assert answer.status == 201, answer.text
        return str(answer.json()["id"])

    def transfer(self, repo_id: str, new_owner_id: str) -> str:
        """Ask for a transfer; answer where the saga is."""
        answer = self.api.post(f"{REPOS}/{repo_id}/transfer", {"new_owner_id": new_owner_id}, key=uuid4().hex)
        assert answer.status == 202, answer.text
        assert answer.headers["location"] == f"/api/v1/sagas/{answer.json()['saga_id']}"
        return answer.headers["location"]

    def saga(self, place: str) -> dict[str, Any]:
        shown: dict[str, Any] = self.api.get(place).json()
        return shown

    def wait_for(self, place: str, status: Status, *, within: float = 90) -> dict[str, Any]:
        eventually(lambda: self.saga(place)["status"] == status, within=within, what=f"the saga is {status}")
        return self.saga(place)

    def count(self, owner_id: str) -> int:
        row = self._table("owners").get_item(Key={"id": owner_id}, ConsistentRead=True)["Item"]
        return int(row.get("repo_count", 0))

    def owner_of(self, repo_id: str) -> str:
        return str(self.api.get(f"{REPOS}/{repo_id}").json()["owner_id"])


@pytest.fixture
def owners(api: Api, table: Callable[[str], Any]) -> Owners:
    return Owners(api, table)


def states(saga: dict[str, Any]) -> list[str]:
    return [step["state"] for step in saga["steps"]]


def test_a_repository_arrives_at_its_new_owner(owners: Owners) -> None:
    before, after = owners("before"), owners("after")
    repo_id = owners.create(before)
    saga = owners.wait_for(owners.transfer(repo_id, after), Status.COMPLETED)
    assert (states(saga), saga["failure"]) == (["done"] * 3, None)
    assert owners.owner_of(repo_id) == after
    assert (owners.count(before), owners.count(after)) == (0, 1)


def test_a_transfer_without_room_leaves_everything_as_it_was(owners: Owners) -> None:
    before, after = owners("before"), owners("after", quota=0)
    repo_id = owners.create(before)
    saga = owners.wait_for(owners.transfer(repo_id, after), Status.COMPENSATED)
    assert states(saga) == ["failed", "not begun", "not begun"]
    assert saga["failure"] == f"owner {after} has as many repositories as the quota allows"
    assert owners.owner_of(repo_id) == before
    assert (owners.count(before), owners.count(after)) == (1, 0)


def gauge(client: Callable[[str], Any], stack: LocalStack) -> int | None:
    """Run the export of metrics now and read `saga_stuck` from its log; None if another run was at work."""
    answer = client("lambda").invoke(FunctionName=stack.functions["metrics_export"], LogType="Tail", Payload=b"{}")
    assert "FunctionError" not in answer, answer["Payload"].read()
    for line in base64.b64decode(answer["LogResult"]).decode().splitlines():
        if '"saga_stuck"' in line and line.startswith("{"):
            value = json.loads(line)["saga_stuck"]
            return int(value[0] if isinstance(value, list) else value)
    return None


@pytest.fixture
def paused(operator: Operator) -> Iterator[None]:
    """Nothing is done for sagas until the test lets it be."""
    operator("pause", SAGAS)
    yield
    operator("resume", SAGAS)


def test_a_stuck_transfer_is_mended_by_an_operator(
    owners: Owners,
    paused: None,
    table: Callable[[str], Any],
    client: Callable[[str], Any],
    stack: LocalStack,
    operator: Operator,
) -> None:
    before, after = owners("before"), owners("after")
    repo_id = owners.create(before)
    place = owners.transfer(repo_id, after)
    saga_id = place.rpartition("/")[2]

    # A repository that no version of the code can read does not move, and a count that is no number goes down nowhere
    put(table("repos"), repo_id, name=1)
    operator("resume", SAGAS)
    eventually(lambda: owners.count(after) == 1, within=60, what="a place is reserved")
    put(table("owners"), after, repo_count="broken")
    saga = owners.wait_for(place, Status.STUCK, within=180)
    assert states(saga) == ["stuck", "failed", "not begun"]

    assert saga_id in [each["id"] for each in operator("saga", "list", "--status", "stuck")["sagas"]]
    assert eventually(lambda: gauge(client, stack), within=90) == 1
    eventually(lambda: depth(client, stack, f"{SAGAS}-dead") == 1, within=90, what="its request is a dead letter")
    shown = operator("saga", "show", saga_id)
    assert shown["trouble"]["because"] == "compensation"

    put(table("owners"), after, repo_count=1)
    words = shlex.split(shown["trouble"]["then"])
    operator(*words[1 : words.index("--stage")], "--yes")
    saga = owners.wait_for(place, Status.COMPENSATED)
    assert states(saga) == ["undone", "failed", "not begun"]
    assert (owners.count(before), owners.count(after)) == (1, 0)
    assert saga_id not in [each["id"] for each in operator("saga", "list")["sagas"]]
    eventually(lambda: gauge(client, stack) == 0, within=120, what="saga_stuck is back to 0")


def put(table: Any, key: str, **values: Any) -> None:
    """Write attributes of a row past all that would have to be kept."""
    for name, value in values.items():
        table.update_item(
            Key={"id": key},
            UpdateExpression="SET #name = :value",
            ExpressionAttributeNames={"#name": name},
            ExpressionAttributeValues={":value": value},
        )
