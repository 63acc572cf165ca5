"""The example's API in process, over tables that start empty."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.api import ABOUT, api
from mailroom import clients
from mailroom.http.openapi import document
from mailroom.http.testing import ApiAnswer, ApiClient
from mailroom.row import Row
from mailroom.runtime import Runtime

from ..lagging import lagging_tables  # noqa: F401 - for every test here

REPOS = "/api/v1/repos"
ORDER = {"name": "a repository", "owner_id": "owner-1"}

Rows = Callable[[str], list[dict[str, Any]]]


class DocumentedClient(ApiClient):
    """Sends requests, and sees that each answer is one that the document knows."""

    document = document(api, ABOUT)

    def send(self, method: str, path: str, *args: Any, **more: Any) -> ApiAnswer:
        answer = super().send(method, path, *args, **more)
        for route in api.routes:
            if route.method == method and route.matches(path):
                self._check(self.document["paths"][route.path][method.lower()], answer)
        return answer

    def _check(self, operation: dict[str, Any], answer: ApiAnswer) -> None:
        known = operation["responses"][str(answer.status)]
        assert answer.headers.get("Content-Type") == next(iter(known.get("content", {})), None)
        assert {name for name, each in known.get("headers", {}).items() if each.get("required")} <= set(answer.headers)
        if answer.status >= 400:
            _, narrowed = known["content"]["application/problem+json"]["schema"]["allOf"]
            assert answer.json["type"] in narrowed["properties"]["type"]["enum"]


@pytest.fixture
def client(runtime: Runtime) -> ApiClient:
    return DocumentedClient(api, runtime)


@pytest.fixture
def rows(runtime: Runtime) -> Rows:
    """Answers what is in a table, by its short name."""

    def rows(short_name: str) -> list[dict[str, Any]]:
        table = Row.tables[short_name].Meta.table_name
        items = clients.dynamodb().scan(TableName=table, ConsistentRead=True)["Items"]
        return [{name: next(iter(value.values())) for name, value in item.items()} for item in items]

    return rows


@pytest.fixture
def written(rows: Rows) -> Callable[[], int]:
    """Answers how many rows there are in all tables together."""
    return lambda: sum(len(rows(name)) for name in ("repos", "owners", "outbox", "idempotency"))
