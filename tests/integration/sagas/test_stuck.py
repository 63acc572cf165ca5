"""Stuck sagas: why, how they are seen, and how a redrive takes them on."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from mailroom.failures import Permanent
from mailroom.idempotency import IdempotencyRow
from mailroom.saga import Step, saga
from mailroom.saga_consumer import SAGAS
from mailroom.saga_row import SagaRow, Status, StepState, Trouble
from mailroom.telemetry import LogEvent
from tests.faults import failing, throttled
from tests.log_lines import Lines

from .conftest import (
    BEHAVE,
    TRIP,
    Data,
    Line,
    Prepared,
    acting,
    car,
    effects,
    flight,
    hotel,
    once,
    outcomes,
    raising,
    trip_of,
)

NEVER = Permanent("never")


@pytest.fixture
def stuck(prepared: Prepared) -> str:
    """A saga whose hotel cannot be cancelled."""
    return prepared.by(get_stuck)


def get_stuck(line: Line) -> str:
    BEHAVE["car"] = raising(NEVER)
    BEHAVE["no_hotel"] = raising(ValueError("the hotel does not answer"))
    saga_id = line.start()
    line.run()
    return saga_id


def test_a_saga_that_cannot_be_undone_is_stuck__and_its_request_a_dead_letter(line: Line, stuck: str) -> None:
    row = line.row(stuck)
    assert (row.status, row.trouble) == (Status.STUCK, Trouble.COMPENSATION)
    assert "the hotel does not answer" in row.trouble_failure
    assert [row.id for row in SagaRow.index.query(Status.STUCK.value)] == [stuck]
    assert len(line.queue.dead) == 1
    assert row.trouble_request in line.queue.dead[0]
    assert effects() == once("flight", "hotel", "no_car")


def test_the_record_of_its_request_lists_it_as_failing(line: Line, stuck: str) -> None:
    assert [(each.failing, each.event_id) for each in IdempotencyRow.scan(consistent_read=True) if each.failing] == [
        (SAGAS, line.row(stuck).trouble_request)
    ]


def test_it_is_said_once__though_the_message_is_delivered_until_it_is_dead(logs: Lines, line: Line) -> None:
    stuck = get_stuck(line)
    row = line.row(stuck)
    assert outcomes(row).count(("hotel", "compensation", "stuck")) == 1
    line.redrive()
    line.run()
    assert [each["message"] for each in logs()].count(LogEvent.SAGA_STUCK) == 1
    assert line.row(stuck).version == row.version


def test_a_redrive_goes_on_where_it_was_stuck(line: Line, stuck: str) -> None:
    BEHAVE.clear()
    line.redrive()
    line.run()
    row = line.row(stuck)
    assert (row.status, row.trouble, row.trouble_failure, row.trouble_request) == (
        Status.COMPENSATED,
        None,
        None,
        None,
    )
    assert effects() == once("flight", "hotel", "no_car", "no_hotel", "no_flight")
    assert ("hotel", "compensation", "stuck") in outcomes(row)


def test_another_failure_of_the_redriven_request_is_what_is_told_of(line: Line, stuck: str) -> None:
    BEHAVE["no_hotel"] = raising(ValueError("the hotel burned down"))
    line.redrive()
    line.run()
    row = line.row(stuck)
    assert row.status == Status.STUCK
    assert "burned down" in row.trouble_failure
    assert outcomes(row).count(("hotel", "compensation", "stuck")) == 1


def test_the_history_is_bounded__however_often_it_is_redriven(line: Line, stuck: str) -> None:
    length = len(line.row(stuck).transitions)
    for number in range(5):
        BEHAVE["no_hotel"] = raising(ValueError(f"reason {number}"))
        line.redrive()
        line.run()
    assert len(line.row(stuck).transitions) == length


def test_each_step_has_a_state(line: Line, stuck: str) -> None:
    states = {"flight": StepState.DONE, "hotel": StepState.STUCK, "car": StepState.UNDONE}
    assert line.row(stuck).states() == states
    assert line.row(line.start()).states() == dict.fromkeys(states, StepState.NOT_BEGUN)


def test_being_stuck_is_written_at_a_later_delivery__when_its_own_write_fails(line: Line) -> None:
    BEHAVE["car"] = raising(NEVER)
    BEHAVE["no_car"] = raising(NEVER)
    saga_id = line.start()
    for _ in range(3):
        line.carry()
        line.deliver()
    line.carry()
    with failing("TransactWriteItems", throttled, times=99):
        line.deliver()
    assert line.row(saga_id).status == Status.COMPENSATING
    line.run()
    assert line.row(saga_id).status == Status.STUCK


# Definitions that change under a running saga


class Richer(BaseModel):
    """Data that the old data does not fit."""

    needed: int


def other_steps() -> Any:
    return trip_of(flight, Step(acting("hostel"), acting("no_hostel")), car)


def other_order() -> Any:
    return trip_of(hotel, flight, car)


def more_steps() -> Any:
    return trip_of(flight, hotel, car, Step(acting("souvenir")))


def other_data() -> Any:
    return saga("trip", data=Richer, steps=TRIP.steps, writes=TRIP.access.writes)


def other_name() -> Any:
    return saga("journey", data=Data, steps=TRIP.steps, writes=TRIP.access.writes)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (other_steps, "what is deployed has flight, hostel, car"),
        (other_order, "was started with the steps flight, hotel, car"),
        (more_steps, "what is deployed has flight, hotel, car, souvenir"),
        (other_data, "cannot read its data: needed: Field required"),
        (other_name, "what is deployed has no saga trip"),
    ],
)
def test_a_saga_is_stuck__when_its_definition_changed_under_it(line: Line, change: Any, why: str) -> None:
    saga_id = line.start()
    line.carry()
    line.deliver()
    line.deploy(change())
    line.run()
    row = line.row(saga_id)
    assert (row.status, row.trouble) == (Status.STUCK, Trouble.VERSION)
    assert why in row.trouble_failure
    assert (len(line.queue.dead), effects()) == (1, once("flight"))

    line.deploy(TRIP)
    line.redrive()
    line.run()
    assert line.row(saga_id).status == Status.COMPLETED
    assert effects() == once("flight", "hotel", "car")


def test_a_compensation_that_is_gone_is_stuck__not_passed_over(line: Line) -> None:
    BEHAVE["car"] = raising(NEVER)
    saga_id = line.start()
    for _ in range(4):
        line.carry()
        line.deliver()
    assert line.row(saga_id).step_name == "hotel"
    line.deploy(trip_of(flight, Step(acting("hotel")), car))
    line.run()
    row = line.row(saga_id)
    assert (row.status, row.trouble) == (Status.STUCK, Trouble.VERSION)
    assert "hotel has no compensation any more" in row.trouble_failure


def test_an_action_that_failed_before_the_change_is_not_undone_by_other_steps(line: Line) -> None:
    BEHAVE["hotel"] = raising(ValueError("not now"))
    saga_id = line.start()
    line.carry()
    line.deliver()
    line.carry()
    for _ in range(4):
        line.deliver()
        line.clock.advance(6_000)
    line.deploy(other_steps())
    line.run()
    assert line.row(saga_id).trouble == Trouble.VERSION
    assert effects() == once("flight")


def test_a_change_that_is_taken_back_before_the_last_word_turns_nothing_back(line: Line) -> None:
    saga_id = line.start()
    line.carry()
    line.deliver()
    line.deploy(other_steps())
    line.carry()
    with failing("TransactWriteItems", throttled, times=99):
        line.deliver()
    line.deploy(TRIP)
    line.run()
    assert (line.row(saga_id).status, line.row(saga_id).trouble) == (Status.STUCK, Trouble.VERSION)
    line.redrive()
    line.run()
    assert line.row(saga_id).status == Status.COMPLETED


def test_a_change_between_the_last_attempt_and_the_last_word_undoes_nothing(line: Line) -> None:
    BEHAVE["hotel"] = raising(NEVER)
    saga_id = line.start()
    line.carry()
    line.deliver()
    line.carry()
    with failing("TransactWriteItems", throttled, times=99):
        line.deliver()
    line.deploy(other_steps())
    line.run()
    row = line.row(saga_id)
    assert (row.status, row.trouble, row.failure) == (Status.STUCK, Trouble.VERSION, None)
    assert outcomes(row) == [("flight", "action", "done"), ("hotel", "action", "stuck")]
    assert effects() == once("flight")
