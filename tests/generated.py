"""Generated tests: how many examples they run, and the one seed that examples and the order of tests follow.

The seed is the day's, so that every day looks at something new, and that a failure comes again until it is mended.
pytest prints it; `--randomly-seed=20300101` runs the same on another day.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, TypeVar

import hypothesis

E = TypeVar("E")

RATE = "MAILROOM_EXAMPLES"
"""The environment variable that says how many examples are run: `few` for a person who waits, `all` in CI."""
_SEED = "MAILROOM_TEST_SEED"
"""How the seed reaches those who need it while tests are collected, in every process of a run."""


def examples(*, few: E, all: E) -> E:  # noqa: A002 - the two rates, by their names
    """Return how many examples, or which, to run at this run's rate."""
    rates = {"few": few, "all": all}
    rate = os.environ.get(RATE, "few")
    if rate not in rates:
        raise ValueError(f"{RATE} is {rate!r}: it is one of {', '.join(rates)}")
    return rates[rate]


def from_likely(seed: int | None, count: int) -> Iterable[int]:
    """Return so many seeds, and before them one that found what is looked for when it was written down."""
    return [*([] if seed is None else [seed]), *range(count)]


def first_seed() -> int:
    """Return the seed of the first example, far enough from another day's for all that follow."""
    return int(os.environ[_SEED]) * 10_000


def seed(config: Any) -> None:
    """Take the seed of a run from pytest's options, and hand it to all that generates examples or order."""
    if getattr(config.option, "randomly_seed", "default") == "default":
        config.option.randomly_seed = int(os.environ.get(_SEED) or f"{datetime.now(UTC):%Y%m%d}")
    os.environ[_SEED] = str(config.option.randomly_seed)
    config.option.hypothesis_seed = os.environ[_SEED]
    # A file of examples that failed would be this machine's alone: the seed runs them again anywhere.
    hypothesis.settings.register_profile(
        "mailroom", max_examples=examples(few=25, all=100), deadline=None, database=None
    )
    hypothesis.settings.load_profile("mailroom")
