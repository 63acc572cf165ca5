"""Every scenario, with every fault at every AWS call, and with two faults at random."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from .harness import Harness, Run, Scenario
from .scenarios import SCENARIOS

PAIRS = int(os.environ.get("MAILROOM_CRASH_PAIRS", "40"))
"""Runs with two faults, for each scenario."""
SEED = int(os.environ.get("MAILROOM_CRASH_SEED", "1"))

scenarios = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)


@scenarios
def test_nothing_is_lost_doubled_or_stuck__whichever_call_fails_in_whichever_way(
    harness: Harness, scenario: type[Scenario]
) -> None:
    _nothing(harness.every_call(scenario))


@scenarios
def test_nothing_is_lost_doubled_or_stuck__whichever_call_is_answered_in_part(
    harness: Harness, scenario: type[Scenario]
) -> None:
    _nothing(harness.partial_answers(scenario))


@scenarios
def test_nothing_is_lost_doubled_or_stuck__with_two_faults_at_random(
    harness: Harness, scenario: type[Scenario]
) -> None:
    _nothing(harness.pairs(scenario, PAIRS, SEED))


def _nothing(wrong: Iterator[Run]) -> None:
    if reports := [run.report() for run in wrong]:
        pytest.fail("\n".join(reports), pytrace=False)
