"""Schedules: what EventBridge gets of them, and what it never gets to see."""

from __future__ import annotations

from typing import Any

import pytest

from mailroom.schedule import Cron, Every, Schedule, ScheduleError
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
    with pytest.raises(ScheduleError, match="period"):
        Every(**parts)


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
        ({"day": "mon"}, "day: 'mon' is none of"),
        ({"minute": -1}, "minute: '-1' is none of"),
        ({"minute": ""}, "minute: '' is none of"),
        ({"minute": "1,,2"}, "minute: '' is none of"),
        ({"minute": " 5"}, "minute: ' 5' is none of"),
        ({"minute": "?"}, r"minute: '\?' is none of"),
        ({"day_of_month": "L"}, "day_of_month: 'L' is none of"),
        ({"minute": "*-5"}, r"minute: '\*-5' is none of"),
        ({"minute": "5-1"}, "minute: 5-1 runs backwards"),
        ({"day": "FRI-MON"}, "day: FRI-MON runs backwards"),
        ({"minute": "*/0"}, "minute: a step of 0 never comes"),
        ({"minute": "*/60"}, "minute: a step of 60 never comes"),
        ({"day_of_month": 1, "day": "MON"}, "give day_of_month or day, not both"),
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
        (Cron(hour=4, day_of_month=31, month=2), (8 * 365 + 2) * DAY),
        (Cron(hour=0, minute=0, day_of_month=1, month="JAN-DEC/6"), 184 * DAY),
    ],
    ids=str,
)
def test_the_longest_gap_is_what_a_watcher_has_to_wait(schedule: Schedule, gap: int) -> None:
    assert schedule.longest_gap == gap
