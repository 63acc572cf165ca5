"""Messages of others: whatever their size, their records and log lines can be written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.events import RepoCreated
from mailroom.consumer import Consumer, consumer
from mailroom.consumer_edge import ConsumerEdge
from mailroom.dead_letters.records import ConsumerRecords
from mailroom.failures import Failure
from mailroom.idempotency import FAILED, IdempotencyRow
from mailroom.outbox.event import MAX_ID_BYTES, Envelope
from mailroom.runtime import Runtime
from mailroom.sources.memory import InMemorySource
from mailroom.telemetry import LogEvent, log, log_error
from mailroom.testing import LambdaContext, ManualClock
from mailroom.unit_of_work import UnitOfWork
from tests.log_lines import Lines

HUGE = "é" * 200_000


@consumer(on=RepoCreated)
def refusing(event: RepoCreated, work: UnitOfWork) -> None:
    raise ValueError("the reason")


def body(**changes: str) -> str:
    about = {"id": "01JDW3NDEKTSV4RRFFQ69G5FAV-03", "type": RepoCreated.type, "source": "others", "subject": "things/1"}
    return json.dumps(
        {**about, "data": {"repo_id": "1", "name": "tool", "owner_id": "owner-1"}, **changes}, ensure_ascii=False
    )


def deliver(declaration: Consumer, runtime: Runtime, clock: ManualClock, text: str) -> dict[str, Any]:
    """Deliver a message once; return the record that is kept of it."""
    source = InMemorySource(clock)
    source.send(text)
    batch = {"Records": source.receive(10, wait=0, hidden=180)}
    assert ConsumerEdge(declaration, runtime, source).handle(batch, LambdaContext(30_000))["batchItemFailures"]
    (row,) = IdempotencyRow.scan(consistent_read=True)
    return dict(row.attribute_values)


@pytest.mark.parametrize("name", ["subject", "type", "source", "parent", "after", "traceparent", "time"])
def test_the_record_of_a_failure_is_written__whatever_the_size_of_what_the_message_says_of_itself(
    runtime: Runtime, clock: ManualClock, name: str
) -> None:
    record = deliver(refusing, runtime, clock, body(**{name: HUGE}))
    failure = Failure.from_json(record["failure"])
    assert (record["status"], record["attempts"], record["event_id"]) == (FAILED, 1, "01JDW3NDEKTSV4RRFFQ69G5FAV-03")
    assert ("waits for" in failure.message) if name == "type" else (failure.message == "the reason")


def test_what_a_record_says_of_a_message_begins_as_the_message_does(runtime: Runtime, clock: ManualClock) -> None:
    record = deliver(refusing, runtime, clock, body(subject=HUGE))
    assert record["subject"].endswith("…")
    assert HUGE.startswith(record["subject"].removesuffix("…"))
    assert 900 < len(record["subject"].encode()) <= 1024


@pytest.mark.parametrize(("length", "known"), [(MAX_ID_BYTES, True), (MAX_ID_BYTES + 1, False)])
def test_a_message_whose_id_no_row_could_have_is_no_event(
    runtime: Runtime, clock: ManualClock, length: int, known: bool
) -> None:
    record = deliver(refusing, runtime, clock, body(id="x" * length))
    assert (record["event_id"] == "x" * length) is known
    assert ("has more than 1024 bytes" in Failure.from_json(record["failure"]).message) is not known


def test_a_log_line_of_a_message_is_no_longer_than_anybody_reads(
    runtime: Runtime, clock: ManualClock, logs: Lines
) -> None:
    deliver(refusing, runtime, clock, body(subject=HUGE))
    (line,) = [each for each in logs() if each["message"] == "message failed"]
    assert HUGE.startswith(line["subject"].removesuffix("…"))
    assert len(json.dumps(line, ensure_ascii=False).encode()) < 10_000


@pytest.mark.parametrize("name", ["subject", "type", "parent"])
def test_a_dead_letter_that_was_never_begun_gets_its_record__whatever_the_size_of_what_it_says_of_itself(
    runtime: Runtime, name: str
) -> None:
    envelope = Envelope.from_json(body(**{name: HUGE}))
    record = ConsumerRecords("refusing", runtime).begin(envelope.id, envelope, message_id="message-1")
    assert getattr(record, name).endswith("…")


def test_a_field_of_any_log_line_is_cut__and_what_says_where_an_error_came_from_is_not(logs: Lines) -> None:
    log_error(LogEvent.HANDLER_FAILED, ValueError(HUGE), subject=HUGE)
    log(LogEvent.MESSAGE_HANDLED, subject=HUGE)
    for line in logs():
        assert len(line["subject"].encode()) <= 2048
        assert HUGE.startswith(line["subject"].removesuffix("…"))
    assert HUGE in logs()[0]["exception"]
