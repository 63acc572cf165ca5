"""What a worker relies on with every source: who holds what, for how long, and by which receipt."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import NoCredentialsError

from mailroom import clients
from mailroom.failures import FailureKind
from mailroom.sources.source import (
    MAX_TENANT,
    TENANT,
    Message,
    Record,
    SourceRefused,
    is_tenant,
    longest_hiding,
    receives_of,
)
from mailroom.sources.sqs import SqsSource
from mailroom.testing import ManualClock
from mailroom.timings import Timings
from tests.faults import failing, refused, throttled, timed_out

from .sources import MAX_RECEIVES, QueueInMemory, QueueInSqs, SomeQueue, mend_moto

A_MOMENT = 0.002


@pytest.fixture
def in_sqs(monkeypatch: pytest.MonkeyPatch, clock: ManualClock) -> QueueInSqs:
    mend_moto(monkeypatch, clock)
    return QueueInSqs(clock)


@pytest.fixture(params=["memory", "sqs"])
def queue(request: pytest.FixtureRequest, clock: ManualClock) -> SomeQueue:
    """Each queue in turn."""
    return QueueInMemory(clock) if request.param == "memory" else request.getfixturevalue("in_sqs")


def receive(queue: SomeQueue, limit: int = 10, hidden: int = 30) -> list[Record]:
    queue.clock.advance(A_MOMENT)
    return queue.source.receive(limit, wait=0, hidden=hidden)


def bodies(records: list[Record]) -> list[str]:
    return sorted(record["body"] for record in records)


def test_a_message_is_in_lambdas_shape(queue: SomeQueue) -> None:
    queue.send("hello")
    (record,) = receive(queue)
    assert record["body"] == "hello"
    assert (record["eventSource"], record["messageAttributes"]) == ("aws:sqs", {})
    assert record["messageId"] != record["receiptHandle"] != ""
    assert record["md5OfBody"] == "5d41402abc4b2a76b9719d911017c592"
    assert receives_of(record) == 1


def test_each_message_is_answered_once__while_it_is_hidden(queue: SomeQueue) -> None:
    queue.send(*"abcdefghijkl")
    first, second, third = receive(queue), receive(queue), receive(queue)
    assert (len(first), len(second), third) == (10, 2, [])
    assert bodies(first + second) == list("abcdefghijkl")


def test_no_more_is_answered_than_was_asked_for(queue: SomeQueue) -> None:
    queue.send(*"abc")
    assert len(receive(queue, limit=2)) == 2


def test_a_receive_waits_so_long_and_no_longer__when_there_is_nothing(queue: SomeQueue) -> None:
    began = queue.clock.monotonic()
    assert queue.source.receive(10, wait=5, hidden=30) == []
    assert 5 <= queue.clock.monotonic() - began <= 7


def test_a_receive_answers_at_once__when_there_is_something(queue: SomeQueue) -> None:
    queue.send("a")
    queue.clock.advance(A_MOMENT)
    began = queue.clock.monotonic()
    assert len(queue.source.receive(10, wait=5, hidden=30)) == 1
    assert queue.clock.monotonic() == began


def test_a_message_comes_again__when_its_time_is_over(queue: SomeQueue) -> None:
    queue.send("a")
    (first,) = receive(queue, hidden=30)
    queue.clock.advance(29)
    assert receive(queue) == []
    queue.clock.advance(1)
    (again,) = receive(queue)
    assert again["messageId"] == first["messageId"]
    assert again["receiptHandle"] != first["receiptHandle"]
    assert (receives_of(first), receives_of(again)) == (1, 2)


def test_the_first_delivery_is_remembered(queue: SomeQueue) -> None:
    queue.send("a")
    (first,) = receive(queue, hidden=100)
    assert longest_hiding(first, queue.clock.now()) == pytest.approx(43_199, abs=0.01)
    queue.clock.advance(100)
    (again,) = receive(queue)
    assert longest_hiding(again, queue.clock.now()) == pytest.approx(43_099, abs=0.01)


def test_a_message_stays_hidden_for_longer__when_it_is_told_to(queue: SomeQueue) -> None:
    queue.send("a")
    (record,) = receive(queue, hidden=30)
    queue.clock.advance(29)
    assert queue.source.hide({record["receiptHandle"]: 30}) == {}
    queue.clock.advance(29)
    assert receive(queue) == []
    queue.clock.advance(1)
    assert len(receive(queue)) == 1


def test_a_message_that_is_given_back_can_be_received_at_once(queue: SomeQueue) -> None:
    queue.send("a")
    (record,) = receive(queue)
    assert queue.source.hide({record["receiptHandle"]: 0}) == {}
    assert bodies(receive(queue)) == ["a"]


def test_part_of_a_second_hides_nothing(queue: SomeQueue) -> None:
    queue.send("a")
    (record,) = receive(queue)
    assert queue.source.hide({record["receiptHandle"]: 0.9}) == {}
    assert bodies(receive(queue)) == ["a"]


def test_each_message_has_its_own_time(queue: SomeQueue) -> None:
    queue.send(*"abc")
    seconds = {"a": 0, "b": 10, "c": 40}
    records = receive(queue)
    assert queue.source.hide({each["receiptHandle"]: seconds[each["body"]] for each in records}) == {}
    assert bodies(receive(queue)) == ["a"]
    queue.clock.advance(10)
    assert bodies(receive(queue)) == ["b"]


def test_a_deleted_message_never_comes_again(queue: SomeQueue) -> None:
    queue.send(*"ab")
    gone, _ = receive(queue)
    assert queue.source.delete([gone["receiptHandle"]]) == {}
    queue.clock.advance(31)
    assert bodies(receive(queue)) == ["b"]


def test_more_messages_than_a_call_takes_are_hidden_and_deleted(queue: SomeQueue) -> None:
    queue.send(*"abcdefghijklm")
    records = receive(queue) + receive(queue)
    receipts = [record["receiptHandle"] for record in records]
    assert queue.source.hide(dict.fromkeys(receipts, 60)) == {}
    queue.clock.advance(59)
    assert receive(queue) == []
    assert queue.source.delete(receipts) == {}
    queue.clock.advance(10)
    assert receive(queue) == []


def test_nothing_is_no_trouble(queue: SomeQueue) -> None:
    assert (queue.source.hide({}), queue.source.delete([])) == ({}, {})


def delivered_twice(queue: SomeQueue) -> tuple[Record, Record]:
    queue.send("a")
    (first,) = receive(queue, hidden=1)
    queue.clock.advance(1)
    (again,) = receive(queue, hidden=30)
    return first, again


def test_an_earlier_receipt_deletes_nothing(queue: SomeQueue) -> None:
    first, _ = delivered_twice(queue)
    queue.source.delete([first["receiptHandle"]])
    queue.clock.advance(31)
    assert bodies(receive(queue)) == ["a"]


def test_an_earlier_receipt_hides_nothing__and_is_called_stale(queue: SomeQueue) -> None:
    first, _ = delivered_twice(queue)
    failed = queue.source.hide({first["receiptHandle"]: 0})
    assert {receipt: failure.type for receipt, failure in failed.items()} == {first["receiptHandle"]: "StaleReceipt"}
    assert receive(queue) == []


def test_the_receipt_of_a_deleted_message_is_stale__and_the_others_in_the_call_are_good(queue: SomeQueue) -> None:
    queue.send(*"ab")
    gone, there = (record["receiptHandle"] for record in receive(queue, hidden=30))
    queue.source.delete([gone])
    failed = queue.source.hide({gone: 60, there: 60})
    assert [(receipt, failure.kind) for receipt, failure in failed.items()] == [(gone, FailureKind.PERMANENT)]
    queue.clock.advance(59)
    assert receive(queue) == []


def test_deleting_twice_is_harmless(queue: SomeQueue) -> None:
    queue.send(*"ab")
    gone, _ = receive(queue)
    for _ in range(2):
        queue.source.delete([gone["receiptHandle"]])
    queue.clock.advance(31)
    assert len(receive(queue)) == 1


def test_a_message_that_is_delivered_too_often_is_dead(queue: SomeQueue) -> None:
    queue.send("a")
    for number in range(MAX_RECEIVES):
        (record,) = receive(queue)
        assert receives_of(record) == number + 1
        queue.source.hide({record["receiptHandle"]: 0})
    assert receive(queue) == []


def test_a_message_whose_time_is_over_is_hidden_no_more__as_sqs_has_it_and_moto_not(clock: ManualClock) -> None:
    queue = QueueInMemory(clock)
    queue.send("a")
    (record,) = queue.source.receive(1, wait=0, hidden=10)
    clock.advance(10)
    assert queue.source.hide({record["receiptHandle"]: 10})[record["receiptHandle"]].type == "StaleReceipt"
    assert queue.source.delete([record["receiptHandle"]]) == {}, "but deleted it can be"


def test_the_dead_can_be_seen(clock: ManualClock) -> None:
    queue = QueueInMemory(clock)
    queue.send("a", "b")
    for _ in range(MAX_RECEIVES):
        (record,) = queue.source.receive(1, wait=0, hidden=0)
    assert (queue.source.dead, queue.source.visible, queue.source.hidden) == ([record["body"]], ["b"], [])


def test_a_message_tells_whose_it_is__if_it_is_anybodys(queue: SomeQueue) -> None:
    assert queue.sink.put([Message("a", "owner_1"), Message("b", "owner_2"), Message("c")]) == []
    records = receive(queue)
    assert {each["body"]: each["attributes"].get(TENANT) for each in records} == {
        "a": "owner_1",
        "b": "owner_2",
        "c": None,
    }


def test_all_of_a_tenants_messages_can_be_had_at_once__and_twins_are_two(queue: SomeQueue) -> None:
    queue.sink.put([Message("a", "owner_1")] * 3)
    assert bodies(receive(queue)) == ["a", "a", "a"]


@pytest.mark.parametrize("tenant", ["a", "owner-1_b", "!~/\\", "x" * MAX_TENANT])
def test_a_tenants_name_is_what_a_queue_takes(queue: SomeQueue, tenant: str) -> None:
    assert is_tenant(tenant)
    queue.sink.put([Message("a", tenant)])
    assert [each["attributes"][TENANT] for each in receive(queue)] == [tenant]


@pytest.mark.parametrize("tenant", ["", "a b", "a\n", "\u00e9", "x" * (MAX_TENANT + 1)])
def test_a_tenants_name_is_not_what_sqs_refuses(tenant: str) -> None:
    assert not is_tenant(tenant)


# SQS alone


@pytest.mark.parametrize("code", ["AccessDenied", "AWS.SimpleQueueService.NonExistentQueue", "InvalidClientTokenId"])
def test_a_queue_that_somebody_has_to_mend_is_refused(in_sqs: QueueInSqs, code: str) -> None:
    with failing("ReceiveMessage", refused(code)), pytest.raises(SourceRefused, match="cannot be read"):
        receive(in_sqs)


def test_a_queue_that_is_not_there_is_refused__by_sqs_itself(in_sqs: QueueInSqs) -> None:
    with pytest.raises(SourceRefused, match=r"other.* cannot be read"):
        SqsSource(f"{in_sqs.url}-other").receive(10, wait=0, hidden=30)


def test_nobody_to_receive_as_is_refused(in_sqs: QueueInSqs) -> None:
    with failing("ReceiveMessage", lambda _: NoCredentialsError()), pytest.raises(SourceRefused):
        receive(in_sqs)


def test_a_queue_that_does_not_answer_this_time_is_no_refusal(in_sqs: QueueInSqs) -> None:
    with failing("ReceiveMessage", throttled), pytest.raises(Exception, match="Throttling"):
        receive(in_sqs)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("error", [throttled, timed_out])
def test_a_call_that_fails_is_a_failure_of_each_message_in_it__and_no_error(
    in_sqs: QueueInSqs, error: Any, late: bool
) -> None:
    in_sqs.send(*"abcdefghijkl")
    receipts = [each["receiptHandle"] for each in receive(in_sqs) + receive(in_sqs)]
    with failing("DeleteMessageBatch", error, after=late):
        failed = in_sqs.source.delete(receipts)
    assert list(failed) == receipts[:10]
    assert {failure.kind for failure in failed.values()} == {FailureKind.UNAVAILABLE}


def answering(answer: dict[str, Any]) -> Any:
    """Have SQS answer a change of visibility so."""

    def change(params: Any, **_: Any) -> Any:
        return type("Response", (), {"status_code": 200}), answer

    return change


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ({}, FailureKind.UNAVAILABLE),
        ({"Failed": [{"Id": "0", "Code": "InternalError", "SenderFault": False}]}, FailureKind.UNAVAILABLE),
        ({"Failed": [{"Id": "0", "Code": "SomethingNew", "SenderFault": True}]}, FailureKind.TRANSIENT),
        ({"Failed": [{"Id": "0", "Code": "ReceiptHandleIsInvalid", "SenderFault": True}]}, FailureKind.PERMANENT),
        (
            {"Failed": [{"Id": "0", "Code": "AWS.SimpleQueueService.MessageNotInflight", "SenderFault": True}]},
            FailureKind.PERMANENT,
        ),
    ],
)
def test_a_message_that_sqs_did_not_confirm_has_failed(
    in_sqs: QueueInSqs, answer: dict[str, Any], kind: FailureKind
) -> None:
    hooks, change = clients.sqs().meta.events, answering(answer)
    hooks.register("before-call.sqs.ChangeMessageVisibilityBatch", change)
    try:
        failed = in_sqs.source.hide({"receipt": 10})
    finally:
        hooks.unregister("before-call.sqs.ChangeMessageVisibilityBatch", change)
    assert {receipt: failure.kind for receipt, failure in failed.items()} == {"receipt": kind}


def test_a_receive_is_read_for_longer_than_it_waits__and_tried_once() -> None:
    config = clients.polling_sqs().meta.config
    assert config.read_timeout > Timings().poll_wait
    assert config.retries["total_max_attempts"] == 1
    assert clients.sqs().meta.config.read_timeout == Timings().read_timeout


def test_a_messages_attributes_are_named_as_lambda_does(in_sqs: QueueInSqs) -> None:
    attributes: Any = {"kind": {"DataType": "String", "StringValue": "test"}}
    clients.sqs().send_message(QueueUrl=in_sqs.url, MessageBody="a", MessageAttributes=attributes)
    (record,) = receive(in_sqs)
    assert record["messageAttributes"]["kind"] == {"dataType": "String", "stringValue": "test"}


def test_a_message_that_is_delayed_is_there_once_its_time_has_come(queue: SomeQueue) -> None:
    assert queue.sink.put([Message("now"), Message("later", delay=900)]) == []
    assert bodies(receive(queue, hidden=3_000)) == ["now"]
    queue.clock.advance(898)
    assert receive(queue) == []
    queue.clock.advance(3)
    assert bodies(receive(queue)) == ["later"]
