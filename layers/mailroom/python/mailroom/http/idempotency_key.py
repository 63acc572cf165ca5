"""Idempotency keys: how they are read, whose they are, and which request they belong to.

https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-07
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mailroom.http import strict_json
from mailroom.http.caller import Caller
from mailroom.http.kinds import INVALID_KEY
from mailroom.http.problem import FieldError, Problem

HEADER = "Idempotency-Key"
MAX_LENGTH = 255

PATTERN = r"^[!-+\--~][ -+\--~]*$"
"""What the header is, as JSON Schema writes it: printable ASCII without a comma."""

_PRINTABLE = re.compile(r"[\x20-\x7e]*")
_QUOTED = re.compile(r'"(?:[^"\\]|\\["\\])*"')
_ESCAPED = re.compile(r'\\(["\\])')


def read_key(header: str | None) -> str:
    """Answer the key of a request: the draft's quoted form (RFC 8941, section 3.3.3) or the bare one.

    Raises
    ------
    Problem
        If there is none, or none that is well formed. A comma is two headers that a proxy joined.
    """
    if header is None:
        raise _invalid("is required: send a new one for each new request, and the same one to repeat a request")
    if not _PRINTABLE.fullmatch(header):
        raise _invalid("must be printable ASCII")
    if "," in header:
        raise _invalid("must be sent once and have no comma")
    key = _unquoted(header.strip())
    if not key.strip():
        raise _invalid("must not be blank")
    if len(key) > MAX_LENGTH:
        raise _invalid(f"has {len(key)} characters; at most {MAX_LENGTH} are taken")
    return key


def scoped(key: str, *, caller: Caller, method: str, path: str) -> str:
    """Answer the key of the record: the same key of another caller, or for another path, is another key.

    It is JSON, which keeps the parts apart whatever characters they have; the record's id is its SHA-256.
    """
    return strict_json.canonical([caller.scope, method, path, key])


def fingerprint(*, body: str, query: Mapping[str, str], if_match: str | None) -> str:
    """Answer what tells a request from another one that has its key; the record keeps its SHA-256.

    The same request has the same JSON value as its body (`strict_json.canonical` says when), the same query
    parameters in any order, and the same If-Match, letter by letter.

    Parameters
    ----------
    body
        The canonical JSON.
    """
    return strict_json.canonical([body, query, if_match])


def _unquoted(value: str) -> str:
    if not value.startswith('"'):
        return value
    if not _QUOTED.fullmatch(value):
        raise _invalid("has an opening quote but is no quoted string")
    return _ESCAPED.sub(r"\1", value[1:-1])


def _invalid(detail: str) -> Problem:
    return Problem(INVALID_KEY, f"{HEADER} {detail}", errors=[FieldError(HEADER, detail)])
