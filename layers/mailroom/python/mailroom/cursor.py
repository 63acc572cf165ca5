"""Cursors: where the next page starts, as a text that callers pass back."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any


class BadCursor(ValueError):
    """A cursor that no page ended with."""


def write_cursor(key: Mapping[str, Any] | None) -> str | None:
    """Write DynamoDB's LastEvaluatedKey; None is the last page."""
    if key is None:
        return None
    return base64.urlsafe_b64encode(json.dumps(key, sort_keys=True, separators=(",", ":")).encode()).decode()


def read_cursor(text: str | None, **expected: str | None) -> dict[str, Any] | None:
    """Read a cursor back.

    Parameters
    ----------
    expected
        The key's attributes, all of them strings, and the value that each must have; None is any.

    Raises
    ------
    BadCursor
        If it is malformed or belongs to another list.
    """
    if text is None:
        return None
    try:
        key = json.loads(base64.b64decode(text.encode(), altchars=b"-_", validate=True))
        values = {name: typed["S"] for name, typed in key.items()}
        json.dumps(values, ensure_ascii=False).encode()  # lone surrogates get this far, and no further
    except (ValueError, binascii.Error, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise BadCursor("the cursor is malformed; start again without one") from error
    fits = values.keys() == expected.keys() and all(isinstance(value, str) for value in values.values())
    if not fits or any(want is not None and values[name] != want for name, want in expected.items()):
        raise BadCursor("the cursor belongs to another list; start again without one")
    return {name: {"S": value} for name, value in values.items()}
