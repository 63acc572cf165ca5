"""Repositories over the deployed HTTP API: made, listed page by page, renamed by version, deleted, all of it told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

from boto3.dynamodb.conditions import Key

from local.api import Answer, Api
from mailroom.outbox.event import shard_of_subject
from mailroom.outbox.table import sent

REPOS = "/api/v1/repos"


def create(api: Api, owner_id: str) -> str:
    return api.post(REPOS, {"name": "tool", "owner_id": owner_id}, key=uuid4().hex).headers["location"]


def page(api: Api, owner_id: str, cursor: str | None = None) -> dict[str, Any]:
    more = "" if cursor is None else f"&cursor={cursor.replace('=', '%3D')}"
    answer: dict[str, Any] = api.get(f"{REPOS}?owner_id={owner_id}&limit=2{more}").json()
    return answer


def test_a_list_goes_on_where_its_page_ended(api: Api) -> None:
    owner_id = f"owner-{uuid4().hex[:12]}"
    made = sorted(create(api, owner_id).rpartition("/")[2] for _ in range(3))
    first = page(api, owner_id)
    rest = page(api, owner_id, first["next_cursor"])
    assert [item["id"] for item in (*first["items"], *rest["items"])] == made
    assert api.get(f"{REPOS}?owner_id={owner_id}x&limit=2&cursor={first['next_cursor']}").status == 400


def test_a_version_is_changed_once__and_every_change_is_told_in_order(
    api: Api, table: Callable[[str], Any], eventually: Callable[..., Any]
) -> None:
    path = create(api, f"owner-{uuid4().hex[:12]}")

    def rename(tag: str) -> Answer:
        return api.request("PATCH", path, {"name": "renamed"}, {"if-match": tag})

    assert [rename('"1"').status, rename('"1"').status] == [200, 412]
    assert api.get(path).headers["etag"] == '"2"'
    key = {"idempotency-key": uuid4().hex, "if-match": '"2"'}
    answers = [api.request("DELETE", path, headers=key) for _ in range(2)]
    assert [(each.status, each.headers.get("idempotent-replayed")) for each in answers] == [(204, None), (204, "true")]
    assert api.get(path).status == 404

    subject = path.removeprefix("/api/v1/")
    shard = Key("partition").eq(sent(shard_of_subject(subject)))

    def told() -> list[str]:
        rows = table("outbox").query(KeyConditionExpression=shard, ConsistentRead=True)["Items"]
        return [row["type"] for row in rows if row.get("subject") == subject]

    wanted = ["repo.created", "repo.renamed", "repo.deleted"]
    eventually(lambda: told() == wanted, within=60, what="the events are sent, in order")


def test_the_deployed_api_shows_its_document(api: Api) -> None:
    assert api.get("/api/v1/openapi.json").json()["openapi"] == "3.1.0"
