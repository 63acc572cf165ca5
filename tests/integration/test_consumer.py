"""The consumer edge: each message on its own, its effect once, its failures spaced and counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from app.events import RepoCreated
from app.owners import Owner
from mailroom import clients
from mailroom.consumer import QUEUE_VARIABLE, Consumer, consumer
from mailroom.consumer_edge import ConsumerEdge, consumer_handler
from mailroom.declarations import DECLARATION_VARIABLE
from mailroom.failures import Failure, Permanent, RetryAfter
from mailroom.idempotency import IdempotencyRow
from mailroom.outbox.event import Envelope
from mailroom.runtime import Runtime
from mailroom.sources.source import MAX_RECEIVES
from mailroom.sources.sqs import SqsSource
from mailroom.telemetry import traceparent
from mailroom.testing import LambdaContext, ManualClock
from mailroom.unit_of_work import UnitOfWork
from tests.faults import Died, died, failing, throttled
from tests.log_lines import Lines

from .conftest import CallCounter
from .lagging import lagging_tables  # noqa: F401 - for every test here


class Handled:
    """What the consumer under test was called with, and what it does then."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.behave: Callable[[RepoCreated, UnitOfWork], None] = lambda event, work: None


HANDLED = Handled()
LONGER_THAN_ANY_WAIT = 6_000


@consumer(on=RepoCreated, writes=[Owner])
def counting(event: RepoCreated, work: UnitOfWork) -> None:
    HANDLED.names.append(event.name)
    work.update(Owner(event.owner_id), [Owner.repo_count.add(1)])
    HANDLED.behave(event, work)


@consumer(on=RepoCreated, writes=[Owner])
def counting_too(event: RepoCreated, work: UnitOfWork) -> None:
    work.update(Owner(event.owner_id), [Owner.repo_count.add(1)])


class Queue:
    """Receives from a real queue as Lambda would, and hands batches to the edge."""

    def __init__(self, runtime: Runtime, clock: ManualClock) -> None:
        self.url = clients.sqs().create_queue(QueueName="messages")["QueueUrl"]
        self.runtime, self.clock = runtime, clock
        self.edge = ConsumerEdge(counting, runtime, SqsSource(self.url))
        self.first_received: dict[str, int] = {}

    def send(self, *bodies: str) -> None:
        for body in bodies:
            clients.sqs().send_message(QueueUrl=self.url, MessageBody=body)

    def receive(self) -> dict[str, Any]:
        messages = clients.sqs().receive_message(QueueUrl=self.url, MaxNumberOfMessages=10).get("Messages", [])
        now = str(int(self.clock.now().timestamp() * 1000))
        return {
            "Records": [
                {
                    "messageId": message["MessageId"],
                    "receiptHandle": message["ReceiptHandle"],
                    "body": message["Body"],
                    "attributes": {"ApproximateFirstReceiveTimestamp": now, "ApproximateReceiveCount": "1"},
                    "eventSource": "aws:sqs",
                    "eventSourceARN": "arn:aws:sqs:us-east-1:123456789012:messages",
                }
                for message in messages
            ]
        }

    def handle(self, batch: dict[str, Any] | None = None, *, remaining_ms: int = 30_000) -> list[str]:
        """Answer the ids of the messages that are to come again."""
        answer = self.edge.handle(batch or self.receive(), LambdaContext(remaining_ms))
        return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]


@pytest.fixture
def queue(runtime: Runtime, clock: ManualClock) -> Queue:
    HANDLED.names, HANDLED.behave = [], lambda event, work: None
    return Queue(runtime, clock)


def message(name: str, event_id: str = "01JDW3NDEKTSV4RRFFQ69G5FAV-03", **changes: Any) -> str:
    return Envelope(
        id=event_id,
        type="repo.created",
        source="test.service",
        subject="repos/1",
        time="2030-01-01T00:00:00.000Z",
        payload=json.dumps({"repo_id": "1", "name": name, "owner_id": "owner-1", **changes}),
    ).to_json()


def effects() -> int:
    rows = list(Owner.scan(consistent_read=True))
    return int(rows[0].repo_count) if rows else 0


def visibility(calls: CallCounter) -> list[int]:
    changes = [c.parameters["Entries"] for c in calls.calls if c.operation == "ChangeMessageVisibilityBatch"]
    return [entry["VisibilityTimeout"] for entries in changes for entry in entries]


def fail(error: Exception) -> Callable[[RepoCreated, UnitOfWork], None]:
    def behave(event: RepoCreated, work: UnitOfWork) -> None:
        raise error

    return behave


