"""Cursors: what goes out comes back in, and nothing else does."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from mailroom.cursor import BadCursor, read_cursor, write_cursor

KEY = {"partition": {"S": "dead"}, "event_id": {"S": "1"}}


def forged(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


def test_a_cursor_is_read__as_it_was_written() -> None:
    assert read_cursor(write_cursor(KEY), partition="dead", event_id=None) == KEY


def test_the_last_page_has_no_cursor__and_without_one_a_list_begins() -> None:
    assert write_cursor(None) is None
    assert read_cursor(None, partition="dead", event_id=None) is None


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "=",
        "é",
        "\ud800",
        "e30",
        base64.urlsafe_b64encode(b"\xff").decode(),
        base64.urlsafe_b64encode(b"[" * 50_000).decode(),
        forged(None),
        forged([]),
        forged({}),
        forged({"partition": "dead", "event_id": "1"}),
        forged({"partition": {"S": "dead"}}),
        forged({**KEY, "more": {"S": "1"}}),
        forged({**KEY, "partition": {"S": "sent#00"}}),
        forged({**KEY, "event_id": {"N": "1"}}),
        forged({**KEY, "event_id": {"S": 1}}),
        forged({**KEY, "event_id": {"S": None}}),
        forged({**KEY, "event_id": {"S": "\ud800"}}),
    ],
    ids=lambda cursor: repr(cursor[:30]),
)
def test_a_cursor_is_refused__that_is_malformed_or_of_another_list(cursor: str) -> None:
    with pytest.raises(BadCursor):
        read_cursor(cursor, partition="dead", event_id=None)
