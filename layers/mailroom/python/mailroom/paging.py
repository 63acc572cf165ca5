"""Paging through several places as if they were one list: the shards of an outbox, the sources of dead letters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from mailroom.cursor import BadCursor, read_cursor, write_cursor

T = TypeVar("T")
Read = Callable[[str, str | None, int], tuple[list[T], str | None]]
"""Answers some items of a place, from a cursor of its own, so many at most; and the cursor of what follows."""


def page_of(places: Sequence[str], read: Read[T], *, cursor: str | None, limit: int) -> tuple[list[T], str | None]:
    """Answer a page of what the places hold, one after the other, and the cursor of the next page.

    The next page may turn out empty: only the page without a cursor is the last.

    Raises
    ------
    BadCursor
        If the cursor is malformed or belongs to another list.
    """
    place, start = _start(places, cursor)
    found: list[T] = []
    for position in range(places.index(place), len(places)):
        if len(found) == limit:
            return found, _cursor(places[position], None)
        some, start = read(places[position], start, limit - len(found))
        found += some
        if start is not None:
            return found, _cursor(places[position], start)
    return found, None


def _start(places: Sequence[str], cursor: str | None) -> tuple[str, str | None]:
    key = read_cursor(cursor, place=None, start=None)
    if key is None:
        return places[0], None
    place, start = key["place"]["S"], key["start"]["S"] or None
    if place not in places:
        raise BadCursor("the cursor belongs to another list; start again without one")
    return place, start


def _cursor(place: str, start: str | None) -> str | None:
    return write_cursor({"place": {"S": place}, "start": {"S": start or ""}})
