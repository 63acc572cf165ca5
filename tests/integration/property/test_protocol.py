"""The protocol as a whole: random interleavings of the real code keep every promise, and notice a missing rule.

A run is told by its seed. To play one again, or many more:
`MAILROOM_PROPERTY_SEED=1234 MAILROOM_PROPERTY_RUNS=1 pytest tests/integration/property`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

import pytest

from .broken import RULES, Patch, always_clean, first_page_only, no_after, no_waves
from .play import Play, staged
from .watch import Rule, Violation

RUNS = int(os.environ.get("MAILROOM_PROPERTY_RUNS", "120"))
FIRST_SEED = int(os.environ.get("MAILROOM_PROPERTY_SEED", "0"))
NOTICED_WITHIN = int(os.environ.get("MAILROOM_PROPERTY_NOTICE", "400"))
"""Runs in which a missing rule has to show."""
NAMED = {no_waves, no_after, always_clean, first_page_only}
"""The rules that the ordinary suite takes away; with `MAILROOM_PROPERTY_RULES=all` all of them."""
SHOWN = NAMED if os.environ.get("MAILROOM_PROPERTY_RULES") != "all" else set(RULES)

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


@pytest.mark.parametrize(
    ("take_away", "rules"),
    [pytest.param(take, rules, id=take.__name__) for take, rules in RULES.items() if take in SHOWN],
)
def test_a_missing_rule_is_noticed(
    run: Runs, take_away: Callable[[Patch], None], rules: Iterable[Rule], monkeypatch: pytest.MonkeyPatch
) -> None:
    take_away(monkeypatch)
    assert _first_violation(run) in set(rules)


def _first_violation(run: Runs) -> Rule | None:
    for seed in range(NOTICED_WITHIN):
        try:
            run(Play(seed))
        except Violation as violation:
            return violation.rule
    return None
