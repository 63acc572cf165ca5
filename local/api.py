"""Calls the deployed HTTP API."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import urllib3


@dataclass(frozen=True, slots=True)
class Answer:
    """What the API said; header names in lower case."""

    status: int
    headers: dict[str, str]
    text: str

    def json(self) -> Any:
        """Parse the body."""
        return json.loads(self.text)


class Api:
    """An HTTP client of one API: never retries, never follows a redirect, so that tests see what was said."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._pool = urllib3.PoolManager(retries=False, timeout=urllib3.Timeout(connect=5, read=40))

    def request(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        """Send a request; a body that is not bytes goes as JSON."""
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        answer = self._pool.request(
            method,
            self.url + path,
            body=content,
            headers={"content-type": "application/json", **(headers or {})},
            redirect=False,
        )
        return Answer(
            status=answer.status,
            headers={name.lower(): value for name, value in answer.headers.items()},
            text=answer.data.decode(),
        )

    def get(self, path: str) -> Answer:
        """GET a path."""
        return self.request("GET", path)

    def put(self, path: str, body: Any) -> Answer:
        """PUT a body."""
        return self.request("PUT", path, body)

    def post(self, path: str, body: Any, *, key: str) -> Answer:
        """POST a body under an idempotency key."""
        return self.request("POST", path, body, {"idempotency-key": key})
