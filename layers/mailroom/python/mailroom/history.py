"""What operators did to a row, oldest first: JSON that is bounded in number and in bytes, whoever writes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pynamodb.attributes import UnicodeAttribute

from mailroom.checked_attributes import Flaw, read_json

MAX_HISTORY = 10
"""Deeds that a row remembers."""
MAX_HISTORY_BYTES = 12 * 1024
"""The room that they take in their row, in UTF-8, as DynamoDB counts a text.
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html"""
_TOLD = ("action", "at", "by", "why")


class HistoryAttribute(UnicodeAttribute):
    """A row's history."""

    def deserialize(self, value: str) -> str:
        """Return the text.

        Raises
        ------
        Flaw
            If it is no list of deeds, each with who did what, when and why.
        """
        deeds = read_json(value)
        if not (isinstance(deeds, list) and all(_is_deed(each) for each in deeds)):
            raise Flaw("is no list of deeds")
        return value


def write_history(deeds: Sequence[dict[str, Any]], room: int = MAX_HISTORY_BYTES) -> str:
    """Return the latest deeds as JSON, as many as the room takes: the oldest go first.

    Parameters
    ----------
    room
        Bytes in UTF-8; the empty list takes two, whatever the room.
    """
    kept, size = 0, len("[]")
    while kept < min(len(deeds), MAX_HISTORY):
        size += len(_json(deeds[-1 - kept]).encode()) + len(",")
        if size - len(",") > room:
            break
        kept += 1
    return _json(list(deeds[len(deeds) - kept :]))


def read_history(history: str | None) -> list[dict[str, Any]]:
    """Answer the deeds that a row remembers, oldest first."""
    deeds: list[dict[str, Any]] = json.loads(history) if history else []
    return deeds


def _is_deed(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(name), str) for name in _TOLD)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
