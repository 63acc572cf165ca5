"""What the life of an event adds to its row fits beside it, however large it is and however often it died."""

from __future__ import annotations

import pytest

from mailroom.dead_letters.letter import MAX_WHY, Deed
from mailroom.dead_letters.outbox import OutboxLetters
from mailroom.failures import Failure, FailureKind
from mailroom.history import MAX_HISTORY, read_history
from mailroom.outbox import room
from mailroom.outbox.room import MAX_EVENT_BYTES, size_of
from mailroom.outbox.table import DEAD, DISCARDED, OutboxRow, pending, sent
from mailroom.publishers.publisher import SENT

from ..outbox.conftest import SHARD
from ..outbox.test_unreadable import MOTOS_LIMIT, raw, spoil
from .conftest import Stage

BY = "arn:aws:sts::123456789012:assumed-role/" + "r" * 64 + "/" + "s" * 64
WORDY = Deed(by=BY, at="2030-01-01T00:00:00.000Z", why="\U0001f4ee" * MAX_WHY)
LONG = Failure(FailureKind.PERMANENT, "Refused", "\U0001f4ee" * 5000)
TRIES_AGAIN = Failure(FailureKind.TRANSIENT, "Refused", "\U0001f4ee" * 5000)


def add_as_large_as_can_be(stage: Stage) -> str:
    event_id = stage.outbox.add()
    left = MAX_EVENT_BYTES - size_of(raw(event_id, pending(SHARD)))
    spoil(event_id, payload={"S": '"' + "x" * left + '"'})
    assert size_of(raw(event_id, pending(SHARD))) == MAX_EVENT_BYTES
    return event_id


@pytest.fixture
def event(stage: Stage) -> str:
    """The largest event there can be, which died and was redriven more often than its row remembers, wordily."""
    event_id = add_as_large_as_can_be(stage)
    for _ in range(MAX_HISTORY + 2):
        stage.publisher.answer = lambda _: LONG
        stage.relay.drain(SHARD)
        assert stage.outbox.dead == [event_id]
        (result,) = OutboxLetters(stage.runtime).redrive([event_id], WORDY)
        assert result.ok, result.detail
    return event_id


def test_the_largest_event_dies_and_is_redriven_for_ever__and_is_delivered(stage: Stage, event: str) -> None:
    other = stage.outbox.add()
    stage.publisher.answer = lambda _: SENT
    stage.relay.drain(SHARD)
    assert stage.outbox.sent == [event, other]
    row = OutboxRow.get(sent(SHARD), event, consistent_read=True)
    assert (row.redriven, row.retry_count) == (MAX_HISTORY + 2, None)
    assert 4 <= len(read_history(row.history)) < MAX_HISTORY


def test_its_attempts_are_noted__until_the_last(stage: Stage, event: str) -> None:
    stage.publisher.answer = lambda _: TRIES_AGAIN
    for _ in range(5):
        stage.relay.drain(SHARD)
        stage.clock.advance(6_000)
    assert stage.outbox.dead == [event]
    assert OutboxRow.get(DEAD, event, consistent_read=True).retry_count == 5


def test_it_is_given_up__with_the_reason(stage: Stage, event: str) -> None:
    stage.relay.drain(SHARD)
    (result,) = OutboxLetters(stage.runtime).discard([event], WORDY)
    assert result.ok, result.detail
    assert read_history(OutboxRow.get(DISCARDED, event, consistent_read=True).history)[-1]["action"] == "discard"


def test_it_is_mended(stage: Stage, event: str) -> None:
    stage.relay.drain(SHARD)
    result = OutboxLetters(stage.runtime).edit(event, '{"mended":true}', WORDY)
    assert result.ok, result.detail


def test_a_history_that_outgrew_its_room_before_makes_room__once_the_event_is_redriven(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_LASTING_BYTES", MOTOS_LIMIT - room.ATTEMPT_BYTES)
    event_id = add_as_large_as_can_be(stage)
    left = MOTOS_LIMIT - size_of(raw(event_id, pending(SHARD))) - 200
    deed = '{"action":"redrive","at":"-","by":"x","why":"' + "w" * (left // 9 - 60) + '"}'
    spoil(event_id, history={"S": f"[{','.join([deed] * 9)}]"}, redriven={"N": "9"})
    stage.publisher.answer = lambda _: SENT
    stage.relay.drain(SHARD)
    assert stage.outbox.dead == [event_id]
    assert 4 <= len(read_history(OutboxRow.get(DEAD, event_id, consistent_read=True).history)) < 9
    (result,) = OutboxLetters(stage.runtime).redrive([event_id], WORDY)
    assert result.ok, result.detail
    stage.relay.drain(SHARD)
    assert stage.outbox.sent == [event_id]
