"""Answers that are no errors and not the whole truth: rows left unwritten, keys left unread, empty pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import botocore.client
import pytest

from mailroom.outbox.relay import Relay
from mailroom.outbox.table import BATCH_WRITE, OutboxTable, pending
from mailroom.publishers.publisher import SENT
from mailroom.runtime import Runtime
from mailroom.testing import FakePublisher, ManualClock, transient

if TYPE_CHECKING:
    from .conftest import Outbox

SHARD = 3
Call = Callable[[dict[str, Any]], dict[str, Any]]
Between = Callable[[Call, dict[str, Any]], dict[str, Any]]


@pytest.fixture
def answering(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[str, Between], None]:
    """Puts a function between a client and AWS for one operation: it gets the call and its parameters."""

    def put(operation: str, between: Between) -> None:
        call = botocore.client.BaseClient._make_api_call

        def answer(self: Any, name: str, parameters: dict[str, Any]) -> Any:
            if name != operation:
                return call(self, name, parameters)
            return between(lambda changed: call(self, name, changed), parameters)

        monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", answer)

    return put


def half_of(operation_field: str, answer_field: str, times: int) -> Between:
    """Do half of a batch write, so many times, and say which half was not done."""
    left = times

    def between(call: Call, parameters: dict[str, Any]) -> dict[str, Any]:
        nonlocal left
        ((table, requests),) = parameters[operation_field].items()
        if left <= 0 or len(requests) < 2:
            return call(parameters)
        left -= 1
        middle = len(requests) // 2
        answer = call({**parameters, operation_field: {table: requests[:middle]}})
        return {**answer, answer_field: {table: requests[middle:]}}

    return between


def test_rows_left_unwritten_are_written_again(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, answering: Any
) -> None:
    events = [outbox.add() for _ in range(30)]
    answering("BatchWriteItem", half_of("RequestItems", "UnprocessedItems", times=3))
    relay.drain(SHARD)
    assert (outbox.sent, outbox.pending) == (events, [])
    assert outbox.lease.clean


def test_rows_left_undeleted_are_deleted_again__and_only_they(relay: Relay, outbox: Outbox, answering: Any) -> None:
    events = [outbox.add() for _ in range(4)]
    half = half_of("RequestItems", "UnprocessedItems", times=1)
    deletes: list[int] = []

    def half_of_the_deletes(call: Call, parameters: dict[str, Any]) -> dict[str, Any]:
        ((_, requests),) = parameters["RequestItems"].items()
        if "DeleteRequest" not in requests[0]:
            return call(parameters)
        deletes.append(len(requests))
        return half(call, parameters)

    answering("BatchWriteItem", half_of_the_deletes)
    relay.drain(SHARD)
    assert (outbox.sent, outbox.pending) == (events, [])
    assert outbox.lease.clean
    assert deletes == [4, 2]


def test_rows_that_stay_unwritten_stay_pending__and_only_they_are_sent_again(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, answering: Any
) -> None:
    events = [outbox.add() for _ in range(4)]

    def never_the_last(call: Call, parameters: dict[str, Any]) -> dict[str, Any]:
        ((table, requests),) = parameters["RequestItems"].items()
        written = [request for request in requests if events[3] not in str(request)]
        refused = [request for request in requests if events[3] in str(request)]
        answer = call({"RequestItems": {table: written}}) if written else {}
        return {**answer, "UnprocessedItems": {table: refused} if refused else {}}

    answering("BatchWriteItem", never_the_last)
    relay.drain(SHARD)
    assert (outbox.sent, outbox.pending) == (events[:3], events[3:])
    assert not outbox.lease.clean


def test_keys_left_unread_are_read_again__before_an_event_goes(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, clock: ManualClock, answering: Any
) -> None:
    subject = outbox.subject()
    first = outbox.add(subject)
    others = [outbox.add() for _ in range(100)]
    outbox.add(subject)
    publisher.answer = lambda event: transient() if event.id == first else SENT
    asked = 0

    def unread_at_first(call: Call, parameters: dict[str, Any]) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        if asked == 1:
            return {"Responses": {}, "UnprocessedKeys": parameters["RequestItems"]}
        return call(parameters)

    answering("BatchGetItem", unread_at_first)
    relay.drain(SHARD)
    assert asked == 2
    assert sorted(publisher.ids) == others, "the successor waits: its predecessor is pending"


def test_an_event_that_is_no_longer_pending_is_not_buried(outbox: Outbox, runtime: Runtime, clock: ManualClock) -> None:
    outbox.add()
    table = OutboxTable(runtime)
    (event,) = table.page(SHARD).events
    table.remove_pending(SHARD, [event.id])
    assert table.bury(event, transient(), 5, clock.now()) is False
    assert outbox.dead == []


def test_only_keys_left_unread_are_read_again(outbox: Outbox, runtime: Runtime, answering: Any) -> None:
    events = [outbox.add() for _ in range(4)]
    asked: list[int] = []

    def half_at_first(call: Call, parameters: dict[str, Any]) -> dict[str, Any]:
        ((table, request),) = parameters["RequestItems"].items()
        keys = request["Keys"]
        asked.append(len(keys))
        if len(asked) > 1:
            return call(parameters)
        answer = call({"RequestItems": {table: {**request, "Keys": keys[:2]}}})
        return {**answer, "UnprocessedKeys": {table: {**request, "Keys": keys[2:]}}}

    answering("BatchGetItem", half_at_first)
    assert OutboxTable(runtime).among(pending(SHARD), events) == set(events)
    assert asked == [4, 2]


def test_an_attempt_at_an_event_that_is_no_longer_pending_is_not_recorded(outbox: Outbox, runtime: Runtime) -> None:
    outbox.add()
    table = OutboxTable(runtime)
    (event,) = table.page(SHARD).events
    assert table.record_attempt(event, 1) is True
    assert event.attempts == 1
    table.remove_pending(SHARD, [event.id])
    assert table.record_attempt(event, 2) is False
    assert outbox.pending == [], "an update would bring it back as a row without payload"


def test_deletes_are_confirmed_of_every_batch(outbox: Outbox, runtime: Runtime) -> None:
    events = [outbox.add() for _ in range(BATCH_WRITE + 5)]
    assert OutboxTable(runtime).remove_pending(SHARD, events) == set(events)


def test_an_empty_page_is_not_the_end__while_it_has_a_cursor(
    relay: Relay, outbox: Outbox, publisher: FakePublisher, answering: Any
) -> None:
    event = outbox.add()

    def empty_at_first(call: Call, parameters: dict[str, Any]) -> dict[str, Any]:
        if "ExclusiveStartKey" in parameters:
            return call(parameters)
        return {"Items": [], "LastEvaluatedKey": {"partition": {"S": "pending#03"}, "event_id": {"S": "0"}}}

    answering("Query", empty_at_first)
    assert relay.has_mail(SHARD)
    relay.drain(SHARD)
    assert publisher.ids == [event]