def test_an_effect_happens_once__though_the_event_is_delivered_twice(queue: Queue) -> None:
    queue.send(message("tool"), message("tool"))
    assert queue.handle() == []
    assert (HANDLED.names, effects()) == (["tool"], 1)


def test_each_consumer_has_its_own_effect__though_both_get_the_same_event(queue: Queue, runtime: Runtime) -> None:
    queue.send(message("tool"))
    batch = queue.receive()
    assert queue.handle(batch) == []
    other = ConsumerEdge(counting_too, runtime, SqsSource(queue.url))
    assert other.handle(batch, LambdaContext(30_000)) == {"batchItemFailures": []}
    assert effects() == 2


def test_only_the_message_that_failed_comes_again(queue: Queue) -> None:
    def behave(event: RepoCreated, work: UnitOfWork) -> None:
        if event.name == "bad":
            raise ValueError("no")

    HANDLED.behave = behave
    ids = [f"01JDW3NDEKTSV4RRFFQ69G5FA{letter}-03" for letter in "ABC"]
    queue.send(message("good", ids[0]), message("bad", ids[1]), message("fine", ids[2]))
    batch = queue.receive()
    assert queue.handle(batch) == [batch["Records"][1]["messageId"]]
    assert effects() == 2


@pytest.mark.parametrize("body", ["not json", "null", "[1]", "{}", '{"id": 1}', '{"id":"x","type":"y","source":"z"}'])
def test_a_message_that_is_no_event_fails_alone(queue: Queue, body: str) -> None:
    queue.send(body, message("good"))
    batch = queue.receive()
    assert queue.handle(batch) == [r["messageId"] for r in batch["Records"] if r["body"] == body]
    assert effects() == 1


def test_a_message_that_is_no_event_has_a_record_of_its_own__which_says_why(queue: Queue) -> None:
    queue.send("not json", "null")
    batch = queue.receive()
    queue.handle(batch)
    failures = {
        row.event_id: Failure.from_json(row.failure).message for row in IdempotencyRow.scan(consistent_read=True)
    }
    not_json, null = (f"message/{record['messageId']}" for record in batch["Records"])
    assert failures.keys() == {not_json, null}
    assert failures[not_json].startswith("the message is not JSON")
    assert failures[null] == "the message is no CloudEvent but NoneType"
    assert {row.type for row in IdempotencyRow.scan(consistent_read=True)} == {"?"}


def test_the_record_of_a_failure_names_the_event(queue: Queue) -> None:
    HANDLED.behave = fail(ValueError("no"))
    queue.send(message("tool"))
    queue.handle()
    (row,) = IdempotencyRow.scan(consistent_read=True)
    assert (row.event_id, row.type, row.subject, row.failing) == (
        "01JDW3NDEKTSV4RRFFQ69G5FAV-03",
        "repo.created",
        "repos/1",
        "counting",
    )


def test_a_handler_can_ask_whether_its_time_is_up(queue: Queue, clock: ManualClock, runtime: Runtime) -> None:
    seen: list[bool] = []

    def behave(event: RepoCreated, work: UnitOfWork) -> None:
        clock.advance(29 - runtime.timings.stop_margin)
        seen.append(work.out_of_time())
        clock.advance(1)
        seen.append(work.out_of_time())

    HANDLED.behave = behave
    queue.send(message("tool"))
    queue.handle(remaining_ms=30_000)
    assert seen == [False, True]


def test_an_event_is_handled_in_its_own_trace(queue: Queue) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    seen: list[str | None] = []
    HANDLED.behave = lambda event, work: seen.append(traceparent())
    queue.send(replace(Envelope.from_json(message("tool")), traceparent=trace).to_json())
    queue.handle()
    assert seen == [trace]


def test_a_function_runs_the_consumer_and_the_queue_that_its_environment_names(
    queue: Queue, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DECLARATION_VARIABLE, counting.target)
    monkeypatch.setenv(QUEUE_VARIABLE, queue.url)
    handle = consumer_handler(lambda: runtime)
    queue.send(message("tool"), "not json")
    batch = queue.receive()
    failed = [record["messageId"] for record in batch["Records"] if record["body"] == "not json"]
    assert handle(batch, LambdaContext(30_000)) == {"batchItemFailures": [{"itemIdentifier": each} for each in failed]}
    assert effects() == 1


def test_a_batch_in_which_all_fail_answers_every_id(queue: Queue) -> None:
    queue.send("not json", "null")
    batch = queue.receive()
    assert sorted(queue.handle(batch)) == sorted(r["messageId"] for r in batch["Records"])


