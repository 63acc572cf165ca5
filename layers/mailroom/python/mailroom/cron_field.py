"""One field of a cron expression: what may stand in it, and the numbers that it stands for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


class ScheduleError(ValueError):
    """A schedule that never was one; the message says what is wrong with it, and what to write instead."""


class Steps(Enum):
    """Where a field takes `/n`."""

    ANYWHERE = "after *, a number or a range"
    OF_RANGES = "after * or a range"
    NOWHERE = "nowhere"


_TERM = re.compile(r"(?:\*|(?P<low>[0-9]{1,9}|[A-Z]{3})(?:-(?P<high>[0-9]{1,9}|[A-Z]{3}))?)(?:/(?P<step>[0-9]{1,9}))?")
_EXTENSION = re.compile(r"L|L-[0-9]+|([0-9]|[A-Z]{3})L|L?W|[0-9]+W|([0-9]|[A-Z]{3})#[0-9]*")
_SHOWN = 60
"""How much of what is wrong a message repeats."""


@dataclass(frozen=True, slots=True)
class CronField:
    """A field, its bounds, the names of its numbers from the lowest on, and where it takes steps."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    steps: Steps = Steps.ANYWHERE

    @property
    def forms(self) -> str:
        """What may stand in it, for people."""
        name = ", a name" if self.names else ""
        return f"a number{name}, *, a-b{' or a,b' if self.steps is Steps.NOWHERE else ', a,b or */n'}"

    def numbers(self, value: object) -> frozenset[int]:
        """Return the numbers that a value stands for.

        Raises
        ------
        ScheduleError
            If it is none of the field's `forms`, or out of bounds.
        """
        terms = str(value).split(",")
        if len(terms) > 1 and "*" in terms:
            raise ScheduleError(f"{self.name}: * within a list is every {self.name} by itself: write *")
        return frozenset(number for term in terms for number in self._range(term))

    def written(self, value: object) -> str:
        """Return a value as EventBridge takes it: numbers have no zeros in front there."""
        return re.sub(r"\b0+(?=[0-9])", "", str(value))

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
        numbers = range(low, high + 1, step)
        if match["step"]:
            self._check_step(term, numbers, starts_at_number=match["low"] is not None and match["high"] is None)
        return numbers

    def _check_step(self, term: str, numbers: range, *, starts_at_number: bool) -> None:
        if self.steps is Steps.NOWHERE:
            words = ",".join(self.names[number - self.low] if self.names else str(number) for number in numbers)
            raise ScheduleError(f"{self.name}: EventBridge takes no step there: write {words} instead of {term}")
        if self.steps is Steps.OF_RANGES and starts_at_number:
            raise ScheduleError(f"{self.name}: a step goes with * or a range, not with a number alone as in {term}")

    def _number(self, word: str) -> int:
        number = self.low + self.names.index(word) if word in self.names else int(word) if word.isdecimal() else -1
        if not self.low <= number <= self.high:
            known = f" or {self.names[0]} to {self.names[-1]}" if self.names else ""
            raise ScheduleError(f"{self.name}: {word} is not within {self.low}-{self.high}{known}")
        return number

    def _complaint(self, term: str) -> str:
        shown = repr(term[:_SHOWN])
        if term.upper() != term and self._takes(term.upper()):
            return f"{shown} is none of the names: they are in capitals, write {term.upper()}"
        if _EXTENSION.fullmatch(term.upper()):
            return f"{shown} is an extension, L, W or #, that is not supported: let the job look at the date itself"
        if term == "?":
            return f"'?' is none of {self.forms}: it may stand in the two day fields alone"
        return f"{shown} is none of {self.forms}"

    def _takes(self, term: str) -> bool:
        """Return whether a term is right, so that it may be recommended."""
        try:
            return _TERM.fullmatch(term) is not None and bool(self._range(term))
        except ScheduleError:
            return False
