"""Bodies: from what API Gateway hands over to a validated command, or to a problem that names the field.

A body is `application/json` in UTF-8 (a `charset` parameter may say so and nothing else). No Content-Type,
or another one, is 415: guessing would accept what HTML forms can send from anywhere. So is a body that is
compressed. More than
`MAX_BODY` bytes is 413. Everything else that is wrong is 400.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from email.message import Message
from typing import Any, Generic, TypeVar

from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEventV2
from pydantic import ValidationError

from mailroom.http import strict_json
from mailroom.http.command import Command
from mailroom.http.kinds import INVALID_BODY, TOO_LARGE, UNSUPPORTED_MEDIA_TYPE
from mailroom.http.problem import FieldError, Problem, invalid
from mailroom.http.strict_json import JsonRefused

C = TypeVar("C", bound=Command)

MAX_BODY = 64 * 1024
"""Bytes of a body: far more than any command of ours, far less than a transaction takes."""


@dataclass(frozen=True, slots=True)
class Body(Generic[C]):
    """A body that was read.

    Parameters
    ----------
    canonical
        The JSON without white space and with its names in order: equal for equal requests.
    """

    command: C
    canonical: str


def read_body(event: APIGatewayProxyEventV2, model: type[C]) -> Body[C]:
    """Read and validate the body of a request.

    Raises
    ------
    Problem
        If it is not what the model takes.
    """
    _check_media_type(event.headers.get("content-type") or "")
    _check_encoding(event.headers.get("content-encoding") or "identity")
    text = _text_of(event)
    value = _parsed(text)
    return Body(_validated(model, text), strict_json.canonical(value))


def _check_media_type(content_type: str) -> None:
    header = Message()
    header["Content-Type"] = content_type
    charset = header.get_param("charset", "utf-8")
    if header.get_content_type() != "application/json" or str(charset).lower() not in ("utf-8", "utf8"):
        raise Problem(UNSUPPORTED_MEDIA_TYPE, "send Content-Type: application/json, in UTF-8")


def _check_encoding(encoding: str) -> None:
    if encoding.strip().lower() != "identity":
        # https://www.rfc-editor.org/rfc/rfc9110#section-15.5.16
        raise Problem(
            UNSUPPORTED_MEDIA_TYPE, "send the body as it is, not compressed", headers={"Accept-Encoding": "identity"}
        )


def _text_of(event: APIGatewayProxyEventV2) -> str:
    raw = _bytes_of(event)
    if len(raw) > MAX_BODY:
        raise Problem(TOO_LARGE, f"the body has {len(raw)} bytes; at most {MAX_BODY} are taken")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _refused(f"not UTF-8: {error.reason} at byte {error.start}") from error


def _bytes_of(event: APIGatewayProxyEventV2) -> bytes:
    body = event.get("body") or ""
    try:
        return base64.b64decode(body, validate=True) if event.get("isBase64Encoded") else body.encode("utf-8")
    except (binascii.Error, UnicodeEncodeError, ValueError) as error:
        raise _refused(f"cannot be decoded: {error}") from error


def _parsed(text: str) -> dict[str, Any]:
    if not text.strip():
        raise _refused("empty; a JSON object is wanted")
    try:
        value = strict_json.parse(text)
    except JsonRefused as error:
        raise _refused(error.detail, error.field) from error
    if not isinstance(value, dict):
        raise _refused("no JSON object")
    return value


def _validated(model: type[C], text: str) -> C:
    try:
        # The text, not the parsed value: pydantic's strict JSON mode takes dates and UUIDs from strings.
        return model.model_validate_json(text)
    except ValidationError as error:
        raise invalid(INVALID_BODY, error, whole="body") from error


def _refused(detail: str, field: str = "") -> Problem:
    field = field or "body"
    return Problem(INVALID_BODY, f"{field}: {detail}", errors=[FieldError(field, detail)])
