"""A client that calls an API in process, for the tests of whoever declares one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mailroom.http.api import Api
from mailroom.http.idempotency_key import HEADER
from mailroom.runtime import Runtime
from mailroom.testing import LambdaContext


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """What came back; `text` as it would go over the wire."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.text)


class ApiClient:
    """Sends requests to an API as API Gateway does (HTTP API, payload format 2.0).

    Parameters
    ----------
    identity
        What API Gateway's IAM authorizer finds out, e.g. `{"accountId": "…", "userId": "AROA…:session"}`.
    claims
        What its JWT authorizer finds out, e.g. `{"iss": "https://…", "sub": "owner-1"}`.
    """

    def __init__(
        self,
        api: Api,
        runtime: Runtime,
        *,
        identity: Mapping[str, str] | None = None,
        claims: Mapping[str, Any] | None = None,
    ) -> None:
        self._handler = api.handler(lambda: runtime)
        self._authorizer = {
            **({} if identity is None else {"iam": dict(identity)}),
            **({} if claims is None else {"jwt": {"claims": dict(claims), "scopes": None}}),
        }

    def get(self, path: str, *, query: Mapping[str, str] | None = None) -> ApiAnswer:
        """Send a GET."""
        return self.send("GET", path, query=query)

    def put(self, path: str, body: Any) -> ApiAnswer:
        """Send a PUT with a JSON body."""
        return self.send("PUT", path, json.dumps(body), {"content-type": "application/json"})

    def patch(self, path: str, body: Any, **headers: str) -> ApiAnswer:
        """Send a PATCH with a JSON body; `if_match="…"` is the header `if-match`."""
        return self.send("PATCH", path, json.dumps(body), {"content-type": "application/json", **_headers(headers)})

    def delete(self, path: str, **headers: str) -> ApiAnswer:
        """Send a DELETE; `if_match="…"` is the header `if-match`."""
        return self.send("DELETE", path, headers=_headers(headers))

    def post(self, path: str, body: Any, *, key: str, **headers: str) -> ApiAnswer:
        """Send a POST with a JSON body and an idempotency key; `if_match="…"` is the header `if-match`."""
        sent = {"content-type": "application/json", HEADER.lower(): key, **_headers(headers)}
        return self.send("POST", path, json.dumps(body), sent)

    def send(
        self,
        method: str,
        path: str,
        body: str | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        query: Mapping[str, str] | None = None,
        base64_encoded: bool = False,
    ) -> ApiAnswer:
        """Send anything."""
        event = {
            "version": "2.0",
            "routeKey": "$default",
            "rawPath": path,
            "headers": dict(headers or {}),
            "queryStringParameters": dict(query or {}),
            "requestContext": self._context(method, path),
            "body": body,
            "isBase64Encoded": base64_encoded,
        }
        answer = self._handler(event, LambdaContext())
        return ApiAnswer(answer["statusCode"], answer["headers"], answer["body"])

    def _context(self, method: str, path: str) -> dict[str, Any]:
        authorizer = {"authorizer": self._authorizer} if self._authorizer else {}
        return {"stage": "$default", "http": {"method": method, "path": path}, **authorizer}


def _headers(named: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in named.items()}
