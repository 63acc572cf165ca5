"""Reading rows one by one: a row that cannot be read is known as such, and stops no other.

A row may have been written by hand, by another version, or by a mistake: an attribute is missing, of another type, or
holds what it must not. Each page, batch and list is read by the functions here, so that the others of it are read.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Generic, TypeVar

from pynamodb.attributes import Attribute
from pynamodb.pagination import ResultIterator

from mailroom import telemetry
from mailroom.checked_attributes import Flaw
from mailroom.failures import Failure, FailureKind
from mailroom.row import Item, Row
from mailroom.telemetry import LogEvent, Metric

R = TypeVar("R", bound=Row)
Key = str | tuple[str, str]

_KEYS_AT_ONCE = 100
"""https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html"""
UNREADABLE = "UnreadableRow"
"""The type of the failure that such a row has."""


@dataclass(frozen=True, slots=True)
class Unreadable(Generic[R]):
    """A row that cannot be read.

    Parameters
    ----------
    item
        The row as DynamoDB answered it.
    row
        What of it can be read: any other attribute is None. It is for people to look at, never to be saved.
    flaws
        The attributes that cannot be read.
    failure
        Why they cannot; it says nothing of what they hold.
    """

    item: Item
    row: R
    flaws: frozenset[str]
    failure: Failure

    def document(self) -> dict[str, Any]:
        """Return the item as JSON values, each with DynamoDB's type beside it."""
        document: dict[str, Any] = json.loads(json.dumps(self.item, default=_written))
        return document

    def tell(self) -> None:
        """Log that the row was passed over, and count it."""
        told = {"table": self.row.Meta.short_name, "row": self.row.label}
        telemetry.log(LogEvent.ROW_UNREADABLE, failure=self.failure, **told)
        telemetry.count(Metric.ROWS_UNREADABLE)


def read(model: type[R], item: Item, *, without: Collection[str] = ()) -> R | Unreadable[R]:
    """Return an item as a row of the model, or as one that cannot be read.

    Parameters
    ----------
    without
        Attributes that may be absent: they were not asked for, or rows of an older version have none.
    """
    flaws = flaws_of(model, item, without=without)
    legible = {name: typed for name, typed in item.items() if name not in flaws or name in model.key_names()}
    row = model.from_raw_data(legible)
    row.read_from = item
    return Unreadable(item, row, frozenset(flaws), unreadable(flaws)) if flaws else row


def read_page(
    model: type[R], rows: ResultIterator[R], *, without: Collection[str] = ()
) -> tuple[list[R | Unreadable[R]], Mapping[str, Any] | None]:
    """Return the rows of a query or scan, and DynamoDB's key of the page after them.

    Parameters
    ----------
    rows
        What `model.query`, an index's `query` or `model.scan` answered; nothing of it was taken yet.
    without
        See `read`.
    """
    # PynamoDB decodes in the middle of its walk through the pages, where one bad row would end the walk.
    rows._map_fn = lambda item: read(model, item, without=without)
    found: list[Any] = list(rows)
    return found, rows.last_evaluated_key


def read_keys(model: type[R], keys: Iterable[Key]) -> list[R | Unreadable[R]]:
    """Return the rows that these keys have, strongly consistent and in no order; keys without a row have none.

    Parameters
    ----------
    keys
        Hash keys, or pairs of hash and range key.
    """
    ahead = [_key(model, key) for key in dict.fromkeys(keys)]
    found: list[R | Unreadable[R]] = []
    wanted: list[Any] = []
    while wanted or ahead:
        if not wanted:
            wanted, ahead = ahead[:_KEYS_AT_ONCE], ahead[_KEYS_AT_ONCE:]
        items, unread = model._batch_get_page(  # type: ignore[no-untyped-call]
            wanted, consistent_read=True, attributes_to_get=None
        )
        found += [read(model, item) for item in items]
        wanted = unread or []
    return found


