"""Transfers as a whole: whoever does what meanwhile, whatever fails, the owners' counts are right after every write.

A run is told by its seed, which a failure names. To play it again, or many more:

    MAILROOM_SAGA_SEED=1234 MAILROOM_SAGA_RUNS=1 pytest tests/integration/sagas/test_property.py
    MAILROOM_SAGA_RUNS=5000 pytest tests/integration/sagas/test_property.py -k every_write
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

import botocore.client
import pytest

from app.sagas import transfer as transfer_module
from mailroom import saga_consumer, telemetry, unit_of_work
from mailroom.row import bind
from mailroom.saga_row import Outcome, SagaRow, Status
from tests import generated

from .play import APP_SETTINGS, SETTINGS, Play, Unbalanced

RUNS = int(os.environ.get("MAILROOM_SAGA_RUNS") or generated.examples(few=30, all=300))
FIRST_SEED = int(os.environ.get("MAILROOM_SAGA_SEED") or generated.first_seed())
GETS_STUCK = 138
"""The seed of a play in which a saga gets stuck: one of three hundred does."""
NOTICED_WITHIN = 600
"""Runs in which a missing rule has to show."""

Patch = pytest.MonkeyPatch


@pytest.fixture
def run(aws: None, monkeypatch: Patch) -> Iterator[Callable[[Play], None]]:
    with monkeypatch.context() as patch:
        for name in ("log", "log_each", "log_error", "count"):
            patch.setattr(telemetry, name, lambda *_, **__: None)
        patch.setattr("mailroom.idempotency.log_error", lambda *_, **__: None)
        bind(SETTINGS, APP_SETTINGS)

        def run(play: Play) -> None:
            patch.setattr(botocore.client.BaseClient, "_make_api_call", lambda _, *call: play.aws(*call))
            try:
                play.run()
            finally:
                play.close()

        yield run


def test_the_counts_are_right_after_every_write__and_every_saga_ends(run: Callable[[Play], None]) -> None:
    ends: set[str] = set()
    for seed in (*range(FIRST_SEED, FIRST_SEED + RUNS), GETS_STUCK):
        play = Play(seed)
        try:
            run(play)
        except Unbalanced as unbalanced:
            tail = "\n".join(play.trace[-60:])
            pytest.fail(f"seed {seed}: {unbalanced}\nWhat happened last:\n{tail}", pytrace=False)
        ends |= {row.status for row in play._sagas()}
        ends |= {each.outcome.value for row in play._sagas() for each in row.transitions}
    if RUNS > 100:  # so many runs have seen everything
        assert ends == {Status.COMPLETED, Status.COMPENSATED, *Outcome}


def test_a_seed_tells_the_whole_run(run: Callable[[Play], None]) -> None:
    first, second = Play(7), Play(7)
    run(first)
    run(second)
    assert first.trace == second.trace


def no_versions(patch: Patch) -> None:
    """Write rows whatever became of them since they were read."""
    patch.setattr(unit_of_work, "_unchanged", lambda row: type(row).id.exists() | type(row).id.does_not_exist())


def no_look_at_the_place(patch: Patch) -> None:
    """Do what a request asks for wherever the saga stands."""

    def wanted(event: object, work: unit_of_work.UnitOfWork) -> SagaRow | None:
        row = work.get(SagaRow, event.saga_id)  # type: ignore[attr-defined]
        if row is not None and row.status not in (Status.COMPLETED, Status.COMPENSATED):
            row.position, row.direction = event.position, event.direction.value  # type: ignore[attr-defined]
        return row if row is not None and row.unfinished else None

    patch.setattr(saga_consumer, "_wanted", wanted)


def no_look_whose_it_is(patch: Patch) -> None:
    """Move a repository back whoever has it by now."""
    monkey = transfer_module.TransferData.model_copy
    patch.setattr(transfer_module.TransferData, "model_copy", lambda self, **_: monkey(self))


SHOWS_AT: dict[Callable[[Patch], None], int] = {no_look_whose_it_is: 453}
"""The seed of a play in which the absence of a rule showed when this was written, where that takes more than a few."""


@pytest.mark.parametrize("take_away", [no_versions, no_look_at_the_place, no_look_whose_it_is])
def test_a_missing_rule_is_noticed(
    run: Callable[[Play], None], take_away: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    take_away(monkeypatch)
    with pytest.raises(Unbalanced):
        _play_many(run, generated.from_likely(SHOWS_AT.get(take_away), NOTICED_WITHIN))


def _play_many(run: Callable[[Play], None], seeds: Iterable[int]) -> None:
    for seed in seeds:
        run(Play(seed))
