"""DynamoDB's eventually consistent reads, as they may be answered: out of a table that is behind. moto's never is.

A read that does not ask for consistency sees each item as it was a while ago, by the test's clock. So does every read
of an index, whose items lag each by a time of its own. Consistent reads and transactions see the present.
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.ReadConsistency.html
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from threading import RLock
from types import FrameType
from typing import Any
from zlib import crc32

import pytest
from moto.dynamodb.responses import DynamoHandler

from mailroom.clock import Clock

from .eventual_reads import EVENTUAL_READS

TABLE_LAG = 600
"""Seconds. AWS names no bound: this is longer than every lease and window, after which somebody else reads."""
INDEX_LAG = 60
"""Seconds that an index is behind at most; its least is half of it."""

_WRITES = ("put_item", "update_item", "delete_item", "batch_write_item", "transact_write_items")
_READS = ("get_item", "batch_get_item", "query", "scan")
_PRODUCTION, _TESTS = ("mailroom.", "app.", "functions."), "tests."
_FOR_OTHERS = "mailroom.reading"
"""It takes what a query of somebody else's answers, row by row."""

Key = tuple[Any, Any]
Items = dict[Any, Any]


@dataclass(frozen=True, slots=True)
class _Version:
    """What an item was from a write on; None if there was none."""

    write: int
    since: float
    item: Any


class LaggingReads:
    """Remembers what each item was, and answers eventually consistent reads out of that.

    Parameters
    ----------
    clock
        The clock that the lag goes by; its monotonic time, which nobody sets back.
    """

    def __init__(self, clock: Callable[[], Clock]) -> None:
        self.table_lag, self.index_lag = TABLE_LAG, INDEX_LAG
        self.readers: set[str] = set()
        """The functions that made eventually consistent reads."""
        self._clock = clock
        self._writes = self._indexed = 0
        self._was: dict[str, dict[Key, list[_Version]]] = defaultdict(dict)
        self._one_at_a_time = RLock()

    @contextmanager
    def attached(self) -> Iterator[LaggingReads]:
        """Stand between moto's tables and all who read them inside the block."""
        with pytest.MonkeyPatch.context() as patch:
            for name in _WRITES:
                patch.setattr(DynamoHandler, name, self._remembering(getattr(DynamoHandler, name)))
            for name in _READS:
                patch.setattr(DynamoHandler, name, self._lagging(getattr(DynamoHandler, name)))
            yield self

    def forget(self) -> None:
        """Begin anew: what is there by now was always there."""
        self._was.clear()

    def catch_up_indexes(self) -> None:
        """Let indexes show what is there by now; what is written from here on lags again."""
        self._indexed = self._writes

    def check(self) -> None:
        """Fail if production code made an eventually consistent read for which no reason is given."""
        unlisted = sorted(self.readers - EVENTUAL_READS.keys())
        assert not unlisted, f"tests/eventual_reads.py gives no reason to read without ConsistentRead in {unlisted}"

    # Writes

    def _remembering(self, write: Callable[[DynamoHandler], Any]) -> Callable[[DynamoHandler], Any]:
        @wraps(write)
        def remembering(handler: DynamoHandler) -> Any:
            with self._one_at_a_time:
                tables, touched = handler.dynamodb_backend.tables, list(_touched(handler))
                for table, key in touched:
                    self._was[table].setdefault(key, [_Version(0, float("-inf"), _item(tables[table], key))])
                answer = write(handler)
                self._writes += 1
                for table, key in touched:
                    version = _Version(self._writes, self._clock().monotonic(), _item(tables[table], key))
                    self._was[table][key].append(version)
                return answer

        return remembering

    # Reads

    def _lagging(self, read: Callable[[DynamoHandler], Any]) -> Callable[[DynamoHandler], Any]:
        @wraps(read)
        def lagging(handler: DynamoHandler) -> Any:
            with self._one_at_a_time:
                behind, of_index = list(_not_consistent(handler.body)), "IndexName" in handler.body
                if not behind or self._is_of_a_test(reader(), of_index=of_index):
                    return read(handler)
                with self._as_it_was(handler, behind, of_index=of_index):
                    return read(handler)

        return lagging

    def _is_of_a_test(self, reader: str, *, of_index: bool) -> bool:
        """Answer whether a test looks for itself, at an index: it is shown the present, for which it cannot ask."""
        if reader.startswith(_TESTS):
            assert of_index, f"{reader}: a test's own look at a table asks for consistent_read=True"
            return True
        self.readers.add(reader)
        return False

    @contextmanager
    def _as_it_was(self, handler: DynamoHandler, names: Sequence[str], *, of_index: bool) -> Iterator[None]:
        tables = [handler.dynamodb_backend.get_table(name) for name in names]
        present = [table.items for table in tables]
        for table in tables:
            table.items = self._past(table, of_index=of_index)
        try:
            yield
        finally:
            for table, items in zip(tables, present, strict=True):
                table.items = items

    def _past(self, table: Any, *, of_index: bool) -> Items:
        seen = self._in_index if of_index else self._in_table
        items: Items = {hash_: dict(some) if table.has_range_key else some for hash_, some in table.items.items()}
        for key, versions in self._was[table.name].items():
            latest = next(version for version in reversed(versions) if seen(key, version))
            _put(items, key, latest.item, ranged=table.has_range_key)
        return defaultdict(dict, items)

    def _in_table(self, key: Key, version: _Version) -> bool:
        return self._age(version) >= self.table_lag

    def _in_index(self, key: Key, version: _Version) -> bool:
        own_lag = self.index_lag / (1 + crc32(repr(key).encode()) % 2)
        return version.write <= self._indexed or self._age(version) >= own_lag

    def _age(self, version: _Version) -> float:
        return self._clock().monotonic() - version.since


