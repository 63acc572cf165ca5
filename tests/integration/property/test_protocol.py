"""The protocol as a whole: random interleavings of the real code keep every promise, and notice a missing rule.

A run is told by its seed, which a failure names. To play it again, to play many more, to take every rule away:

    MAILROOM_PROPERTY_SEED=1234 MAILROOM_PROPERTY_RUNS=1 pytest tests/integration/property
    MAILROOM_PROPERTY_RUNS=5000 pytest tests/integration/property -k every_promise
    MAILROOM_PROPERTY_RULES=all pytest tests/integration/property -k missing_rule
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

import pytest

from tests import generated

from .broken import RARE, RULES, SHOWS_AT, Patch
from .play import Play, staged
from .watch import Rule, Violation

RUNS = int(os.environ.get("MAILROOM_PROPERTY_RUNS") or generated.examples(few=25, all=120))
FIRST_SEED = int(os.environ.get("MAILROOM_PROPERTY_SEED") or generated.first_seed())
NOTICED_WITHIN = 1000
"""Runs in which a missing rule has to show; most show in the first ten."""
SHOWN = [take for take in RULES if take not in RARE or os.environ.get("MAILROOM_PROPERTY_RULES") == "all"]

Runs = Callable[[Play], None]


@pytest.fixture
def run(aws: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    with staged(monkeypatch) as run:
        yield run


def test_every_promise_is_kept__whatever_is_interleaved_with_what(run: Runs) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + RUNS):
        play = Play(seed)
        try:
            run(play)
        except Violation as violation:
            tail = "\n".join(play.trace[-60:])
            pytest.fail(f"seed {seed}: {violation}\nWhat happened last:\n{tail}", pytrace=False)


def test_a_seed_tells_the_whole_run(run: Runs) -> None:
    first, second = Play(5), Play(5)
    run(first)
    run(second)
    assert first.trace == second.trace


@pytest.mark.parametrize(("take_away", "rules"), [pytest.param(take, RULES[take], id=take.__name__) for take in SHOWN])
def test_a_missing_rule_is_noticed(
    run: Runs, take_away: Callable[[Patch], None], rules: Iterable[Rule], monkeypatch: pytest.MonkeyPatch
) -> None:
    take_away(monkeypatch)
    assert _first_violation(run, generated.from_likely(SHOWS_AT.get(take_away), NOTICED_WITHIN)) in set(rules)


def _first_violation(run: Runs, seeds: Iterable[int]) -> Rule | None:
    for seed in seeds:
        try:
            run(Play(seed))
        except Violation as violation:
            return violation.rule
    return None
