"""One field of a cron expression: what may stand in it, and the numbers that it stands for."""

from __future__ import annotations

import re
from dataclasses import dataclass


class ScheduleError(ValueError):
    """A schedule that never was one; the message says what is wrong with it, and what to write instead."""


_TERM = re.compile(r"(?:\*|(?P<low>[0-9]{1,9}|[A-Z]{3})(?:-(?P<high>[0-9]{1,9}|[A-Z]{3}))?)(?:/(?P<step>[0-9]{1,9}))?")
_EXTENSION = re.compile(r"L|L-[0-9]+|([0-9]|[A-Z]{3})L|L?W|[0-9]+W|([0-9]|[A-Z]{3})#[0-9]*")
_SHOWN = 60
"""How much of what is wrong a message repeats."""


@dataclass(frozen=True, slots=True)
class CronField:
    """A field, its bounds and the names of its numbers, from the lowest on."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    def numbers(self, value: object) -> frozenset[int]:
        """Answer the numbers that a value stands for: a number, a name, `*`, `a-b`, `a,b`, `*/n`.

        Raises
        ------
        ScheduleError
            If it is none of these, or out of bounds.
        """
        return frozenset(number for term in str(value).split(",") for number in self._range(term))

    def _range(self, term: str) -> range:
        match = _TERM.fullmatch(term)
        if match is None:
            raise ScheduleError(f"{self.name}: {self._complaint(term)}")
        low = self.low if match["low"] is None else self._number(match["low"])
        high = self.high if match["low"] is None or match["step"] else low
        if match["high"] is not None:
            high = self._number(match["high"])
        if low > high:
            raise ScheduleError(f"{self.name}: {term} runs backwards")
        step = int(match["step"] or 1)
        if not 0 < step <= self.high:
            raise ScheduleError(f"{self.name}: a step of {step} never comes")
        return range(low, high + 1, step)

    def _number(self, word: str) -> int:
        number = self.low + self.names.index(word) if word in self.names else int(word) if word.isdecimal() else -1
        if not self.low <= number <= self.high:
            known = f" or {self.names[0]} to {self.names[-1]}" if self.names else ""
            raise ScheduleError(f"{self.name}: {word} is not within {self.low}-{self.high}{known}")
        return number

    def _complaint(self, term: str) -> str:
        shown = repr(term[:_SHOWN])
        if term.upper() != term and _TERM.fullmatch(term.upper()):
            return f"{shown} is none of the names: they are in capitals, write {term.upper()}"
        if _EXTENSION.fullmatch(term.upper()):
            return f"{shown} is an extension, L, W or #, that is not supported: let the job look at the date itself"
        if term == "?":
            return "'?' is none of a number, *, a-b, a,b or */n: it may stand in the two day fields alone"
        return f"{shown} is none of a number, a name, *, a-b, a,b or */n"
