"""Replies: what a route gives back, and the answer that goes over the wire and into idempotency records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from pydantic import BaseModel

from mailroom.returns import WrongReturn


@dataclass(frozen=True, slots=True)
class Reply:
    """What a route gives back.

    Parameters
    ----------
    body
        Written as JSON; None is an empty body.
    location
        Where the new resource is, relative to the host.
    etag
        The entity tag of what the body shows, which `If-Match` can name.
    headers
        Further headers.
    """

    status: int
    body: BaseModel | None = None
    location: str | None = None
    etag: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def answer(self) -> Answer:
        """Write the reply as an answer.

        Raises
        ------
        WrongReturn
            If its body is no model.
        """
        named = {"Location": self.location, "ETag": self.etag}
        headers = {**self.headers, **{name: value for name, value in named.items() if value is not None}}
        if self.body is None:
            return Answer(self.status, headers, None)
        if not isinstance(self.body, BaseModel):
            raise WrongReturn(f"the body of a Reply must be a pydantic model or None, not {type(self.body).__name__}")
        return Answer(self.status, {"Content-Type": "application/json", **headers}, self.body.model_dump_json())


@dataclass(frozen=True, slots=True)
class Answer:
    """A finished answer. Its body is text already, so that a replay repeats it byte for byte."""

    status: int
    headers: Mapping[str, str]
    body: str | None

    def stored(self) -> dict[str, Any]:
        """Write the answer as a record keeps it: `{"status": 201, "headers": {…}, "body": "…"}`."""
        return {"status": self.status, "headers": dict(self.headers), "body": self.body}

    @classmethod
    def of_stored(cls, stored: Mapping[str, Any]) -> Self:
        """Read what `stored` wrote."""
        return cls(stored["status"], stored["headers"], stored["body"])
