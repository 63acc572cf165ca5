"""When a job runs: one declaration for EventBridge and for the local scheduler. All times are UTC."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise

from mailroom.timings import DAY, HOUR, MINUTE, SCHEDULE_FLOOR


class ScheduleError(ValueError):
    """A schedule that never was one; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Every:
    """A fixed period. EventBridge fires at most once a minute: a shorter period is the job's own loop.

    Raises
    ------
    ScheduleError
        If a part is negative or the sum is nothing.
    """

    seconds: int = 0
    minutes: int = 0
    hours: int = 0
    days: int = 0

    def __post_init__(self) -> None:
        if self.period <= 0 or min(self.seconds, self.minutes, self.hours, self.days) < 0:
            raise ScheduleError(f"a period must be longer than nothing, and so must its parts: {self}")

    @property
    def period(self) -> int:
        """The period in seconds."""
        return self.seconds + self.minutes * MINUTE + self.hours * HOUR + self.days * DAY

    @property
    def longest_gap(self) -> int:
        """The most seconds between two firings, by EventBridge's minutes."""
        return -(-max(self.period, SCHEDULE_FLOOR) // MINUTE) * MINUTE

    def to_eventbridge(self) -> str:
        """Write the rate expression, in whole minutes and not below EventBridge's floor.

        https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-rate-expressions.html
        """
        minutes = self.longest_gap // MINUTE
        return f"rate({minutes} minute{'s' if minutes > 1 else ''})"


_MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


@dataclass(frozen=True, slots=True)
class Cron:
    """Moments by the calendar, e.g. `Cron(minute=30, hour=4, day="MON")`.

    Each field takes a number, a name where there are names, or an expression of `*`, `a-b`, `a,b` and `*/n`.

    Parameters
    ----------
    day
        Day of the week, `SUN` to `SAT`. Exclusive with `day_of_month`.

    Raises
    ------
    ScheduleError
        If a field is out of its range or both day fields are given.
    """

    minute: int | str = 0
    hour: int | str = "*"
    day_of_month: int | str | None = None
    month: int | str = "*"
    day: int | str | None = None

    def __post_init__(self) -> None:
        if self.day_of_month is not None and self.day is not None:
            raise ScheduleError("give day_of_month or day, not both: EventBridge takes exactly one")
        _check_field("minute", self.minute, 0, 59)
        _check_field("hour", self.hour, 0, 23)
        _check_field("month", self.month, 1, 12, _MONTHS)
        if self.day_of_month is not None:
            _check_field("day_of_month", self.day_of_month, 1, 31)
        if self.day is not None:
            _check_field("day", self.day, 1, 7, _DAYS)

    @property
    def longest_gap(self) -> int:
        """The most seconds between two firings, found by looking at eight years of them: one leap year at least."""
        minutes = sorted(
            hour * 60 + minute for hour in _expand(self.hour, 0, 23) for minute in _expand(self.minute, 0, 59)
        )
        days = [day.toordinal() for day in _EIGHT_YEARS if self._is_on(day)]
        if len(days) < 2:
            return len(_EIGHT_YEARS) * DAY
        within = max((later - earlier for earlier, later in pairwise(minutes)), default=0)
        overnight = max(later - earlier for earlier, later in pairwise(days)) * DAY // MINUTE + minutes[0] - minutes[-1]
        return max(within, overnight) * MINUTE

    def _is_on(self, day: date) -> bool:
        of_week = day.isoweekday() % 7 + 1
        return (
            day.month in _expand(self.month, 1, 12, _MONTHS)
            and (self.day is None or of_week in _expand(self.day, 1, 7, _DAYS))
            and (self.day_of_month is None or day.day in _expand(self.day_of_month, 1, 31))
        )

    def to_eventbridge(self) -> str:
        """Write the six-field expression with its one `?`.

        https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-cron-expressions.html
        """
        day_of_month = "?" if self.day is not None else "*" if self.day_of_month is None else self.day_of_month
        day = "?" if self.day is None else self.day
        return f"cron({self.minute} {self.hour} {day_of_month} {self.month} {day} *)"


Schedule = Every | Cron

_EIGHT_YEARS = [date(2024, 1, 1) + timedelta(days=number) for number in range(8 * 365 + 2)]
_TERM = re.compile(r"(?:\*|(?P<low>[0-9]+|[A-Z]{3})(?:-(?P<high>[0-9]+|[A-Z]{3}))?)(?:/(?P<step>[0-9]+))?")


def _check_field(name: str, value: int | str, low: int, high: int, names: list[str] | None = None) -> None:
    known = {word: low + position for position, word in enumerate(names or [])}
    for term in str(value).split(","):
        match = _TERM.fullmatch(term)
        if match is None:
            raise ScheduleError(f"{name}: {term!r} is none of a number, a name, *, a-b, a,b or */n")
        numbers = []
        for bound in (match["low"], match["high"]):
            if bound is None:
                continue
            number = known.get(bound, int(bound) if bound.isdecimal() else -1)
            if not low <= number <= high:
                raise ScheduleError(f"{name}: {bound} is not within {low}-{high}")
            numbers.append(number)
        if numbers != sorted(numbers):
            raise ScheduleError(f"{name}: {term} runs backwards")
        if match["step"] is not None and not 0 < int(match["step"]) <= high:
            raise ScheduleError(f"{name}: a step of {match['step']} never comes")


def _expand(value: int | str, low: int, high: int, names: list[str] | None = None) -> set[int]:
    """Answer the numbers that a field stands for, once it was checked."""
    known = {word: low + position for position, word in enumerate(names or [])}

    def number(word: str) -> int:
        return known[word] if word in known else int(word)

    found: set[int] = set()
    for term in str(value).split(","):
        bounds, _, step = term.partition("/")
        first, _, last = (f"{low}-{high}" if bounds == "*" else bounds).partition("-")
        start = number(first)
        end = number(last) if last else high if step else start
        found.update(range(start, end + 1, int(step or 1)))
    return found
