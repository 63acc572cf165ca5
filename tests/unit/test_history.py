"""What rows remember of what operators did, within the room that they have."""

from __future__ import annotations

import json

import pytest

from mailroom import saga_row
from mailroom.dead_letters.letter import MAX_WHY, Action, Deed, remembered
from mailroom.failures import Failure, FailureKind
from mailroom.history import MAX_HISTORY, MAX_HISTORY_BYTES, read_history, write_history
from mailroom.saga_row import Direction, Outcome, SagaRow, StepState

LONG = Failure(FailureKind.PERMANENT, "\U0001f4ee" * 500, "\U0001f4ee" * 5000)
SAID = Failure(FailureKind.PERMANENT, "Refused", "no")
WORDY = Deed(by="\U0001f4ee" * 5000, at="2030-01-01T00:00:00.000Z", why="\U0001f4ee" * 5000)


def deeds(count: int, size: int) -> list[dict[str, str]]:
    return [{"action": "redrive", "at": f"{number:04}", "by": "x", "why": "ü" * size} for number in range(count)]


def test_the_latest_are_kept__as_many_as_the_room_takes_in_bytes() -> None:
    written = write_history(deeds(10, 1000))
    kept = [deed["at"] for deed in read_history(written)]
    assert len(written.encode()) <= MAX_HISTORY_BYTES
    assert kept == [f"{number:04}" for number in range(5, 10)]


@pytest.mark.parametrize("spare", [0, 1])
def test_a_history_fits_to_the_byte(spare: int) -> None:
    exact = len(write_history(deeds(3, 10)).encode())
    assert len(read_history(write_history(deeds(3, 10), room=exact - spare))) == 3 - spare


def test_a_row_remembers_so_many_at_most() -> None:
    assert read_history(write_history(deeds(12, 1)))[0]["at"] == f"{12 - MAX_HISTORY:04}"


@pytest.mark.parametrize("room", [-100, 0, 2, 10])
def test_where_there_is_no_room_nothing_is_kept(room: int) -> None:
    assert write_history(deeds(3, 10), room=room) == "[]"


def test_several_deeds_are_kept__however_much_they_say() -> None:
    history = None
    for _ in range(12):
        history = remembered(history, Action.REDRIVE, WORDY, LONG, 5, became="01JDW3NDEKTSV4RRFFQ69G5FAV-03")
    assert history is not None
    assert len(history.encode()) <= MAX_HISTORY_BYTES
    assert len(read_history(history)) >= 4


def test_who_and_why_are_cut_with_a_mark__and_what_somebody_may_write_is_not() -> None:
    assert WORDY.why.endswith("…")
    assert WORDY.by.endswith("…")
    assert Deed(by="who", at="-", why="\U0001f4ee" * MAX_WHY).why == "\U0001f4ee" * MAX_WHY


def test_a_sagas_history_fits__and_still_tells_where_each_step_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saga_row, "MAX_SAGA_HISTORY_BYTES", 8 * 1024)
    names = [f"step-{number}" for number in range(4)]
    row = SagaRow(
        "1", saga="trip", steps=json.dumps(names), data="{}", status="compensating", direction="action", position=0
    )
    for position in range(4):
        row.position = position
        for direction in Direction:
            row.direction = direction.value
            for outcome in (Outcome.STUCK, Outcome.RETRIED, Outcome.DONE):
                row.note(outcome, "2030-01-01T00:00:00.000Z", SAID, WORDY)
    assert len(row.history.encode()) <= 8 * 1024
    assert len(row.transitions) == 4 * 2 * 3
    assert set(row.states().values()) == {StepState.UNDONE}
    assert (row.transitions[0].failure, row.transitions[-1].failure) == (None, SAID)
