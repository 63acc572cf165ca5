"""Functions that return the wrong type: permanent at once, with what was wanted of whom, and nothing written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

from app.events import RepoCreated
from app.owners import Owner
from mailroom.consumer import consumer
from mailroom.consumer_edge import ConsumerEdge
from mailroom.failures import Failure, FailureKind, Permanent
from mailroom.http.api import Api
from mailroom.http.command import Command
from mailroom.http.testing import ApiClient
from mailroom.idempotency import IdempotencyRow
from mailroom.job import JobContext, JobEdge, job
from mailroom.needs import Access
from mailroom.outbox.event import Envelope
from mailroom.outbox.relay import Relay
from mailroom.publishers.publisher import SENT
from mailroom.returns import WrongReturn
from mailroom.runtime import Runtime
from mailroom.saga import Step, StepCall, saga
from mailroom.saga_row import Status, Trouble
from mailroom.schedule import Every
from mailroom.sources.memory import InMemorySource
from mailroom.telemetry import LogEvent
from mailroom.testing import FakePublisher, LambdaContext, ManualClock
from mailroom.unit_of_work import UnitOfWork
from tests.log_lines import Lines

from .outbox.conftest import SHARD, Outbox, outbox  # noqa: F401 - a fixture
from .sagas.conftest import Data, Line, acting, car, effects, flight, line, once  # noqa: F401 - a fixture


class Other(BaseModel):
    """Not what the saga works on."""


def answering(answer: Any) -> Step[Data]:
    """Make a step that answers this, and a compensation that answers it too."""

    def hotel(data: Data, call: StepCall) -> Any:
        call.work.update(Owner("hotel"), [Owner.repo_count.add(1)])
        return answer

    return Step(hotel, hotel)


@pytest.mark.parametrize("answer", [True, {}, Other(), Data], ids=repr)
def test_an_action_that_returns_no_data_is_tried_once__and_the_saga_turns_back(line: Line, answer: Any) -> None:
    trip = saga("trip", data=Data, steps=[flight, answering(answer)], writes=[Owner])
    line.deploy(trip)
    saga_id = line.start(trip)
    assert line.run() == 0
    row = line.row(saga_id)
    assert (row.status, effects()) == (Status.COMPENSATED, once("flight", "no_flight"))
    assert row.why_it_compensates is not None
    assert (row.why_it_compensates.kind, row.why_it_compensates.type) == (FailureKind.PERMANENT, "WrongReturn")
    assert row.why_it_compensates.message == (
        f"the saga trip: the action of its step hotel must return None or Data, not {name_of(answer)}"
    )


def test_a_compensation_that_returns_no_data_is_stuck_at_once__and_names_itself(line: Line) -> None:
    wrong = answering(True).action
    trip = saga("trip", data=Data, steps=[Step(flight.action, wrong), Step(_never)], writes=[Owner])
    line.deploy(trip)
    saga_id = line.start(trip)
    line.run()
    row = line.row(saga_id)
    assert (row.status, row.trouble, effects()) == (Status.STUCK, Trouble.COMPENSATION, once("flight"))
    assert "the compensation of its step flight must return None or Data" in str(row.trouble_failure)


def _never(_data: Data, _call: StepCall) -> None:
    raise Permanent("never")


class Queue:
    """Hands one event to a consumer, as often as it comes."""

    def __init__(self, runtime: Runtime, clock: ManualClock) -> None:
        self.source = InMemorySource(clock)
        self._runtime, self._clock = runtime, clock

    def deliver(self, declaration: Any) -> int:
        """Deliver it until it is handled or dead; answer how often its function was called."""
        payload = json.dumps({"repo_id": "1", "name": "tool", "owner_id": "owner-1"})
        event_id = "01JDW3NDEKTSV4RRFFQ69G5FAV-03"
        sent = Envelope(event_id, "repo.created", "test", "repos/1", "2030-01-01T00:00:00.000Z", payload)
        self.source.send(sent.to_json())
        edge = ConsumerEdge(declaration, self._runtime, self.source)
        CALLED.clear()
        while records := self.source.receive(10, wait=0, hidden=180):
            answer = edge.handle({"Records": records}, LambdaContext())
            failed = {each["itemIdentifier"] for each in answer["batchItemFailures"]}
            self.source.delete([each["receiptHandle"] for each in records if each["messageId"] not in failed])
            self._clock.advance(6_000)
        return len(CALLED)


CALLED: list[str] = []


def name_of(answer: Any) -> str:
    return "None" if answer is None else type(answer).__name__


def told(logs: Lines, event: LogEvent) -> str:
    """Return the first line of this kind, as text."""
    return str(next(line for line in logs() if line["message"] == event))


@pytest.fixture
def queue(runtime: Runtime, clock: ManualClock) -> Queue:
    return Queue(runtime, clock)


def failure() -> Failure:
    (record,) = IdempotencyRow.scan(consistent_read=True)
    return Failure.from_json(str(record.failure))


def test_a_consumer_that_returns_something_is_tried_once__and_nothing_of_it_is_written(queue: Queue) -> None:
    @consumer(on=RepoCreated, writes=[Owner])
    def greeter(event: RepoCreated, work: UnitOfWork) -> Any:
        CALLED.append(event.name)
        work.save(Owner(event.owner_id))
        return False  # "not done", which nobody would read

    assert queue.deliver(greeter) == 1
    assert (failure().kind, failure().message) == (FailureKind.PERMANENT, "greeter must return None, not bool")
    assert list(Owner.scan(consistent_read=True)) == []


def test_giving_up_says_whether_it_settled_it__or_it_did_not(queue: Queue, logs: Lines) -> None:
    def forget_to_say(event: Any, failure: Failure, work: UnitOfWork) -> Any:
        work.save(Owner(event.owner_id))

    @consumer(on=RepoCreated, writes=[Owner], gives_up=forget_to_say)
    def greeter(event: RepoCreated, work: UnitOfWork) -> None:
        CALLED.append(event.name)
        raise Permanent("never")

    assert queue.deliver(greeter) == 1
    assert failure().message == "never"
    assert list(Owner.scan(consistent_read=True)) == []
    assert "greeter's gives_up must return bool, not None" in str(told(logs, LogEvent.NOT_GIVEN_UP))


def test_a_job_that_returns_something_fails__and_nothing_of_it_is_written(runtime: Runtime) -> None:
    @job(schedule=Every(hours=1), writes=[Owner])
    def greet(work: JobContext) -> Any:
        work.save(Owner("owner-1"))
        return 0

    with pytest.raises(WrongReturn, match="greet must return None, not int"):
        JobEdge(greet, runtime).run(LambdaContext())
    assert list(Owner.scan(consistent_read=True)) == []


@pytest.mark.parametrize("answer", [None, {"id": "1"}, "created"], ids=repr)
def test_a_route_that_returns_no_reply_is_500__and_nothing_of_it_is_written(
    runtime: Runtime, logs: Lines, answer: Any
) -> None:
    class Make(Command):
        name: str

    api = Api(access=Access(writes=(Owner,)))

    @api.post("/things", body=Make)
    def post_thing(command: Make, call: Any) -> Any:
        call.work.save(Owner(command.name))
        return answer

    client = ApiClient(api, runtime)
    assert client.post("/things", {"name": "a"}, key="1").status == 500
    assert list(Owner.scan(consistent_read=True)) == []
    wanted = f"POST /things must return Reply, not {name_of(answer)}"
    assert wanted in told(logs, LogEvent.REQUEST_FAILED)


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (None, "not NoneType"),
        ([SENT], "not 1 entries"),
        ([SENT] * 4, "not 4 entries"),
        ([SENT, True, SENT], "not 3 entries"),
        ((SENT, SENT, SENT), "not tuple"),
    ],
    ids=repr,
)
def test_a_publisher_whose_answer_fits_no_events_pauses_the_shard__and_uses_nobodys_attempts(
    runtime: Runtime, outbox: Outbox, logs: Lines, answer: Any, found: str
) -> None:
    class Confused(FakePublisher):
        def publish(self, events: Any) -> Any:
            return answer

    events = [outbox.add() for _ in range(3)]
    Relay(runtime, Confused()).drain(SHARD)
    assert (outbox.pending, outbox.dead) == (events, [])
    assert [outbox.row(each).retry_count for each in events] == [None] * 3
    paused = told(logs, LogEvent.RELAY_PAUSED)
    assert f"Confused.publish must return a list with Sent or a Failure for each of 3 events, {found}" in paused
