"""The document of the API: the same declarations that serve it, in the file and over HTTP."""

from __future__ import annotations

import json
from pathlib import Path

from app.api import ABOUT, api
from app.openapi import written
from mailroom.http.openapi import document
from mailroom.http.testing import ApiClient
from tests.integration.conftest import CallCounter

FILE = Path(__file__).parents[3] / "docs" / "openapi.json"


def test_the_file_is_up_to_date__else_run_make_openapi() -> None:
    assert FILE.read_text(encoding="utf-8") == written()


def test_the_api_shows_its_own_document(client: ApiClient, calls: CallCounter) -> None:
    answer = client.get("/api/v1/openapi.json")

    assert (answer.status, answer.json) == (200, json.loads(written()))
    assert not calls.calls


def test_every_route_is_documented__under_a_name_of_its_own() -> None:
    paths = document(api, ABOUT)["paths"]
    found = [(method.upper(), path) for path, operations in paths.items() for method in operations]
    names = [each["operationId"] for operations in paths.values() for each in operations.values()]

    assert sorted(found) == sorted((route.method, route.path) for route in api.routes)
    assert len(names) == len(set(names))
