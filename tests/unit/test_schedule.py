"""Schedules: what EventBridge gets of them, and what it never gets to see."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailroom.schedule import Cron, Every, Schedule, ScheduleError, checked_schedule
from mailroom.timings import DAY, HOUR, MINUTE


@pytest.mark.parametrize(
    ("every", "expression"),
    [
        (Every(minutes=1), "rate(1 minute)"),
        (Every(minutes=2), "rate(2 minutes)"),
        (Every(hours=1), "rate(60 minutes)"),
        (Every(days=1), "rate(1440 minutes)"),
        (Every(hours=1, minutes=30), "rate(90 minutes)"),
    ],
    ids=str,
)
def test_a_period_is_a_rate__in_whole_minutes(every: Every, expression: str) -> None:
    assert every.to_eventbridge() == expression


@pytest.mark.parametrize("seconds", [1, 5, 59, 60])
def test_a_period_below_the_floor_is_a_minute__and_the_rest_is_the_jobs_own_loop(seconds: int) -> None:
    assert Every(seconds=seconds).to_eventbridge() == "rate(1 minute)"


def test_a_period_between_minutes_is_rounded_up__never_more_often_than_asked() -> None:
    assert Every(seconds=61).to_eventbridge() == "rate(2 minutes)"


@pytest.mark.parametrize("parts", [{}, {"seconds": 0}, {"minutes": -1}, {"seconds": -60, "minutes": 5}], ids=str)
def test_a_period_is_refused__that_is_nothing_or_runs_backwards(parts: dict[str, int]) -> None:
    with pytest.raises(ScheduleError, match="longer than nothing"):
        Every(**parts)


@pytest.mark.parametrize("part", [1.5, 2.0, "5", True, None, float("nan")], ids=repr)
def test_a_period_is_refused__that_is_no_whole_number(part: Any) -> None:
    with pytest.raises(ScheduleError, match="whole numbers"):
        Every(minutes=part)


def test_a_period_is_refused__that_outlives_the_process_that_would_wait_for_it() -> None:
    with pytest.raises(ScheduleError, match="365 days at most"):
        Every(days=10**9)


@pytest.mark.parametrize(
    ("cron", "expression"),
    [
        (Cron(), "cron(0 * * * ? *)"),
        (Cron(minute=30, hour=4), "cron(30 4 * * ? *)"),
        (Cron(minute="*/5"), "cron(*/5 * * * ? *)"),
        (Cron(minute="0,30", hour="9-17"), "cron(0,30 9-17 * * ? *)"),
        (Cron(hour=4, day="MON"), "cron(0 4 ? * MON *)"),
        (Cron(hour=4, day="MON-FRI"), "cron(0 4 ? * MON-FRI *)"),
        (Cron(hour=4, day=1), "cron(0 4 ? * 1 *)"),
        (Cron(hour=4, day_of_month=31), "cron(0 4 31 * ? *)"),
        (Cron(hour=4, day_of_month=1, month="JAN,JUL"), "cron(0 4 1 JAN,JUL ? *)"),
        (Cron(minute="5/10"), "cron(5/10 * * * ? *)"),
        (Cron(minute="0-30/10"), "cron(0-30/10 * * * ? *)"),
        (Cron(hour=4, day="?"), "cron(0 4 * * ? *)"),
        (Cron(hour=4, day_of_month="*", day="MON"), "cron(0 4 ? * MON *)"),
        (Cron(hour=4, day_of_month=1, day="*"), "cron(0 4 1 * ? *)"),
        (Cron(second=30, hour=4), "cron(0 4 * * ? *)"),
    ],
    ids=str,
)
def test_a_cron_has_six_fields_and_one_question_mark(cron: Cron, expression: str) -> None:
    assert cron.to_eventbridge() == expression


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"minute": 60}, "minute: 60 is not within 0-59"),
        ({"minute": "0,75"}, "minute: 75 is not within 0-59"),
        ({"minute": "50-75"}, "minute: 75 is not within 0-59"),
        ({"hour": 24}, "hour: 24 is not within 0-23"),
        ({"day_of_month": 0}, "day_of_month: 0 is not within 1-31"),
        ({"day_of_month": 32}, "day_of_month: 32 is not within 1-31"),
        ({"month": 13}, "month: 13 is not within 1-12"),
        ({"day": 8}, "day: 8 is not within 1-7"),
        ({"day": 0}, "day: 0 is not within 1-7"),
        ({"minute": "MON"}, "minute: MON is not within 0-59"),
        ({"month": "MON"}, "month: MON is not within 1-12"),
        ({"day": "XXX"}, "day: XXX is not within 1-7"),
        ({"day": "mon"}, "day: 'mon' is none of the names: they are in capitals, write MON"),
        ({"month": "jan-mar"}, "in capitals, write JAN-MAR"),
        ({"month": "MARCH"}, "month: 'MARCH' is none of"),
        ({"month": "APRIL"}, "month: 'APRIL' is none of"),
        ({"second": 60}, "second: 60 is not within 0-59"),
        ({"second": "0,99"}, "second: 99 is not within 0-59"),
        ({"minute": True}, "minute: 'True' is none of"),
        ({"minute": 5.0}, "minute: '5.0' is none of"),
        ({"minute": None}, "minute: 'None' is none of"),
        ({"minute": "9" * 5000}, "minute: '999"),
        ({"minute": "5\0"}, r"minute: '5\\x00' is none of"),
        ({"minute": "\u0665"}, "minute: '\u0665' is none of"),
        ({"minute": -1}, "minute: '-1' is none of"),
        ({"minute": ""}, "minute: '' is none of"),
        ({"minute": "1,,2"}, "minute: '' is none of"),
        ({"minute": " 5"}, "minute: ' 5' is none of"),
        ({"minute": "?"}, r"minute: '\?' is none of .* in the two day fields alone"),
        *(
            ({"day_of_month": term}, "is an extension, L, W or #, that is not supported")
            for term in ("L", "L-3", "15W", "LW")
        ),
        *(
            ({"day": term}, "is an extension, L, W or #, that is not supported")
            for term in ("FRI#2", "6#3", "FRIL", "2L")
        ),
        ({"minute": "*-5"}, r"minute: '\*-5' is none of"),
        ({"minute": "5-1"}, "minute: 5-1 runs backwards"),
        ({"day": "FRI-MON"}, "day: FRI-MON runs backwards"),
        ({"day": "*/2"}, r"day: EventBridge takes no step there: write SUN,TUE,THU,SAT instead of \*/2"),
        ({"day": "MON-FRI/2"}, "day: EventBridge takes no step there: write MON,WED,FRI instead of MON-FRI/2"),
        ({"day": "2/2"}, "day: EventBridge takes no step there: write MON,WED,FRI instead of 2/2"),
        ({"minute": "*,5"}, r"minute: \* within a list is every minute by itself: write \*"),
        ({"minute": "*/0"}, "minute: a step of 0 never comes"),
        ({"minute": "*/60"}, "minute: a step of 60 never comes"),
        ({"day_of_month": 1, "day": "MON"}, r"give day_of_month or day, not both \(1 and MON\)"),
        ({"day_of_month": 31, "month": "FEB"}, "day_of_month 31 of month FEB never comes"),
        ({"day_of_month": 31, "month": "APR,JUN"}, "day_of_month 31 of month APR,JUN never comes"),
        ({"day_of_month": "30-31", "month": 2}, "never comes"),
    ],
    ids=str,
)
def test_a_wrong_cron_says_what_is_wrong__and_where(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ScheduleError, match=complaint):
        Cron(**fields)


@pytest.mark.parametrize(
    ("schedule", "gap"),
    [
        (Every(seconds=5), 60),
        (Every(seconds=61), 120),
        (Every(hours=1), HOUR),
        (Cron(), HOUR),
        (Cron(minute="*/5"), 5 * MINUTE),
        (Cron(minute="0,50"), 50 * MINUTE),
        (Cron(minute="5/10"), 10 * MINUTE),
        (Cron(minute="*/25"), 25 * MINUTE),
        (Cron(hour=4), DAY),
        (Cron(hour="*/6"), 6 * HOUR),
        (Cron(hour="9-17"), 16 * HOUR),
        (Cron(hour=4, day="MON"), 7 * DAY),
        (Cron(hour=4, day=2), 7 * DAY),
        (Cron(hour=4, day="MON-FRI"), 3 * DAY),
        (Cron(hour=4, day_of_month=1), 31 * DAY),
        (Cron(hour=4, day_of_month=31), 61 * DAY),
        (Cron(hour=4, day_of_month=29, month="FEB"), 1_461 * DAY),
        (Cron(second="*", minute="*"), MINUTE),
        (Cron(hour=0, minute=0, day_of_month=1, month="JAN-DEC/6"), 184 * DAY),
    ],
    ids=str,
)
def test_the_longest_gap_is_what_a_watcher_has_to_wait(schedule: Schedule, gap: int) -> None:
    assert schedule.longest_gap == gap


# An expression, seconds first


@pytest.mark.parametrize(
    ("expression", "cron"),
    [
        ("0 */5 * * * *", Cron(minute="*/5")),
        ("30 0 4 * * *", Cron(second=30, minute=0, hour=4)),
        ("*/10 * * * * ?", Cron(second="*/10", minute="*")),
        ("0 30 4 ? * MON-FRI", Cron(minute=30, hour=4, day="MON-FRI")),
        ("0 30 4 * * MON", Cron(minute=30, hour=4, day="MON")),
        ("0 30 4 1 JAN,JUL ?", Cron(minute=30, hour=4, day_of_month=1, month="JAN,JUL")),
        ("0 30 4 1 * *", Cron(minute=30, hour=4, day_of_month=1)),
        ("0 30 4 * * 0", Cron(minute=30, hour=4, day="SUN")),
        ("0 30 4 * * 7", Cron(minute=30, hour=4, day="SUN")),
        ("0 30 4 * * 1", Cron(minute=30, hour=4, day="MON")),
        ("0 30 4 * * 1-5", Cron(minute=30, hour=4, day="MON-FRI")),
        ("0 30 4 * * 5-7", Cron(minute=30, hour=4, day="SUN,FRI,SAT")),
        ("0 30 4 * * */2", Cron(minute=30, hour=4, day="SUN,TUE,THU,SAT")),
        ("0 30 4 * * 1-5/2", Cron(minute=30, hour=4, day="MON,WED,FRI")),
        ("0 30 4 * * 0-7", Cron(minute=30, hour=4)),
        ("0 05 04 * * *", Cron(minute=5, hour=4)),
        ("0 0 0 ? * ?", Cron(hour=0)),
        ("  0  0 4 * * *  ", Cron(hour=4)),
    ],
)
def test_an_expression_says_what_the_fields_say(expression: str, cron: Cron) -> None:
    parsed = Cron.parse(expression)
    assert parsed.to_eventbridge() == cron.to_eventbridge()
    assert numbers_of(parsed) == numbers_of(cron)


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("0 * * * *", "'0 * * * *' has five fields, and seconds come first: write \"0 0 * * * *\""),
        ("", "'' has no fields, and six are needed: second minute hour day-of-month month day-of-week"),
        ("   ", "has no fields"),
        ("@hourly", "has 1 fields, and six are needed"),
        ("0 0 4 * * MON 2030", "has 7 fields, and six are needed: second minute"),
        ("60 0 4 * * *", "second: 60 is not within 0-59"),
        ("0 60 4 * * *", "minute: 60 is not within 0-59"),
        ("0 0 4 1 * MON", "give day_of_month or day, not both (1 and MON)"),
        ("0 0 4 31 FEB *", "day_of_month 31 of month FEB never comes"),
        ("0 0 4 * * mon", "day: 'mon' is none of the names: they are in capitals, write MON"),
        ("0 0 4 * FOO *", "month: FOO is not within 1-12 or JAN to DEC"),
        ("0 0 4 * * 8", "day: 8 is not within 0-7 or SUN to SAT"),
        ("0 0 4 * * 1/2", "day: a step goes with * or a range, not with a number alone as in 1/2"),
        ("0 0 4 * * *,1", "day: * within a list is every day by itself: write *"),
        ("0 0 4 L * ?", "day_of_month: 'L' is an extension, L, W or #, that is not supported"),
        ("0 0 4 ? * FRI#2", "day: 'FRI#2' is an extension"),
        (
            "30 4 ? * MON *",
            "hour: '?' is none of a number, *, a-b, a,b or */n: it may stand in the two day fields alone",
        ),
        ("rate(1 minutes)", "'rate(1 minutes)' is EventBridge's own form: write Every(minutes=1)"),
        ("rate(1 hour)", "write Every(hours=1)"),
        ("rate(never)", "write Every(minutes=5), Cron(hour=4) or the like"),
        ("cron(0 4 ? * MON *)", "EventBridge's own form: write Cron(minute=0, hour=4, day='MON')"),
        ("cron(0/15 4 ? * 2 *)", "EventBridge's own form: write Cron(minute='0/15', hour=4, day=2)"),
        ("cron(0 4 ? * FRI#2 *)", "as one of ours it would be refused as well: day: 'FRI#2' is an extension"),
        ("cron(0 4 ? * MON 2030)", "there is no year"),
        ("rate(0 minutes)", "as one of ours it would be refused as well: a period must be longer than nothing"),
        ("rate(400 days)", "as one of ours it would be refused as well: a period is 365 days at most"),
        ("0 4 1 * MON", "with them it would be refused as well: give day_of_month or day, not both (1 and MON)"),
        ("0 0 4 * mon *", "month: 'mon' is none of a number, a name"),
        ("cron()", "EventBridge's own form"),
        ("0 0 4 * *\0 *", "characters that cannot be printed"),
        ("0 0 4 * *\n*", "characters that cannot be printed"),
        (None, "None is no text"),
        (5, "5 is no text"),
    ],
)
def test_a_wrong_expression_says_what_to_write_instead(expression: Any, complaint: str) -> None:
    with pytest.raises(ScheduleError, match=re.escape(complaint)):
        Cron.parse(expression)


@given(st.text())
def test_whatever_is_parsed_is_a_schedule_or_refused__and_nothing_else_happens(expression: str) -> None:
    with suppress(ScheduleError):
        Cron.parse(expression)


@given(
    st.lists(
        st.sampled_from(["0", "*", "?", "5", "1-3", "*/2", "MON", "FEB", "31", "7/2", "L"]), min_size=6, max_size=6
    )
)
def test_what_is_accepted_fires_some_day(fields: list[str]) -> None:
    with suppress(ScheduleError):
        assert Cron.parse(" ".join(fields)).longest_gap > 0


@pytest.mark.parametrize(
    ("number", "name", "iso"),
    [(1, "SUN", 7), (2, "MON", 1), (3, "TUE", 2), (4, "WED", 3), (5, "THU", 4), (6, "FRI", 5), (7, "SAT", 6)],
)
def test_a_weekday_is_the_one_that_eventbridge_means__by_number_and_by_name(number: int, name: str, iso: int) -> None:
    assert Cron(day=number).weekdays == Cron(day=name).weekdays == {iso}


# What a job is given


@pytest.mark.parametrize("schedule", [Every(minutes=1), Cron(hour=4)], ids=str)
def test_a_schedule_is_what_a_job_needs(schedule: Schedule) -> None:
    assert checked_schedule(schedule, of="a job") is schedule


@pytest.mark.parametrize(
    ("schedule", "complaint"),
    [
        ("0 */5 * * * *", "report: the schedule is a text: write schedule=Cron.parse('0 */5 * * * *')"),
        ("0 * * * *", 'report: the schedule is a text, and no cron expression either: .* write "0 0 * * * *"'),
        ("rate(1 minutes)", "EventBridge's own form: write Every(minutes=1)"),
        (5, "report: 5 is no schedule: write Every(minutes=5)"),
        (None, "report: None is no schedule"),
        (timedelta(minutes=5), "is no schedule"),
        (Every, "is no schedule"),
    ],
)
def test_anything_else_is_refused__and_told_what_to_become(schedule: Any, complaint: str) -> None:
    with pytest.raises(ScheduleError, match=re.escape(complaint).replace(r"\.\*", ".*")):
        checked_schedule(schedule, of="report")


def numbers_of(cron: Cron) -> list[frozenset[int]]:
    return [cron.seconds, cron.minutes, cron.hours, cron.days_of_month, cron.months, cron.weekdays]
