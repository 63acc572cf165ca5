"""The room that an event has in its row: what it takes itself, and what its life adds.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
"""

from __future__ import annotations

from typing import Any

from mailroom.checked_attributes import Flaw
from mailroom.history import HistoryAttribute, read_history, write_history
from mailroom.row import Item

MAX_ITEM_BYTES = 400 * 1024
"""An item may have no more: its names and its values in UTF-8."""
MAX_EVENT_BYTES = 380 * 1024
"""What a fresh event may take; the rest is room for its history (`MAX_HISTORY_BYTES`), and what follows."""
ATTEMPT_BYTES = 2 * 1024
"""Room for what an attempt, a death or a move notes: a failure, moments and counts."""
_NOTED = frozenset({"failure", "next_attempt_at", "retry_count", "untaken_since", "sent_at", "died_at", "expires_at"})


def size_of(item: Item) -> int:
    """Return the bytes of an item as DynamoDB counts them; where it rounds, a few more.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html
    """
    return sum(_bytes(name) + _value_size(typed) for name, typed in item.items())


def is_too_large(item: Item) -> bool:
    """Return whether an item has no room left for what an attempt notes."""
    excess = size_of(item) - _LASTING_BYTES
    return excess > 0 and excess > _noted(item)


def fitted(item: Item) -> Item:
    """Return an item with as much of its history as fits beside the event: the oldest deeds go first."""
    excess = size_of(item) - _noted(item) - _LASTING_BYTES
    if excess <= 0 or "history" not in item:
        return item
    return {**item, "history": _cut_by(excess, item["history"])}


def _noted(item: Item) -> int:
    return size_of({name: typed for name, typed in item.items() if name in _NOTED})


_LASTING_BYTES = MAX_ITEM_BYTES - ATTEMPT_BYTES


def _cut_by(excess: int, typed: Any) -> dict[str, str]:
    try:
        history = HistoryAttribute().deserialize(typed.get("S", ""))
    except Flaw:
        return {"S": "[]"}  # nothing can be kept of what cannot be read, and the event counts for more
    return {"S": write_history(read_history(history), room=_bytes(history) - excess)}


def _value_size(typed: Any) -> int:
    ((kind, value),) = typed.items()
    match kind:
        case "S" | "B":
            return _bytes(value)
        case "N":
            return len(value) // 2 + 1
        case "M":
            return 3 + sum(1 + _bytes(name) + _value_size(inner) for name, inner in value.items())
        case "L":
            return 3 + sum(1 + _value_size(inner) for inner in value)
        case "SS" | "NS" | "BS":
            return sum(_value_size({kind[0]: inner}) for inner in value)
        case _:
            return 1


def _bytes(value: str | bytes) -> int:
    return len(value.encode()) if isinstance(value, str) and not value.isascii() else len(value)
