"""Which dead letters are meant, and lists of them that read no further than they are asked to."""

from __future__ import annotations

from dataclasses import dataclass, field

from mailroom.cursor import BadCursor
from mailroom.dead_letters.desk import Desk
from mailroom.dead_letters.filter import Filter
from mailroom.dead_letters.letter import DeadLetter
from mailroom.dead_letters.queue import LOOKED_AT

_READ = 1_000
"""Letters that one answer looks through at most in search of those that a filter keeps."""


@dataclass(slots=True)
class Listing:
    """Some letters.

    Parameters
    ----------
    cursor
        Where the next page starts; None is the end.
    whole
        The sources that were read from their beginning to their end.
    retrying
        How many of those read a consumer still tries: they are no dead letters, and not among the letters
        unless asked for.
    """

    letters: list[DeadLetter] = field(default_factory=list)
    cursor: str | None = None
    whole: set[str] = field(default_factory=set)
    retrying: int = 0
    looked_at: int = 0


class Lister:
    """Reads one page of a desk's letters, source by source.

    Parameters
    ----------
    limit
        How many letters one page has; None is all.
    retrying
        Also list what consumers still try.
    """

    def __init__(self, desk: Desk, wanted: Filter, *, limit: int | None, retrying: bool = False) -> None:
        self._desk = desk
        self._wanted = wanted
        self._limit = limit
        self._retrying = retrying

    def page(self, *, source: str | None = None, cursor: str | None = None) -> Listing:
        """Read a page.

        Raises
        ------
        UnknownSource, BadCursor
            If there is no such source, or no page ended with the cursor.
        """
        names = [self._desk.of(source).name] if source else self._desk.sources
        first, inner = _split(cursor, names)
        listing = Listing()
        ahead = names[names.index(first) :]
        for name in ahead:
            stopped_at = self._read(listing, name, inner)
            if stopped_at is None and inner is None:
                listing.whole.add(name)
            following = ahead[ahead.index(name) + 1 :]
            if stopped_at is not None or (following and self._is_full(listing)):
                listing.cursor = f"{name}:{stopped_at}" if stopped_at else f"{following[0]}:"
                return listing
            inner = None
        return listing

    def _read(self, listing: Listing, name: str, cursor: str | None) -> str | None:
        """Add a source's letters until there are enough; answer where it stopped, None at the source's end."""
        letters = self._desk.of(name)
        while True:
            room = LOOKED_AT if self._limit is None else self._limit - len(listing.letters)
            page, cursor = letters.page(cursor, limit=room)
            self._add(listing, page)
            if cursor is None or self._is_full(listing):
                return cursor

    def _add(self, listing: Listing, page: list[DeadLetter]) -> None:
        listing.looked_at += len(page)
        for letter in filter(self._wanted.keeps, page):
            is_dead = letter.state == "dead"
            listing.retrying += not is_dead
            if is_dead or self._retrying:
                listing.letters.append(letter)

    def _is_full(self, listing: Listing) -> bool:
        if self._limit is None:
            return False
        return len(listing.letters) >= self._limit or listing.looked_at >= _READ


def _split(cursor: str | None, names: list[str]) -> tuple[str, str | None]:
    if cursor is None:
        return names[0], None
    name, colon, inner = cursor.partition(":")
    if not colon or name not in names:
        raise BadCursor("the cursor belongs to another list; start again without one")
    return name, inner or None
