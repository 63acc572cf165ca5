"""Breakers: what is due at one, by its row and the clock alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mailroom.breaker import BreakerRow, Step, step_of
from mailroom.clock import timestamp
from mailroom.timings import DAY, Timings

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def row(**minutes: float | bool) -> BreakerRow:
    """Make a row whose moments are so many minutes before now."""
    values: dict[str, Any] = {
        name: value if value is True else timestamp(NOW - timedelta(minutes=value)) for name, value in minutes.items()
    }
    return BreakerRow("any", **values)


@pytest.mark.parametrize(
    ("known", "step"),
    [
        ({}, Step.NOTHING),
        ({"opened_at": 0.5, "failed_at": 0.5}, Step.NOTHING),
        ({"opened_at": 2, "failed_at": 1.5}, Step.NOTHING),
        ({"opened_at": 2, "failed_at": 1}, Step.PAUSE),
        ({"opened_at": 2, "failed_at": 0.1}, Step.PAUSE),
        ({"opened_at": 4, "failed_at": 4}, Step.CLOSE),
        ({"opened_at": 9, "failed_at": 8, "probe_at": -1}, Step.STAY_PAUSED),
        ({"opened_at": 9, "failed_at": 8, "probe_at": 0}, Step.PROBE),
        ({"opened_at": 9, "failed_at": 8, "resumed_at": 2}, Step.NOTHING),
        ({"opened_at": 9, "failed_at": 1, "resumed_at": 2}, Step.PAUSE),
        ({"opened_at": 9, "failed_at": 8, "resumed_at": 3}, Step.CLOSE),
        ({"opened_at": 9, "failed_at": 8, "probe_at": 0, "held": True}, Step.STAY_PAUSED),
        ({"held": True}, Step.STAY_PAUSED),
        ({"probe_at": 9}, Step.PROBE),
        ({"opened_at": 4 * DAY / 60, "failed_at": 0, "resumed_at": 1}, Step.NOTHING),
        ({"opened_at": 4 * DAY / 60 - 1, "failed_at": 0, "resumed_at": 1}, Step.PAUSE),
        ({"opened_at": 4 * DAY / 60, "failed_at": 5, "resumed_at": 6}, Step.CLOSE),
    ],
    ids=str,
)
def test_what_is_due(known: dict[str, float], step: Step) -> None:
    assert step_of(row(**known), NOW, Timings()) is step


def test_a_probe_is_judged_by_failures_since_it_began__not_by_those_before() -> None:
    assert step_of(row(opened_at=9, failed_at=2.1, resumed_at=2), NOW, Timings()) is Step.NOTHING