def test_an_empty_batch_is_harmless(queue: Queue) -> None:
    assert queue.handle({"Records": []}) == []


@pytest.mark.parametrize(
    "event", [{}, {"records": []}, {"detail": {}}, {"Records": None}, {"Records": {}}, {"Records": [7]}, []]
)
def test_something_that_is_no_batch_is_loud(queue: Queue, event: Any) -> None:
    with pytest.raises(ValueError, match="counting was called with something else than a batch"):
        queue.edge.handle(event, LambdaContext())


def test_the_waits_grow_with_the_attempts__and_the_sixth_delivery_skips_the_handler(
    queue: Queue, calls: CallCounter, runtime: Runtime
) -> None:
    HANDLED.behave = fail(ValueError("no"))
    queue.send(message("tool"))
    batch = queue.receive()
    for _ in range(8):
        assert queue.handle(batch) != []
    waits = visibility(calls)
    base = runtime.timings.consumer_backoff.base
    assert [base * 2**n <= wait <= base * 2**n * 1.5 for n, wait in enumerate(waits[:4])] == [True] * 4
    assert waits[4:] == [0, 0, 0, 0], "dead: SQS may move it on as soon as it has counted enough"
    assert len(HANDLED.names) == 5
    (row,) = IdempotencyRow.scan(consistent_read=True)
    assert (row.attempts, Failure.from_json(row.failure).message) == (5, "no")


def test_a_permanent_failure_is_not_tried_again(queue: Queue, calls: CallCounter) -> None:
    HANDLED.behave = fail(Permanent("never"))
    queue.send(message("tool"))
    batch = queue.receive()
    for _ in range(3):
        queue.handle(batch)
    assert len(HANDLED.names) == 1
    assert visibility(calls) == [0, 0, 0]


def test_a_payload_of_the_wrong_shape_never_reaches_the_handler(queue: Queue) -> None:
    queue.send(message("tool", owner_id=[1]))
    assert len(queue.handle()) == 1
    assert HANDLED.names == []
    (row,) = IdempotencyRow.scan(consistent_read=True)
    assert Failure.from_json(row.failure).kind == "permanent"


def test_a_handler_that_asks_for_time_gets_it(queue: Queue, calls: CallCounter) -> None:
    HANDLED.behave = fail(RetryAfter(7200))
    queue.send(message("tool"))
    queue.handle()
    assert visibility(calls) == [7200]


def test_no_message_stays_hidden_beyond_twelve_hours_of_its_first_receive(queue: Queue, calls: CallCounter) -> None:
    HANDLED.behave = fail(RetryAfter(12 * 3600))
    queue.send(message("tool"))
    batch = queue.receive()
    queue.clock.advance(3600)
    queue.handle(batch)
    assert visibility(calls) == [11 * 3600 - 1]


def test_an_effect_that_was_rolled_back_is_not_there(queue: Queue) -> None:
    HANDLED.behave = fail(ValueError("no"))
    queue.send(message("tool"))
    queue.handle()
    assert effects() == 0


def test_a_consumer_that_died_is_taken_over__and_the_attempt_was_counted(queue: Queue, clock: ManualClock) -> None:
    queue.send(message("tool"))
    batch = queue.receive()
    with failing("TransactWriteItems", died), pytest.raises(Died):
        queue.handle(batch)
    clock.advance(LONGER_THAN_ANY_WAIT)
    assert queue.handle(batch) == []
    assert effects() == 1
    (row,) = IdempotencyRow.scan(consistent_read=True)
    assert row.attempts == 2


def test_a_message_that_times_out_five_times_is_dead_and_says_so(queue: Queue, clock: ManualClock) -> None:
    queue.send(message("tool"))
    batch = queue.receive()
    for _ in range(5):
        with failing("TransactWriteItems", died), pytest.raises(Died):
            queue.handle(batch)
        clock.advance(LONGER_THAN_ANY_WAIT)
    assert len(queue.handle(batch)) == 1
    assert len(HANDLED.names) == 5
    (row,) = IdempotencyRow.scan(consistent_read=True)
    assert Failure.from_json(row.failure).message == "the attempt timed out or was killed"


def test_a_redriven_message_starts_afresh(queue: Queue) -> None:
    HANDLED.behave = fail(Permanent("never"))
    queue.send(message("tool"))
    dead = queue.handle()
    HANDLED.behave = lambda event, work: None
    queue.send(message("tool"))
    assert queue.handle() == dead, "the dead one stays dead, and the new one is handled"
    assert effects() == 1


