"""When a job runs: one declaration for EventBridge and for the scheduler. All times are UTC."""

from __future__ import annotations

import re
from dataclasses import dataclass
from dataclasses import fields as fields_of
from datetime import date, timedelta
from itertools import pairwise
from typing import Self

from mailroom.cron_field import CronField, ScheduleError, Steps
from mailroom.timings import DAY, HOUR, MINUTE, SCHEDULE_FLOOR

__all__ = ["Cron", "Every", "Schedule", "ScheduleError", "checked_schedule"]

_LONGEST_PERIOD = 365 * DAY


@dataclass(frozen=True, slots=True)
class Every:
    """A fixed period. EventBridge fires at most once a minute: a shorter period is the job's own loop.

    Raises
    ------
    ScheduleError
        If a part is negative or no whole number, or the sum is nothing or more than 365 days.
    """

    seconds: int = 0
    minutes: int = 0
    hours: int = 0
    days: int = 0

    def __post_init__(self) -> None:
        parts = (self.seconds, self.minutes, self.hours, self.days)
        if any(type(part) is not int for part in parts):
            raise ScheduleError(f"a period is made of whole numbers, of a smaller unit if need be: {self}")
        if self.period <= 0 or min(parts) < 0:
            raise ScheduleError(f"a period must be longer than nothing, and so must its parts: {self}")
        if self.period > _LONGEST_PERIOD:
            raise ScheduleError(f"a period is 365 days at most: write rarer moments as a Cron, not as {self}")

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


