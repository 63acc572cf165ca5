"""The scheduler fires at the moments that EventBridge would find in the expression that it gets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mailroom.schedule import Cron, Every, ScheduleError, checked_schedule
from mailroom.scheduler import _trigger_of

# The grammar of EventBridge, read by itself: nothing of `CronField` is used here.

MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
EXPRESSION = re.compile(
    r"cron\("
    r"(?P<minute>[0-9*/,-]+) (?P<hour>[0-9*/,-]+) (?P<day>[0-9*/,-]+|\?) "
    r"(?P<month>[0-9A-Z*/,-]+) (?P<weekday>[0-9A-Z*,-]+|\?) \*\)"
)
"""Wildcards by field: https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-scheduled-rule-pattern.html"""
START = datetime(2030, 1, 30, 22, 17, 5, tzinfo=UTC)


def fits(field: str, value: int, *, low: int, high: int, names: list[str]) -> bool:
    """Return whether a value is one of a field's."""
    numbers = {name: str(number) for number, name in enumerate(names, low)}
    for term in field.split(","):
        spelled = re.sub("[A-Z]{3}", lambda name: numbers[name[0]], term)
        span, _, step = spelled.partition("/")
        first, _, last = (("?" in span or "*" in span) and (str(low), "-", str(high))) or span.partition("-")
        end = int(last) if last else high if step else int(first)
        if int(first) <= value <= end and (value - int(first)) % int(step or 1) == 0:
            return True
    return False


def moments_of_eventbridge(expression: str) -> Iterator[datetime]:
    """Yield the minutes after the start that an expression means, within 400 days."""
    read = EXPRESSION.fullmatch(expression)
    assert read is not None, f"{expression} is none of EventBridge's"
    assert (read["day"] == "?") != (read["weekday"] == "?"), f"{expression} needs exactly one ?"
    midnight = START.replace(hour=0, minute=0, second=0)
    times = [
        timedelta(hours=hour, minutes=minute)
        for hour in range(24)
        if fits(read["hour"], hour, low=0, high=23, names=[])
        for minute in range(60)
        if fits(read["minute"], minute, low=0, high=59, names=[])
    ]
    for day in (midnight + timedelta(days=number) for number in range(400)):
        if (
            fits(read["month"], day.month, low=1, high=12, names=MONTHS)
            and fits(read["day"], day.day, low=1, high=31, names=[])
            and fits(read["weekday"], day.isoweekday() % 7 + 1, low=1, high=7, names=WEEKDAYS)
        ):
            yield from (day + time for time in times if day + time >= START)


def moments_of_scheduler(cron: Cron) -> Iterator[datetime]:
    """Yield the moments at which the scheduler would fire."""
    trigger, fired, now = _trigger_of(cron), None, START
    while (fired := trigger.get_next_fire_time(fired, now)) is not None:
        yield fired
        now = fired + timedelta(microseconds=1)


def fields(low: int, high: int, names: Sequence[str] = (), *, steps: str = "*a-") -> st.SearchStrategy[str]:
    """Generate what may stand in a field.

    Parameters
    ----------
    steps
        After which forms a step may come: `*`, a number (`a`), a range (`-`).
    """
    numbers = st.integers(low, high)
    value = numbers.map(str) | (st.sampled_from(names) if names else st.nothing())
    span = st.lists(numbers, min_size=2, max_size=2).map(sorted).map(lambda ends: f"{ends[0]}-{ends[1]}")
    stepped = {"*": st.just("*"), "a": value, "-": span}
    step = st.integers(1, high - 1).map(str)
    term = st.one_of(value, span, *(st.tuples(stepped[form], step).map("/".join) for form in steps))
    return st.just("*") | st.lists(term, min_size=1, max_size=3).map(",".join)


TIMES = {"minute": fields(0, 59), "hour": fields(0, 23), "month": fields(1, 12, MONTHS)}
CRONS = st.fixed_dictionaries(TIMES | {"day_of_month": fields(1, 31)}) | st.fixed_dictionaries(
    TIMES | {"day": fields(1, 7, WEEKDAYS, steps="")}
)
TEXTS = st.tuples(fields(0, 59), fields(0, 23), st.just("?"), fields(1, 12, MONTHS), fields(0, 7, WEEKDAYS, steps="*-"))


@given(CRONS | TEXTS.map(lambda text: f"0 {' '.join(text)}"))
def test_the_scheduler_fires_when_eventbridge_would(given_as: dict[str, str] | str) -> None:
    cron = None
    with suppress(ScheduleError):
        cron = Cron.parse(given_as) if isinstance(given_as, str) else Cron(**given_as)  # type: ignore[arg-type]
    assume(cron is not None)
    assert cron is not None
    expected = list(islice(moments_of_eventbridge(cron.to_eventbridge()), 20))
    assert list(islice(moments_of_scheduler(cron), len(expected))) == expected


@pytest.mark.parametrize(
    ("field", "days"),
    [
        ("0", {0}),
        ("7", {0}),
        ("1-5", {1, 2, 3, 4, 5}),
        ("0,6", {0, 6}),
        ("6-7", {6, 0}),
        ("*/3", {0, 3, 6}),
        ("2-6/2", {2, 4, 6}),
        ("SUN", {0}),
        ("MON-WED", {1, 2, 3}),
    ],
)
def test_the_days_of_a_text_are_those_of_cron__where_sunday_is_0(field: str, days: set[int]) -> None:
    fired = islice(moments_of_eventbridge(Cron.parse(f"0 0 12 * * {field}").to_eventbridge()), 14)
    assert {each.isoweekday() % 7 for each in fired} == days


@given(
    st.sampled_from(["", "cron({} *)", "rate({})", "cron({} 2030)"]),
    st.lists(
        st.sampled_from(["0", "*", "?", "5", "0/15", "1-3", "*/2", "MON", "mon", "FEB", "31", "L", "#"]), max_size=6
    )
    | st.tuples(st.integers(0, 999).map(str), st.sampled_from(["minute", "minutes", "days", "hours"])),
)
def test_what_an_error_recommends_is_accepted(form: str, words: list[str]) -> None:
    expression = (form or "{}").format(" ".join(words))
    with pytest.raises(ScheduleError) as refused:
        checked_schedule(expression, of="a job")
    known = {"Cron": Cron, "Every": Every}
    text = str(refused.value)
    for advice in re.findall(r"write (?:schedule=)?((?:Cron|Every)[.a-z]*\(.*?\))(?:$|,| )", text):
        eval(advice, known)  # noqa: S307 - our own words
    for advice in re.findall(r'write "(.*)"', text):
        Cron.parse(advice)
