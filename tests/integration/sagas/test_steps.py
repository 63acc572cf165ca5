"""A saga's way: forward step by step, and back when one cannot be done; each effect on our tables once."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from app.owners import Owner
from mailroom.declarations import DeclarationError
from mailroom.failures import FailureKind, Permanent
from mailroom.needs import Access
from mailroom.outbox.event import Event
from mailroom.saga import MAX_DATA_BYTES, MAX_STEPS, SagaDataTooLarge, Step, saga
from mailroom.saga_consumer import SAGAS, saga_consumer
from mailroom.saga_row import SagaRow, Status
from mailroom.telemetry import LogEvent, Metric
from tests.faults import Died, failing, throttled, timed_out
from tests.log_lines import Lines

from .conftest import (
    BEHAVE,
    TOKENS,
    TRIP,
    Data,
    Line,
    acting,
    car,
    effects,
    flight,
    hotel,
    once,
    outcomes,
    raising,
    requests,
    trip_of,
)

NEVER = Permanent("never")


def test_a_saga_does_its_steps_in_order__each_once(line: Line) -> None:
    saga_id = line.start()
    line.run()
    row = line.row(saga_id)
    assert row.status == Status.COMPLETED
    assert effects() == once("flight", "hotel", "car")
    assert list(TOKENS) == [f"{saga_id}:{step}:action" for step in ("flight", "hotel", "car")]
    assert outcomes(row) == [(step, "action", "done") for step in ("flight", "hotel", "car")]


def test_the_requests_of_a_saga_have_its_subject__each_after_the_one_before(line: Line) -> None:
    saga_id = line.start()
    line.run()
    rows = requests()
    assert {row.subject for row in rows} == {f"sagas/{saga_id}"}
    assert [row.after for row in rows] == [None, *(row.event_id for row in rows[:-1])]


def test_a_step_that_cannot_be_done_has_those_before_it_undone__backwards(line: Line) -> None:
    BEHAVE["car"] = raising(NEVER)
    line.deploy(trip_of(flight, hotel, Step(acting("car"), acting("no_car"))))
    saga_id = line.start()
    line.run()
    row = line.row(saga_id)
    assert row.status == Status.COMPENSATED
    assert effects() == once("flight", "hotel", "no_hotel", "no_flight")
    assert TOKENS[-2:] == [f"{saga_id}:hotel:compensation", f"{saga_id}:flight:compensation"]
    assert row.why_it_compensates is not None
    assert (row.why_it_compensates.kind, row.why_it_compensates.message) == (FailureKind.PERMANENT, "never")


def test_the_failed_step_itself_is_undone__if_it_reaches_outside(line: Line) -> None:
    BEHAVE["car"] = raising(NEVER)
    line.start()
    line.run()
    assert effects() == once("flight", "hotel", "no_car", "no_hotel", "no_flight")


def test_a_step_without_compensation_is_passed_over_on_the_way_back(line: Line) -> None:
    trip = trip_of(flight, Step(acting("postcard")), car)
    line.deploy(trip)
    BEHAVE["car"] = raising(NEVER)
    line.start(trip)
    line.run()
    assert effects() == once("flight", "postcard", "no_car", "no_flight")


def test_a_first_step_that_fails_leaves_nothing_to_undo(line: Line) -> None:
    BEHAVE["flight"] = raising(NEVER)
    saga_id = line.start()
    assert line.run() == 0
    row = line.row(saga_id)
    assert (row.status, effects()) == (Status.COMPENSATED, {})
    assert outcomes(row) == [("flight", "action", "failed")]
    assert len(requests()) == 1


def test_a_step_has_five_attempts__and_the_saga_turns_back_after_the_last(line: Line) -> None:
    BEHAVE["hotel"] = raising(ValueError("not now"))
    saga_id = line.start()
    assert line.run() == 4
    assert TOKENS.count(f"{saga_id}:hotel:action") == 5
    assert line.row(saga_id).status == Status.COMPENSATED


def test_a_step_that_goes_well_after_all_is_no_reason_to_turn_back(line: Line) -> None:
    BEHAVE["hotel"] = raising(*[ValueError("not now")] * 4, None)
    saga_id = line.start()
    line.run()
    assert line.row(saga_id).status == Status.COMPLETED
    assert effects() == once("flight", "hotel", "car")


def test_a_step_that_kills_its_process_each_time_is_turned_back_from(line: Line) -> None:
    def die(_: Any) -> None:
        raise Died

    BEHAVE["hotel"] = die
    saga_id = line.start()
    line.carry()
    line.deliver()
    line.carry()
    for _ in range(5):
        with pytest.raises(Died):
            line.deliver()
        line.clock.advance(6_000)
    line.run()
    assert line.row(saga_id).status == Status.COMPENSATED
    assert effects() == once("flight", "no_flight")


def test_a_compensation_that_fails_twice_is_tried_again(line: Line) -> None:
    BEHAVE["car"] = raising(NEVER)
    BEHAVE["no_hotel"] = raising(ValueError("no"), ValueError("no"), None)
    saga_id = line.start()
    line.run()
    assert line.row(saga_id).status == Status.COMPENSATED
    assert effects() == once("flight", "hotel", "no_car", "no_hotel", "no_flight")


def test_a_compensation_is_told_why(line: Line) -> None:
    told: list[Any] = []
    BEHAVE["car"] = raising(NEVER)
    BEHAVE["no_flight"] = lambda call: told.append(call.failure.message)
    line.start()
    line.run()
    assert told == ["never"]


def test_what_a_step_answers_is_the_data_of_those_after_it(line: Line) -> None:
    def tell(call: Any) -> Data:
        return Data(told="by the flight")

    BEHAVE["flight"] = tell
    saga_id = line.start()
    line.run()
    assert json.loads(line.row(saga_id).data) == {"told": "by the flight"}


# What may go wrong on the way


@pytest.mark.parametrize("step", ["flight", "hotel", "car"])
def test_a_crash_between_effect_and_record_makes_one_effect(line: Line, step: str) -> None:
    died = []

    def die_at_commit(_: Any) -> bool:
        return bool(TOKENS) and f":{step}:" in TOKENS[-1] and not died

    saga_id = line.start()
    for _ in range(10):
        line.carry()
        with failing(lambda call: call.operation == "TransactWriteItems" and die_at_commit(call), lambda _: Died()):
            try:
                line.deliver()
            except Died:
                died.append(step)
        line.clock.advance(6_000)
    assert died == [step]
    assert line.row(saga_id).status == Status.COMPLETED
    assert effects() == once("flight", "hotel", "car")


def test_a_commit_whose_answer_was_lost_is_no_second_effect(line: Line) -> None:
    saga_id = line.start()
    for _ in range(6):
        line.carry()
        with failing("TransactWriteItems", timed_out, after=True, times=99):
            line.deliver()
        line.clock.advance(6_000)
    assert line.row(saga_id).status == Status.COMPLETED
    assert effects() == once("flight", "hotel", "car")


def test_turning_back_is_tried_again__when_its_own_write_fails(line: Line) -> None:
    BEHAVE["flight"] = raising(NEVER)
    saga_id = line.start()
    line.carry()
    with failing("TransactWriteItems", throttled, times=99):
        assert line.deliver() == 1
    assert line.row(saga_id).status == Status.RUNNING
    line.run()
    assert line.row(saga_id).status == Status.COMPENSATED


def test_requests_that_come_twice_and_late_do_nothing(line: Line, logs: Lines) -> None:
    saga_id = line.start()
    line.run()
    # As after the records' life: nobody remembers that they were handled.
    for number, row in enumerate(reversed(requests())):
        body = line.bodies[row.event_id].replace(row.event_id, f"{row.event_id[:-4]}X{number}{row.event_id[-2:]}")
        line.queue.send(body, body)
    assert line.run() == 0
    assert line.row(saga_id).status == Status.COMPLETED
    assert effects() == once("flight", "hotel", "car")
    assert [each["message"] for each in logs()].count(LogEvent.SAGA_REQUEST_IGNORED) == 3


def test_two_requests_for_one_step_at_once__one_wins(line: Line) -> None:
    saga_id = line.start()
    line.carry()
    (request,) = requests()
    twin = line.bodies[request.event_id].replace(request.event_id, f"{request.event_id[:-4]}XX{request.event_id[-2:]}")

    def meanwhile(_: Any) -> None:
        BEHAVE.clear()
        line.queue.send(twin)
        assert line.deliver() == 0

    BEHAVE["flight"] = meanwhile
    assert line.deliver() == 1
    line.run()
    assert line.row(saga_id).status == Status.COMPLETED
    assert effects() == once("flight", "hotel", "car")


def test_a_late_last_word_turns_nothing_back_that_has_moved_on(line: Line) -> None:
    def meanwhile(_: Any) -> None:
        BEHAVE.clear()
        row = line.row(saga_id)
        row.position, row.version = 1, row.version + 1
        row.save()
        raise Permanent("too late")

    saga_id = line.start()
    BEHAVE["flight"] = meanwhile
    line.carry()
    assert line.deliver() == 0
    assert (line.row(saga_id).status, line.row(saga_id).position) == (Status.RUNNING, 1)


# What is kept, told and counted


def test_a_finished_saga_is_on_no_list__and_leaves_after_its_time(line: Line) -> None:
    saga_id = line.start()
    assert [row.id for row in SagaRow.index.query(Status.RUNNING.value)] == [saga_id]
    assert line.row(saga_id).expires_at is None
    line.run()
    assert not [row for status in Status for row in SagaRow.index.query(status.value)]
    life = timedelta(seconds=line.runtime.timings.saga_retention)
    assert abs(line.row(saga_id).expires_at - line.clock.now() - life) < timedelta(seconds=60)


def test_what_becomes_of_a_saga_is_logged_and_counted__once_it_is_written(
    line: Line, logs: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    BEHAVE["hotel"] = raising(NEVER)
    line.start()
    line.run()
    said = [each["message"] for each in logs() if each["message"].startswith("saga")]
    assert said == [
        LogEvent.SAGA_STARTED,
        LogEvent.SAGA_STEP_DONE,
        LogEvent.SAGA_COMPENSATING,
        LogEvent.SAGA_STEP_DONE,
        LogEvent.SAGA_COMPENSATED,
    ]
    counted = [json.loads(text) for text in capsys.readouterr().out.splitlines() if text.startswith('{"_aws"')]
    assert sum(Metric.SAGA_COMPENSATED in each for each in counted) == 1
    assert not any(Metric.SAGA_COMPLETED in each for each in counted)


def test_nothing_is_told_of_what_was_not_written(line: Line, logs: Lines) -> None:
    line.start()
    line.carry()
    with failing("TransactWriteItems", throttled, times=99):
        line.deliver()
    assert LogEvent.SAGA_STEP_DONE not in [each["message"] for each in logs()]


def test_data_that_no_row_could_hold_is_refused(line: Line) -> None:
    with pytest.raises(SagaDataTooLarge, match=f"a saga has {MAX_DATA_BYTES}"):
        line.start(data=Data(told="x" * MAX_DATA_BYTES))
    assert not list(SagaRow.scan(consistent_read=True))


# Definitions


def lambda_() -> Any:
    return lambda data, call: None


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ([], "has 0 steps"),
        ([Step(acting(f"s{n}")) for n in range(MAX_STEPS + 1)], f"has {MAX_STEPS + 1} steps"),
        ([flight, flight], "two steps flight"),
        ([Step(lambda_())], "a step is a function with a name"),
        ([Step(acting("mail"), reaches_outside=True)], "mail reaches outside and has no compensation"),
    ],
)
def test_a_definition_that_cannot_be_is_refused(steps: list[Step[Data]], why: str) -> None:
    with pytest.raises(DeclarationError, match=why):
        trip_of(*steps)


def test_the_consumer_of_sagas_touches_what_any_of_them_does() -> None:
    class Noted(Event, type="test.noted"):
        pass

    class Empty(BaseModel):
        pass

    other = saga("other", data=Empty, steps=[Step(acting("only"))], reads=[SagaRow], publishes=[Noted])
    consumer = saga_consumer("a.module", [TRIP, other])
    assert (consumer.name, consumer.target) == (SAGAS, "a.module:sagas")
    assert isinstance(consumer.access, Access)
    assert set(consumer.access.writes) == {SagaRow, Owner}
    assert Noted in consumer.access.publishes


def test_a_consumer_of_no_sagas_is_refused() -> None:
    with pytest.raises(DeclarationError, match="there is no saga to run"):
        saga_consumer("a.module", [])


def test_the_steps_are_those_that_a_saga_was_started_with(line: Line) -> None:
    row = line.row(line.start())
    assert row.step_names == [step.name for step in (flight, hotel, car)]