def _touched(handler: DynamoHandler) -> Iterator[tuple[str, Key]]:
    backend = handler.dynamodb_backend
    for table, request in _requests(handler.body):
        yield table, backend.get_keys_value(backend.get_table(table), request.get("Key") or request["Item"])


def _requests(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    if "TransactItems" in body:
        for each in body["TransactItems"]:
            (operation,) = each.values()
            yield operation["TableName"], operation
    elif "RequestItems" in body:
        for table, requests in body["RequestItems"].items():
            yield from ((table, request) for each in requests for request in each.values())
    else:
        yield body["TableName"], body


def _not_consistent(body: dict[str, Any]) -> Iterator[str]:
    requests = body["RequestItems"] if "RequestItems" in body else {body["TableName"]: body}
    for table, request in requests.items():
        if not request.get("ConsistentRead") or "IndexName" in request:
            yield table


def _item(table: Any, key: Key) -> Any:
    return table.get_item(*key)


def _put(items: Items, key: Key, item: Any, *, ranged: bool) -> None:
    within, name = (items.setdefault(key[0], {}), key[1]) if ranged else (items, key[0])
    if item is None:
        within.pop(name, None)
    else:
        within[name] = item


def reader() -> str:
    """Name the function that makes the present call: the one of production code or of a test that calls the client."""
    for frame in _frames():
        if _module(frame) != _FOR_OTHERS and _module(frame).startswith((*_PRODUCTION, _TESTS)):
            return f"{_module(frame)}.{frame.f_code.co_qualname.partition('.<locals>')[0]}"
    return "an unknown function"


def callers() -> Iterator[str]:
    """Name the modules of the functions that the present call was made in, the innermost first."""
    return map(_module, _frames())


def _frames() -> Iterator[FrameType]:
    """Return who called the client. Within the client are hooks of ours, which stand in the middle of the call."""
    frame: FrameType | None = sys._getframe(1)
    in_client = True
    while frame is not None:
        if _module(frame).startswith("pynamodb.") or (_module(frame), frame.f_code.co_name) == (
            "botocore.client",
            "_api_call",
        ):
            in_client = False
        elif not in_client:
            yield frame
        frame = frame.f_back


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
