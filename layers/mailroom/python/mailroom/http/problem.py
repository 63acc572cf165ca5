"""Problems: every answer that is no success, in the form of RFC 9457.

The document on the wire (`application/problem+json`): `type` (a stable relative URI such as
`/problems/idempotency-key-reused`), `title`, `status`, `detail`, and where they help `errors`
(`[{"field": "owner_id", "detail": "…"}]`) and `trace_id`, which the request's log lines carry
as their correlation id.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NotRequired  # pydantic reads no other before Python 3.12

from pydantic import ValidationError
from typing_extensions import TypedDict

from mailroom import telemetry
from mailroom.failures import message_of
from mailroom.http.reply import Answer

CONTENT_TYPE = "application/problem+json"
MAX_REPORTED = 20
"""Wrong fields that one answer names."""


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """What problems of a kind have in common.

    Parameters
    ----------
    name
        Names the kind for ever: its `type` is `/problems/<name>`.
    """

    status: int
    name: str
    title: str

    @property
    def type(self) -> str:
        """The kind as a relative URI."""
        return f"/problems/{self.name}"


@dataclass(frozen=True, slots=True)
class FieldError:
    """What is wrong with one field of the input, e.g. `FieldError("owner_id", "Field required")`."""

    field: str
    detail: str


class FieldErrorDocument(TypedDict):
    """What is wrong with one field, parameter or header."""

    field: str
    detail: str


class ProblemDocument(TypedDict):
    """A problem as RFC 9457 writes it; `type` tells its kind for ever."""

    type: str
    title: str
    status: int
    detail: str
    errors: NotRequired[list[FieldErrorDocument]]
    trace_id: NotRequired[str]


class Problem(Exception):
    """One problem; the HTTP edge answers it.

    Parameters
    ----------
    detail
        What is wrong this time, for the caller to read: no internals.
    headers
        Headers of the answer, such as `Allow`.
    """

    def __init__(
        self,
        kind: ProblemKind,
        detail: str,
        *,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = dict(headers or {})

    def answer(self) -> Answer:
        """Write the problem as an answer."""
        headers = {"Content-Type": CONTENT_TYPE, **self.headers}
        return Answer(self.kind.status, headers, json.dumps(self._document()))

    def _document(self) -> ProblemDocument:
        document: ProblemDocument = {
            "type": self.kind.type,
            "title": self.kind.title,
            "status": self.kind.status,
            "detail": self.detail,
        }
        if self.errors:
            document["errors"] = [{"field": error.field, "detail": error.detail} for error in self.errors]
        if traceparent := telemetry.traceparent():
            document["trace_id"] = traceparent.split("-")[1]
        return document


def invalid(kind: ProblemKind, error: ValidationError, *, whole: str) -> Problem:
    """Answer the problem that names the wrong fields of an input.

    Parameters
    ----------
    whole
        What to name where no single field is wrong.
    """
    found = error.errors(include_url=False, include_context=False, include_input=False)[:MAX_REPORTED]
    errors = [FieldError(_path(each["loc"]) or whole, message_of(each)) for each in found]
    others = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return Problem(kind, f"{errors[0].field}: {errors[0].detail}{others}", errors=errors)


def _path(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part)[:40] for part in location)
