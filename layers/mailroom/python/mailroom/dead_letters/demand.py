"""Redrive on demand: what is dead and passes a filter, up to so many, within the time that a request has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice

from mailroom.dead_letters.desk import Desk
from mailroom.dead_letters.filter import Filter
from mailroom.dead_letters.letter import DeadLetter, Deed, Fate, Result
from mailroom.dead_letters.queue import never

MAX_NOT_DONE = 250
"""Letters that could not be sent, after which a request goes no further: what an answer has room for."""


@dataclass(frozen=True, slots=True)
class Demanded:
    """What came of it.

    Parameters
    ----------
    more
        Whether there may be letters that were not come to.
    """

    results: tuple[Result, ...]
    more: bool


def redrive_matching(
    desk: Desk,
    wanted: Filter,
    deed: Deed,
    *,
    limit: int,
    source: str | None = None,
    force: bool = False,
    stop: Callable[[], bool] = never,
) -> Demanded:
    """Send dead letters again until so many were; those that cannot be sent are told, and are not among these.

    What is still tried is left alone, and each letter is sent once, though it may die again meanwhile.
    """
    letters, results, done = _once(desk, wanted, source), list[Result](), 0
    while done < limit and len(results) - done < MAX_NOT_DONE and not stop():
        some = list(islice(letters, limit - done))
        if not some:
            return Demanded(tuple(results), more=False)
        for name, those in groupby(some, key=lambda letter: letter.source):
            ids = [letter.id for letter in those]
            results += desk.of(name).redrive(ids, deed, force=force, stop=stop)
        done = sum(result.ok for result in results)
    cut_short = any(result.fate is Fate.NOT_TRIED for result in results)
    return Demanded(tuple(results), more=cut_short or next(letters, None) is not None)


def _once(desk: Desk, wanted: Filter, source: str | None) -> Iterator[DeadLetter]:
    seen: set[tuple[str, str]] = set()
    for letter in desk.letters(source=source, keep=wanted.keeps):
        place = letter.source, letter.id
        if letter.state == "dead" and place not in seen:
            seen.add(place)
            yield letter
