"""A saga is retried: it goes on without its dead letter, or without waiting, and nothing is done twice."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from mailroom.clients import Call
from mailroom.dead_letters.letter import Deed
from mailroom.failures import Permanent
from mailroom.saga_retry import NotRetried, retry
from mailroom.saga_row import SagaRow, Status, StepState, Trouble
from mailroom.trace import NothingKnown
from tests.faults import cancelled, failing

from .conftest import BEHAVE, TRIP, Line, Prepared, car, effects, flight, once, outcomes, raising, requests, trip_of
from .test_orchestrator import lose

DEED = Deed(by="operator", at="2030-01-01T00:00:00.000Z", why="the hotel is back")
ALL_UNDONE = once("flight", "hotel", "no_car", "no_hotel", "no_flight")
MOVED = cancelled({"Code": "ConditionalCheckFailed"})
BUSY = cancelled({"Code": "TransactionConflict"})


@pytest.fixture
def stuck(prepared: Prepared) -> str:
    """A saga whose hotel could not be cancelled, and whose letter is gone."""
    return prepared.by(get_stuck)


def get_stuck(line: Line) -> str:
    BEHAVE["car"] = raising(Permanent("never"))
    BEHAVE["no_hotel"] = raising(ValueError("the hotel does not answer"))
    saga_id = line.start()
    line.run()
    line.queue._dead.clear()
    return saga_id


def test_a_stuck_saga_goes_on_without_its_letter(line: Line, stuck: str) -> None:
    BEHAVE.clear()
    retry(stuck, DEED, line.runtime)
    line.run()
    assert line.row(stuck).status == Status.COMPENSATED
    assert effects() == ALL_UNDONE


def test_a_retried_saga_is_not_stuck_any_more__and_remembers_who_and_why(line: Line, stuck: str) -> None:
    answered = retry(stuck, DEED, line.runtime)
    row = line.row(stuck)
    assert (row.status, row.unfinished, row.trouble, row.trouble_request) == (
        Status.COMPENSATING,
        Status.COMPENSATING,
        None,
        None,
    )
    assert row.transitions[-1].deed == DEED
    assert outcomes(row)[-2:] == [("hotel", "compensation", "stuck"), ("hotel", "compensation", "retried")]
    assert row.states() == {"flight": StepState.DONE, "hotel": StepState.DONE, "car": StepState.UNDONE}
    assert answered.last_event_id == row.last_event_id == requests()[-1].event_id


def test_what_was_not_mended_is_stuck_again__by_the_new_request(line: Line, stuck: str) -> None:
    asked = retry(stuck, DEED, line.runtime).last_event_id
    line.run()
    row = line.row(stuck)
    assert (row.status, row.trouble, row.trouble_request) == (Status.STUCK, Trouble.COMPENSATION, asked)
    assert row.states()["hotel"] is StepState.STUCK
    assert len(line.queue.dead) == 1


def test_twice_is_harmless(line: Line, stuck: str) -> None:
    BEHAVE.clear()
    for _ in range(2):
        retry(stuck, DEED, line.runtime)
    line.run()
    assert line.row(stuck).status == Status.COMPENSATED
    assert (effects(), line.queue.dead) == (ALL_UNDONE, [])


def test_the_old_letter_does_no_harm__if_it_was_there_after_all(line: Line, stuck: str) -> None:
    old = line.row(stuck).trouble_request
    BEHAVE.clear()
    retry(stuck, DEED, line.runtime)
    line.queue.send(line.bodies[old])
    line.run()
    line.queue.send(line.bodies[old])
    line.run()
    assert line.row(stuck).status == Status.COMPENSATED
    assert effects() == ALL_UNDONE


def test_a_retry_whose_request_is_lost_too_is_asked_for_again_by_itself(line: Line, stuck: str) -> None:
    BEHAVE.clear()
    retry(stuck, DEED, line.runtime)
    lose(line)
    line.clock.advance(line.runtime.timings.saga_stall + 60)
    line.orchestrate()
    line.run()
    assert line.row(stuck).status == Status.COMPENSATED
    assert effects() == ALL_UNDONE


def test_a_saga_that_no_definition_fitted_goes_on__once_one_does(line: Line) -> None:
    saga_id = line.start()
    line.carry()
    line.deliver()
    line.deploy(trip_of(flight, car))
    line.run()
    line.queue._dead.clear()
    assert line.row(saga_id).trouble == Trouble.VERSION
    line.deploy(TRIP)
    assert retry(saga_id, DEED, line.runtime).status == Status.RUNNING
    line.run()
    assert line.row(saga_id).status == Status.COMPLETED
    assert effects() == once("flight", "hotel", "car")


def test_a_running_saga_need_not_be_waited_for(line: Line) -> None:
    saga_id = line.start()
    lose(line)
    assert retry(saga_id, DEED, line.runtime).status == Status.RUNNING
    line.run()
    assert line.row(saga_id).status == Status.COMPLETED
    assert effects() == once("flight", "hotel", "car")


def test_a_running_saga_that_lacks_nothing_does_nothing_twice(line: Line) -> None:
    saga_id = line.start()
    for _ in range(3):
        retry(saga_id, DEED, line.runtime)
        line.run(rounds=1)
    line.run()
    assert line.row(saga_id).status == Status.COMPLETED
    assert effects() == once("flight", "hotel", "car")


@pytest.mark.parametrize("behave", [{}, {"car": raising(Permanent("never"))}], ids=["completed", "compensated"])
def test_a_finished_saga_is_not_retried__and_says_so(line: Line, behave: dict[str, Callable[..., object]]) -> None:
    BEHAVE.update(behave)
    saga_id = line.start()
    line.run()
    before = line.row(saga_id)
    with pytest.raises(NotRetried, match=f"the saga {saga_id} is {before.status}: there is nothing left to do"):
        retry(saga_id, DEED, line.runtime)
    assert line.row(saga_id).version == before.version


def test_a_saga_that_is_not_there_cannot_be_retried(line: Line) -> None:
    with pytest.raises(NothingKnown, match="there is no saga 7"):
        retry("7", DEED, line.runtime)


@pytest.mark.parametrize("answer", [MOVED, BUSY])
def test_a_saga_that_moves_at_this_very_moment_is_left_alone(
    line: Line, stuck: str, answer: Callable[[Call], BaseException]
) -> None:
    before, asked = line.row(stuck), len(requests())
    with failing("TransactWriteItems", answer, times=99), pytest.raises(NotRetried, match="look again"):
        retry(stuck, DEED, line.runtime)
    assert (line.row(stuck).version, line.row(stuck).status, len(requests())) == (before.version, Status.STUCK, asked)


def test_the_history_is_bounded__however_often_it_is_retried(line: Line, stuck: str) -> None:
    retry(stuck, DEED, line.runtime)
    length = len(line.row(stuck).transitions)
    for _ in range(5):
        retry(stuck, DEED, line.runtime)
    assert len(line.row(stuck).transitions) == length


def test_a_history_of_before_there_were_retries_is_read(line: Line, stuck: str) -> None:
    row = line.row(stuck)
    written = json.loads(row.history)
    for each in written:
        del each["deed"]
    assert SagaRow(history=json.dumps(written)).transitions == row.transitions
