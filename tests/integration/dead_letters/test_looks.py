"""Looks into a dead-letter queue: with an end, with a count, and nothing stays hidden."""

from __future__ import annotations

from typing import Any

import pytest

from mailroom import clients
from mailroom.clients import Call, observed
from mailroom.dead_letters import queue as queues
from mailroom.dead_letters.letter import Fate
from mailroom.dead_letters.queue import IN_HAND, PATIENCE, DeadLetterQueue
from mailroom.dead_letters.redrive import Plan
from mailroom.testing import ManualClock
from tests.faults import failing, throttled

from ..conftest import CallCounter
from .conftest import DEED, Stage


@pytest.fixture
def dead(stage: Stage) -> DeadLetterQueue:
    return DeadLetterQueue(stage.queues["greeter-dead"], stage.clock)


def visible(stage: Stage) -> int:
    names: Any = ["ApproximateNumberOfMessages"]
    answer = clients.sqs().get_queue_attributes(QueueUrl=stage.queues["greeter-dead"], AttributeNames=names)
    return int(answer["Attributes"]["ApproximateNumberOfMessages"])


def test_a_look_ends_where_the_queue_ends(stage: Stage, dead: DeadLetterQueue) -> None:
    events = stage.die_unseen(25)
    with dead.looking(up_to=100) as look:
        assert sorted(message.id for message in look) == sorted(events)
        assert (visible(stage), look.reached_end, look.seen) == (0, True, 25)
    assert visible(stage) == 25


def test_a_look_asks_all_servers_of_sqs__for_a_short_poll_may_answer_nothing_though_there_is_something(
    stage: Stage, dead: DeadLetterQueue, calls: CallCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "WAIT", 1)
    stage.die_unseen()
    with dead.looking(up_to=1) as look:
        list(look)
    assert [call.parameters["WaitTimeSeconds"] for call in calls.calls if call.operation == "ReceiveMessage"] == [1]


def test_a_look_passes_over_so_many_and_no_more(stage: Stage, dead: DeadLetterQueue) -> None:
    stage.die_unseen(30)
    with dead.looking(up_to=20) as look:
        assert (len(list(look)), look.reached_end) == (20, False)
    assert visible(stage) == 30


class SlowReceives:
    """Lets each receive take so many seconds. It is a `CallObserver`."""

    def __init__(self, clock: ManualClock, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds

    def before(self, call: Call) -> None:
        if call.operation == "ReceiveMessage":
            self._clock.advance(self._seconds)

    def after(self, call: Call, answer: dict[str, Any]) -> None: ...


def test_a_look_without_success_ends_in_time__and_before_what_it_saw_is_visible_again(
    stage: Stage, dead: DeadLetterQueue
) -> None:
    assert PATIENCE < IN_HAND
    stage.die_unseen(50)
    with observed(SlowReceives(stage.clock, PATIENCE / 2 - 1)), dead.looking(up_to=100) as look:
        assert (len(list(look)), look.reached_end) == (30, False)


def test_success_makes_a_look_go_on(stage: Stage, dead: DeadLetterQueue) -> None:
    stage.die_unseen(50)
    with observed(SlowReceives(stage.clock, PATIENCE / 2 - 1)), dead.looking(up_to=100) as look:
        for message in look:
            look.take(message)
        assert (look.seen, look.reached_end) == (50, True)


def test_what_comes_again_and_again_comes_to_an_end(
    stage: Stage, dead: DeadLetterQueue, calls: CallCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mailroom.dead_letters.queue.IN_HAND", 0)
    monkeypatch.setattr("mailroom.dead_letters.queue._TO_WORK_IN", -1)
    stage.die_unseen(3)
    with dead.looking(up_to=100) as look:
        assert (len(list(look)), look.reached_end) == (3, True)
    assert calls.counts["ReceiveMessage"] == 4


@pytest.mark.parametrize("struck", ["ReceiveMessage", "BatchGetItem"])
def test_whoever_is_interrupted_leaves_nothing_hidden(stage: Stage, struck: str) -> None:
    stage.die_unseen(25)
    seen = 0

    def third(call: Call) -> bool:
        nonlocal seen
        seen += call.operation == struck
        return call.operation == struck and (struck != "ReceiveMessage" or seen == 3)

    with failing(third, lambda _: KeyboardInterrupt()), pytest.raises(KeyboardInterrupt):
        stage.everything()
    assert visible(stage) == 25


def test_a_redrive_that_is_given_up_in_the_middle_leaves_nothing_hidden(stage: Stage) -> None:
    events = stage.die_unseen(5)
    results = stage.desk.of("greeter").redrive(events, DEED)
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert visible(stage) == 4


def test_what_cannot_be_given_back_stops_nobody__and_is_visible_again_in_two_minutes(stage: Stage) -> None:
    stage.die_unseen(2)
    with failing("ChangeMessageVisibilityBatch", throttled):
        assert len(stage.everything()) == 2
    assert visible(stage) == 0
    stage.clock.advance(IN_HAND + 1)
    assert visible(stage) == 2


def test_a_letter_in_a_deep_queue_is_not_looked_for_without_end__and_how_far_is_said(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mailroom.dead_letters.queue.SEARCHED", 20)
    stage.die_unseen(45)
    (result,) = stage.desk.of("greeter").redrive([stage.new_id()], DEED)
    assert (result.fate, result.detail) == (Fate.NOT_FOUND, "not found among the first 20 of about 45 looked at")
    found = stage.desk.search([stage.new_id()])
    assert (found.letters, found.looked_at, found.of) == ((), 20, 45)
    assert visible(stage) == 45


def test_a_slow_redrive_takes_one_look__and_what_was_too_long_in_hand_is_taken_again(
    stage: Stage, calls: CallCounter
) -> None:
    events = stage.die_unseen(4)
    assert stage.redrive(rate=1 / 90) == dict.fromkeys(events, "done")
    assert (stage.depth("greeter"), stage.depth("greeter-dead")) == (4, 0)
    assert calls.counts["ReceiveMessage"] < 10


def test_a_rate_does_not_look_through_the_queue_for_each_letter(stage: Stage, calls: CallCounter) -> None:
    stage.die_unseen(30)
    plan = Plan.matching(stage.desk, keep=lambda _: True)
    calls.calls.clear()
    stage.redrive(plan, rate=1)
    assert calls.counts["ReceiveMessage"] == 3