def test_a_second_delivery_waits__while_the_first_is_at_work(queue: Queue, calls: CallCounter) -> None:
    queue.send(message("tool"))
    batch = queue.receive()

    def meanwhile(event: RepoCreated, work: UnitOfWork) -> None:
        HANDLED.behave = lambda event, work: None
        assert len(queue.handle(batch)) == 1

    HANDLED.behave = meanwhile
    assert queue.handle(batch) == []
    assert visibility(calls) == [30]


def test_what_there_is_no_time_for_is_handed_back_at_once__and_costs_no_attempt(
    queue: Queue, calls: CallCounter
) -> None:
    queue.send(message("tool"))
    assert len(queue.handle(remaining_ms=1000)) == 1
    assert (HANDLED.names, visibility(calls), list(IdempotencyRow.scan(consistent_read=True))) == ([], [0], [])


@pytest.mark.parametrize(("spare_ms", "handled"), [(0, []), (1, ["tool"])])
def test_nothing_is_begun__from_the_moment_on_at_which_the_invocation_has_to_stop(
    queue: Queue, runtime: Runtime, spare_ms: int, handled: list[str]
) -> None:
    queue.send(message("tool"))
    queue.handle(remaining_ms=int(runtime.timings.stop_margin * 1000) + spare_ms)
    assert HANDLED.names == handled


def test_a_message_that_time_never_reached_says_so__before_sqs_moves_it_on(queue: Queue) -> None:
    queue.send(message("tool"))
    batch = queue.receive()
    batch["Records"][0]["attributes"]["ApproximateReceiveCount"] = str(MAX_RECEIVES)
    assert len(queue.handle(batch, remaining_ms=1000)) == 1
    (row,) = IdempotencyRow.scan(consistent_read=True)
    failure = Failure.from_json(row.failure)
    assert (failure.type, row.attempts, HANDLED.names) == ("NeverInTime", 0, [])


def test_what_was_handed_back_most_often_goes_first(queue: Queue) -> None:
    queue.send(message("fresh", "01JDW3NDEKTSV4RRFFQ69G5FAA-03"), message("old", "01JDW3NDEKTSV4RRFFQ69G5FAB-03"))
    batch = queue.receive()
    for record in batch["Records"]:
        record["attributes"]["ApproximateReceiveCount"] = "4" if "old" in record["body"] else "1"
    queue.handle(batch)
    assert HANDLED.names == ["old", "fresh"]


def test_a_record_that_cannot_be_taken_is_no_verdict_on_the_message(queue: Queue) -> None:
    queue.send(message("tool"))
    batch = queue.receive()
    with failing("UpdateItem", throttled, times=100):
        assert len(queue.handle(batch)) == 1
    assert queue.handle(batch) == []
    assert effects() == 1


def test_a_postponement_that_fails_hides_nothing(queue: Queue) -> None:
    HANDLED.behave = fail(ValueError("no"))
    queue.send(message("tool"))
    with failing("ChangeMessageVisibilityBatch", throttled, times=100):
        assert len(queue.handle()) == 1


def test_what_is_logged_of_a_message_names_it_and_its_event(queue: Queue, logs: Lines) -> None:
    def fail_once(event: RepoCreated, work: UnitOfWork) -> None:
        HANDLED.behave = lambda event, work: None
        raise ValueError("no")

    HANDLED.behave = fail_once
    queue.send(message("tool"))
    batch = queue.receive()
    for _ in range(3):
        queue.handle(batch)
    about = {
        "consumer": "counting",
        "message_id": batch["Records"][0]["messageId"],
        "event_id": "01JDW3NDEKTSV4RRFFQ69G5FAV-03",
        "type": "repo.created",
        "subject": "repos/1",
    }
    lines = [line for line in logs() if line["message"].startswith("message")]
    assert [{name: line[name] for name in about} for line in lines] == [about] * 3
    assert [(line["message"], line["attempt"]) for line in lines] == [
        ("message failed", 1),
        ("message handled", 2),
        ("message repeated", 1),
    ]


def test_what_is_logged_of_a_message_that_is_no_event_names_the_message(queue: Queue, logs: Lines) -> None:
    queue.send("not json")
    batch = queue.receive()
    queue.handle(batch)
    (line,) = [line for line in logs() if line["message"] == "message failed"]
    assert line["message_id"] == batch["Records"][0]["messageId"]
    assert [line.get(name) for name in ("event_id", "type", "subject")] == [None] * 3


def test_a_declaration_names_where_it_is_found() -> None:
    assert isinstance(counting, Consumer)
    assert counting.target == f"{__name__}:counting"