def read_one(
    model: type[R], hash_key: str, range_key: str | None = None, *, without: Collection[str] = ()
) -> R | Unreadable[R] | None:
    """Return the row of a key, strongly consistent; None if there is none.

    Parameters
    ----------
    without
        See `read`.
    """
    answer = model._get_connection().get_item(hash_key, range_key=range_key, consistent_read=True)
    return read(model, answer["Item"], without=without) if "Item" in answer else None


class RowUnreadable(Exception):
    """A row that the work needs cannot be read: it will not be, until somebody mends it."""

    def __init__(self, found: Unreadable[Any]) -> None:
        super().__init__(f"{found.row.label} cannot be read: {found.failure.message}")
        self.failure = replace(found.failure, message=str(self))


def names_of(model: type[Row]) -> frozenset[str]:
    """Return the names of a model's attributes as its table has them."""
    return frozenset(each.attr_name for each in model.get_attributes().values())


def row_of(found: R | Unreadable[R]) -> R:
    """Return the row, or what of it can be read, for people to look at."""
    return found.row if isinstance(found, Unreadable) else found


def item_of(found: Row | Unreadable[Any]) -> Item:
    """Return what was read, as DynamoDB answered it."""
    item = found.item if isinstance(found, Unreadable) else found.read_from
    assert item is not None  # noqa: S101 - narrows the type: whatever is read here has it
    return item


def flaw_of(found: Row | Unreadable[Any] | None) -> Failure | None:
    """Return why a row cannot be read; None if it can, or is not there."""
    return found.failure if isinstance(found, Unreadable) else None


def flaws_of(
    model: type[Row], item: Item, only: frozenset[str] | None = None, *, without: Collection[str] = ()
) -> dict[str, str]:
    """Return what is wrong with which attribute of an item.

    Parameters
    ----------
    only
        The attributes that matter; None is all that the model has.
    without
        Those that may be absent, whatever the model says.
    """
    flaws: dict[str, str] = {}
    for name, kind, required, deserialize in _schema(model, only):
        typed = item.get(name)
        if typed is None or "NULL" in typed:
            if required and name not in without:
                flaws[name] = "is missing"
        elif kind not in typed:
            flaws[name] = f"is {_named(next(iter(typed)))} and must be {_named(kind)}"
        elif deserialize is not None and (flaw := _refusal(deserialize, typed[kind])):
            flaws[name] = flaw
    return flaws or model.further_flaws(item)


def unreadable(flaws: Mapping[str, str]) -> Failure:
    """Return the failure of a row with these flaws."""
    return Failure(FailureKind.PERMANENT, UNREADABLE, "; ".join(f"{name} {flaw}" for name, flaw in flaws.items()))


@cache
def _schema(model: type[Row], only: frozenset[str] | None) -> list[tuple[str, str, bool, Callable[[Any], Any] | None]]:
    return [
        (each.attr_name, each.attr_type, not each.null and each.default is None, _checks(each))
        for each in model.get_attributes().values()
        if only is None or each.attr_name in only
    ]


def _checks(attribute: Attribute[Any]) -> Callable[[Any], Any] | None:
    takes_all = type(attribute).deserialize is Attribute.deserialize
    return None if takes_all else attribute.deserialize


def _refusal(deserialize: Callable[[Any], Any], value: Any) -> str | None:
    try:
        deserialize(value)
    except Flaw as flaw:
        return str(flaw)
    except Exception:  # other attributes' errors may repeat the value
        return "cannot be read"
    return None


_NAMES = {
    "S": "a text", "N": "a number", "B": "binary", "BOOL": "a boolean", "M": "a map", "L": "a list",
    "SS": "a set of texts", "NS": "a set of numbers", "BS": "a set of binaries",
}  # fmt: skip


def _named(kind: str) -> str:
    return f"{_NAMES.get(kind, 'of an unknown type')} ({kind})"


def _written(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return sorted(value)  # DynamoDB's sets come as lists, others' doubles may answer sets


def _key(model: type[Row], key: Key) -> dict[str, Any]:
    hash_key, range_key = key if isinstance(key, tuple) else (key, None)
    return dict(zip(model.key_names(), model._serialize_keys(hash_key, range_key), strict=False))
