"""The document, taken at its word: requests of every kind that it describes, and each answer one that it promises."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from requests import PreparedRequest, Request
from schemathesis import Case
from schemathesis.checks import CHECKS
from schemathesis.core.transport import Response

from app.api import ABOUT, api
from app.repos import Repo
from mailroom.http.openapi import document
from mailroom.http.testing import ApiAnswer, ApiClient
from mailroom.runtime import Runtime
from tests import generated

REPO = "01JDW3NDEKTSV4RRFFQ69G5FAV"
EXAMPLES = generated.examples(few=8, all=40)

described = schemathesis.openapi.from_dict(document(api, ABOUT))
checks = CHECKS.get_by_names(
    [
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_schema_conformance",
        "response_headers_conformance",
        "negative_data_rejection",
    ]
)


@pytest.fixture
def fuzzed(runtime: Runtime) -> ApiClient:
    return ApiClient(api, runtime)


@described.parametrize()
@settings(
    max_examples=EXAMPLES,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    # What one example leaves in the tables is the next one's to find.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
)
def test_every_answer_is_one_that_the_document_promises(case: Case, fuzzed: ApiClient) -> None:
    check(case, fuzzed)
    if "repo_id" in case.path_parameters:
        there_is_a_repository()
        case.path_parameters["repo_id"] = REPO
        check(case, fuzzed)


def there_is_a_repository() -> None:
    Repo(REPO, name="n", owner_id="owner-1", created_at="2030-01-01T00:00:00.000Z", version=1).save()


def check(case: Case, client: ApiClient) -> None:
    request = Request(**case.as_transport_kwargs(base_url="https://api.example")).prepare()
    case.validate_response(received(send(client, request), request), checks=checks)


def send(client: ApiClient, request: PreparedRequest) -> ApiAnswer:
    """Send a request as API Gateway hands it over: path and query decoded, what came twice joined by commas."""
    url = urlsplit(str(request.url))
    query: dict[str, str] = {}
    for name, value in parse_qsl(url.query, keep_blank_values=True):
        query[name] = f"{query[name]},{value}" if name in query else value
    body = request.body.encode() if isinstance(request.body, str) else request.body
    return client.send(
        str(request.method),
        unquote(url.path),
        None if body is None else base64.b64encode(body).decode(),
        {name.lower(): text(value) for name, value in request.headers.items()},
        query=query,
        base64_encoded=True,
    )


def text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def received(answer: ApiAnswer, request: PreparedRequest) -> Response:
    return Response(
        status_code=answer.status,
        headers={name.lower(): [value] for name, value in answer.headers.items()},
        content=answer.text.encode(),
        request=request,
        elapsed=0.0,
        verify=False,
    )