_SECOND = CronField("second", 0, 59)
_MINUTE = CronField("minute", 0, 59)
_HOUR = CronField("hour", 0, 23)
_DAY_OF_MONTH = CronField("day_of_month", 1, 31)
_MONTH = CronField("month", 1, 12, ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"))
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_DAY = CronField("day", 1, 7, _WEEKDAYS, Steps.NOWHERE)
"""The wildcards of this field have no slash: https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-cron-expressions.html"""
_DAY_OF_TEXT = CronField("day", 0, 7, _WEEKDAYS, Steps.OF_RANGES)
"""The field in texts, where Sunday is 0 or 7: https://man7.org/linux/man-pages/man5/crontab.5.html"""
_ANY_DAY = ("*", "?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron:
    """Moments by the calendar, e.g. `Cron(minute=30, hour=4, day="MON")`.

    Each field takes a number, a name where there are names, or an expression of `*`, `a-b`, `a,b` and `*/n`; the day of
    the week takes no `/n`, as EventBridge has none there.

    Parameters
    ----------
    second
        EventBridge knows no seconds and fires within the minute; the scheduler keeps them.
    day_of_month, day
        Day of the month, or day of the week: `SUN` to `SAT`, as numbers EventBridge's 1 (Sunday) to 7, and not those of
        cron, which `parse` reads. At most one of them; `*` and `?` are any day.

    Raises
    ------
    ScheduleError
        If a field is out of its range, both day fields are given, or no date is ever meant.
    """

    second: int | str = 0
    minute: int | str = 0
    hour: int | str = "*"
    day_of_month: int | str | None = None
    month: int | str = "*"
    day: int | str | None = None

    def __post_init__(self) -> None:
        for name in ("day_of_month", "day"):
            if getattr(self, name) in _ANY_DAY:
                object.__setattr__(self, name, None)
        if self.day_of_month is not None and self.day is not None:
            raise ScheduleError(
                f"give day_of_month or day, not both ({self.day_of_month} and {self.day}): EventBridge takes exactly "
                "one, so make the other ? or *"
            )
        _SECOND.numbers(self.second)
        _MINUTE.numbers(self.minute)
        _HOUR.numbers(self.hour)
        if not any(self._is_on(day) for day in _EIGHT_YEARS):
            raise ScheduleError(f"day_of_month {self.day_of_month} of month {self.month} never comes")

    @classmethod
    def parse(cls, expression: str) -> Self:
        """Read six fields: second, minute, hour, day of the month, month, day of the week.

        Days of the week are those of cron: Sunday is 0 or 7, Monday 1, and `1-5` is Monday to Friday.

        Raises
        ------
        ScheduleError
            If they are not six, or one is wrong; it says what to write instead.
        """
        second, minute, hour, day_of_month, month, day = _fields(expression)
        return cls(
            second=second, minute=minute, hour=hour, day_of_month=day_of_month, month=month, day=_day_of_text(day)
        )

    @property
    def seconds(self) -> frozenset[int]:
        """The seconds of a minute at which it fires, where there are seconds."""
        return _SECOND.numbers(self.second)

    @property
    def minutes(self) -> frozenset[int]:
        """The minutes of an hour at which it fires."""
        return _MINUTE.numbers(self.minute)

    @property
    def hours(self) -> frozenset[int]:
        """The hours of a day at which it fires, in UTC."""
        return _HOUR.numbers(self.hour)

    @property
    def days_of_month(self) -> frozenset[int]:
        """The days of a month on which it fires, if it is one of the `weekdays` too."""
        return _DAY_OF_MONTH.numbers("*" if self.day_of_month is None else self.day_of_month)

    @property
    def months(self) -> frozenset[int]:
        """The months in which it fires."""
        return _MONTH.numbers(self.month)

    @property
    def weekdays(self) -> frozenset[int]:
        """The days of the week on which it fires, as `date.isoweekday()` numbers them: Monday is 1, Sunday 7."""
        return frozenset((number - 2) % 7 + 1 for number in _DAY.numbers("*" if self.day is None else self.day))

    @property
    def longest_gap(self) -> int:
        """The most seconds between two firings of EventBridge, found by looking at eight years of them."""
        minutes = sorted(hour * 60 + minute for hour in self.hours for minute in self.minutes)
        days = [day.toordinal() for day in _EIGHT_YEARS if self._is_on(day)]
        within = max((later - earlier for earlier, later in pairwise(minutes)), default=0)
        overnight = max(later - earlier for earlier, later in pairwise(days)) * DAY // MINUTE + minutes[0] - minutes[-1]
        return max(within, overnight) * MINUTE

    def _is_on(self, day: date) -> bool:
        return day.month in self.months and day.day in self.days_of_month and day.isoweekday() in self.weekdays

    def to_eventbridge(self) -> str:
        """Write the six-field expression with its one `?`, without the seconds.

        https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-cron-expressions.html
        """
        day_of_month = "*" if self.day_of_month is None else _DAY_OF_MONTH.written(self.day_of_month)
        fields = (
            _MINUTE.written(self.minute),
            _HOUR.written(self.hour),
            "?" if self.day is not None else day_of_month,
            _MONTH.written(self.month),
            "?" if self.day is None else _DAY.written(self.day),
        )
        return f"cron({' '.join(fields)} *)"

    def __str__(self) -> str:
        given = [(field.name, getattr(self, field.name)) for field in fields_of(self)]
        defaults = {field.name: field.default for field in fields_of(self)}
        return f"Cron({', '.join(f'{name}={_value(value)}' for name, value in given if value != defaults[name])})"


Schedule = Every | Cron

_EIGHT_YEARS = [date(2024, 1, 1) + timedelta(days=number) for number in range(8 * 365 + 2)]
"""Two leap years at least: whatever comes at all comes twice in them."""


def checked_schedule(schedule: object, *, of: str) -> Schedule:
    """Answer what a job was given as its schedule, if it is one.

    Raises
    ------
    ScheduleError
        If it is anything else; a text is told how to become one.
    """
    if isinstance(schedule, Every | Cron):
        return schedule
    if isinstance(schedule, str):
        try:
            Cron.parse(schedule)
        except ScheduleError as error:
            raise ScheduleError(f"{of}: the schedule is a text, and no cron expression either: {error}") from error
        raise ScheduleError(f"{of}: the schedule is a text: write schedule=Cron.parse({schedule!r})")
    raise ScheduleError(
        f'{of}: {schedule!r} is no schedule: write Every(minutes=5), Cron(hour=4) or Cron.parse("0 0 4 * * *")'
    )


_FIELDS = "second minute hour day-of-month month day-of-week"
_OF_EVENTBRIDGE = re.compile(r"\s*(rate|cron|at)\s*\((.*)\)\s*", re.IGNORECASE)
_SHOWN = 100


def _fields(expression: object) -> list[str]:
    if not isinstance(expression, str):
        raise ScheduleError(f"{expression!r} is no text: a cron expression is one, of six fields: {_FIELDS}")
    shown = repr(expression[:_SHOWN])
    if not expression.isprintable():
        raise ScheduleError(f"{shown} has characters that cannot be printed: write six fields with a space between")
    foreign = _OF_EVENTBRIDGE.fullmatch(expression)
    if foreign:
        raise ScheduleError(f"{shown} is EventBridge's own form: {_instead_of(foreign)}")
    fields = expression.split()
    if len(fields) == 5:
        raise ScheduleError(f"{shown} has five fields, and seconds come first: {_with_seconds(fields)}")
    if len(fields) != 6:
        raise ScheduleError(
            f"{shown} has {len(fields) or 'no'} fields, and six are needed: {_FIELDS}; there is no year"
        )
    return fields


# What is recommended is made first: what would be refused in its turn is told its own fault instead.


def _with_seconds(fields: list[str]) -> str:
    expression = " ".join(["0", *fields])
    try:
        Cron.parse(expression)
    except ScheduleError as error:
        return f"with them it would be refused as well: {error}"
    return f'write "{expression}"'


def _instead_of(foreign: re.Match[str]) -> str:
    kind, words = foreign[1].lower(), foreign[2].split()
    rate = re.fullmatch(r"([0-9]{1,9}) (minute|hour|day)s?", " ".join(words))
    try:
        if kind == "rate" and rate:
            unit, number = f"{rate[2]}s", int(rate[1])
            Every(**{unit: number})
            return f"write Every({unit}={number})"
        if kind == "cron" and len(words) == 6:
            if words[5] != "*":
                return "there is no year: let the job look at the date itself"
            names = ("minute", "hour", "day_of_month", "month", "day")
            return f"write {Cron(**dict(zip(names, words, strict=False)))}"
    except ScheduleError as error:
        return f"written as one of ours it would be refused as well: {error}"
    return "write Every(minutes=5), Cron(hour=4) or the like"


def _day_of_text(field: str) -> str:
    """Return a day of the week as EventBridge takes it, by name: cron counts from 0, and EventBridge from 1."""
    if field in _ANY_DAY:
        return field
    days = sorted({number % 7 for number in _DAY_OF_TEXT.numbers(field)})
    if len(days) > 2 and days[-1] - days[0] == len(days) - 1:
        return "*" if len(days) == 7 else f"{_WEEKDAYS[days[0]]}-{_WEEKDAYS[days[-1]]}"
    return ",".join(_WEEKDAYS[day] for day in days)


def _value(value: int | str) -> str:
    return value if isinstance(value, str) and value.isdecimal() and value == str(int(value)) else repr(value)
