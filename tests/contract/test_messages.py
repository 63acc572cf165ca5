"""What is true of queues and topics: refusals of a whole call, places that are gone, order, and what arrives."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import EndpointConnectionError, NoCredentialsError, ReadTimeoutError

from mailroom import clients
from mailroom.failures import Failure, FailureKind
from mailroom.needs import Need
from mailroom.outbox.event import Envelope
from mailroom.outbox.limits import EventTooLarge, check_size
from mailroom.outbox.table import OutboxRow
from mailroom.publishers.place import PublisherUrlError
from mailroom.publishers.publisher import SENT, Destination, Outcome, kind_of
from mailroom.runtime import Runtime
from mailroom.sources.source import Message
from mailroom.sources.sqs import SqsSource
from tests import stage
from tests.faults import failing, refused

from .conftest import envelopes
from .messages import ACCOUNT, REGION, SECRET, event_in, keep_keys, make_queue, make_topic, sent

if TYPE_CHECKING:
    from .messages import Entry, Messages

UNAVAILABLE, PERMANENT, TRANSIENT = FailureKind.UNAVAILABLE, FailureKind.PERMANENT, FailureKind.TRANSIENT
QUEUE = f"arn:aws:sqs:{REGION}:{ACCOUNT}:things"
TOPIC = f"arn:aws:sns:{REGION}:{ACCOUNT}:things"
YMQ = f"ymq://message-queue.api.cloud.yandex.net/b1g/things?secret={SECRET}"


def failures(outcomes: list[Outcome]) -> list[Failure]:
    return [outcome for outcome in outcomes if isinstance(outcome, Failure)]


def kinds(outcomes: list[Outcome]) -> list[FailureKind]:
    return [failure.kind for failure in failures(outcomes)]


def publish(url: str, count: int = 1) -> list[Outcome]:
    kind, place = kind_of(url)
    return kind.at(place, Runtime(stage.settings())).publish(envelopes(count))


# A call as a whole


@pytest.mark.parametrize("guilty", [0, 4, 9])
def test_only_the_guilty_event_fails__when_its_call_is_refused_as_a_whole(guilty: int, messages: Messages) -> None:
    events = envelopes(10)
    bad = events[guilty].id
    messages.refused_whole = lambda ids: "InvalidParameterValue" if bad in ids else None

    outcomes = messages.publisher.publish(events)

    assert [position for position, outcome in enumerate(outcomes) if outcome is not SENT] == [guilty]
    assert kinds(outcomes) == [PERMANENT]
    assert messages.delivered == [event.id for event in events if event.id != bad]


def test_a_call_that_is_too_long_goes_in_halves(messages: Messages) -> None:
    messages.refused_whole = lambda ids: "AWS.SimpleQueueService.BatchRequestTooLong" if len(ids) > 3 else None

    assert messages.publisher.publish(envelopes(10)) == [SENT] * 10
    assert messages.delivered == [event.id for event in envelopes(10)]


@pytest.mark.parametrize(
    "code",
    ["ThrottlingException", "RequestThrottled", "Throttled", "KmsThrottled", "KMSDisabled", "ServiceUnavailable"],
)
def test_nobody_is_blamed_and_nothing_sent_again__when_the_place_is_down(code: str, messages: Messages) -> None:
    messages.refused_whole = lambda _: code

    assert kinds(messages.publisher.publish(envelopes(3))) == [UNAVAILABLE] * 3
    assert len(messages.calls) == 1


@pytest.mark.parametrize(
    "error",
    [
        EndpointConnectionError(endpoint_url="https://aws.example"),
        ReadTimeoutError(endpoint_url="https://aws.example"),
        NoCredentialsError(),
    ],
    ids=repr,
)
def test_nobody_is_blamed__when_nothing_answers(error: Exception, messages: Messages) -> None:
    messages.answer = lambda _: error

    assert kinds(messages.publisher.publish(envelopes(3))) == [UNAVAILABLE] * 3
    assert len(messages.calls) == 1


@pytest.mark.parametrize("error", [RuntimeError("odd"), KeyError("odder")], ids=repr)
def test_nothing_is_raised__whatever_the_client_raises(error: Exception, messages: Messages) -> None:
    messages.answer = lambda _: error

    assert kinds(messages.publisher.publish(envelopes(3))) == [TRANSIENT] * 3


def test_an_event_that_the_answer_leaves_out_is_sent_again__and_costs_no_attempt(messages: Messages) -> None:
    messages.answer = lambda entries: sent(entries[1:])

    outcomes = messages.publisher.publish(envelopes(3))

    assert outcomes[1:] == [SENT] * 2
    assert kinds(outcomes) == [UNAVAILABLE]


def test_an_error_that_nobody_knows_is_the_place_own__unless_it_says_that_it_is_ours(messages: Messages) -> None:
    def answer(entries: list[dict[str, str]]) -> dict[str, object]:
        faults = zip(entries, (True, False), strict=True)
        return {"Failed": [{"Id": each["Id"], "Code": "SomethingNew", "SenderFault": ours} for each, ours in faults]}

    messages.answer = answer  # type: ignore[assignment]

    assert kinds(messages.publisher.publish(envelopes(2))) == [TRANSIENT, UNAVAILABLE]


@pytest.mark.parametrize("code", ["InvalidMessageContents", "InvalidParameterValue", "InvalidParameter"])
def test_an_event_with_characters_that_the_place_refuses_fails_alone_and_at_once(code: str, messages: Messages) -> None:
    events = envelopes(3)
    messages.refuse({events[1].id: code})

    outcomes = messages.publisher.publish(events)

    assert [outcomes[0], outcomes[2]] == [SENT, SENT]
    assert kinds(outcomes) == [PERMANENT]


# A place that is gone, or refuses us


Make = Callable[[str], str]
PLACES = [("sqs", QUEUE, make_queue), ("sns", TOPIC, make_topic)]


@pytest.mark.parametrize(("scheme", "arn", "make"), PLACES)
def test_a_missing_place_is_nobodys_fault__says_what_to_do__and_heals(scheme: str, arn: str, make: Make) -> None:
    kind, place = kind_of(f"{scheme}://{arn}")
    publisher = kind.at(place, Runtime(stage.settings()))

    (failure, _) = failures(publisher.publish(envelopes(2)))
    assert failure.kind is UNAVAILABLE
    assert f"{arn} is not there: make it, or name another in publisher_url" in failure.message

    make("things")
    assert publisher.publish(envelopes(2)) == [SENT] * 2


def test_a_missing_queue_of_ymq_is_nobodys_fault__and_heals(server: str) -> None:
    keep_keys()
    kind, place = kind_of(f"ymq://{server}/{ACCOUNT}/things?secret={SECRET}&region={REGION}")
    publisher = kind.at(place, Runtime(stage.settings()))

    (failure,) = failures(publisher.publish(envelopes(1)))
    assert (failure.kind, "is not there" in failure.message) == (UNAVAILABLE, True)

    make_queue("things")
    assert publisher.publish(envelopes(1)) == [SENT]


@pytest.mark.parametrize(("scheme", "arn", "make"), PLACES)
def test_a_place_that_goes_missing_is_noticed__and_heals(scheme: str, arn: str, make: Make) -> None:
    make("things")
    kind, place = kind_of(f"{scheme}://{arn}")
    publisher = kind.at(place, Runtime(stage.settings()))
    assert publisher.publish(envelopes(1)) == [SENT]

    if scheme == "sns":
        clients.sns(REGION).delete_topic(TopicArn=arn)
    clients.sqs().delete_queue(QueueUrl=clients.sqs().get_queue_url(QueueName="things")["QueueUrl"])
    assert kinds(publisher.publish(envelopes(1))) == [UNAVAILABLE]

    make("things")
    assert publisher.publish(envelopes(1)) == [SENT]


@pytest.mark.parametrize(
    ("url", "operation", "remedy"),
    [
        (f"sqs://{QUEUE}", "SendMessageBatch", "allow sqs:GetQueueUrl and sqs:SendMessage to the relay"),
        (f"sqs://{QUEUE}", "GetQueueUrl", "allow sqs:GetQueueUrl and sqs:SendMessage to the relay"),
        (f"sns://{TOPIC}", "PublishBatch", "allow sns:Publish to the relay"),
    ],
)
@pytest.mark.parametrize("code", ["AccessDenied", "AuthorizationError", "InvalidClientTokenId", "InvalidSecurity"])
def test_a_place_that_refuses_us_is_nobodys_fault__says_what_to_do__and_heals(
    url: str, operation: str, remedy: str, code: str
) -> None:
    make_topic("things")
    kind, place = kind_of(url)
    publisher = kind.at(place, Runtime(stage.settings()))

    with failing(operation, refused(code)):
        (failure, _) = failures(publisher.publish(envelopes(2)))

    assert failure.kind is UNAVAILABLE
    assert f"refuses us: {remedy}" in failure.message
    assert publisher.publish(envelopes(2)) == [SENT] * 2


def test_the_queue_is_looked_up_once(messages: Messages) -> None:
    with failing("GetQueueUrl", refused("AccessDenied"), times=9) as looks:
        messages.publisher.publish(envelopes(1))
    for _ in range(3):
        messages.publisher.publish(envelopes(1))
    with failing("GetQueueUrl", refused("AccessDenied")) as later:
        assert messages.publisher.publish(envelopes(1)) == [SENT]
    assert len(looks.struck) <= 1
    assert later.struck == []


# The keys of Yandex Message Queue


@pytest.mark.parametrize(
    "secret", [None, "no JSON", "[]", '{"access_key_id": "a"}', '{"access_key_id": 1, "secret_access_key": "b"}']
)
def test_without_keys_nobody_is_blamed__and_the_secret_is_named_but_not_told(secret: str | None, server: str) -> None:
    if secret is not None:
        clients.secretsmanager().create_secret(Name=SECRET, SecretString=secret)

    (failure,) = failures(publish(f"ymq://{server}/{ACCOUNT}/things?secret={SECRET}"))

    assert failure.kind is UNAVAILABLE
    assert secret is None or (SECRET in failure.message and secret not in failure.message)


def test_keys_are_read_again__when_the_queue_refuses_them(server: str) -> None:
    make_queue("things")
    keep_keys("old")
    kind, place = kind_of(f"ymq://{server}/{ACCOUNT}/things?secret={SECRET}&region={REGION}")
    publisher = kind.at(place, Runtime(stage.settings()))
    assert publisher.publish(envelopes(1)) == [SENT]

    keep_keys("new")
    with failing("SendMessageBatch", refused("InvalidClientTokenId")):
        (failure,) = failures(publisher.publish(envelopes(1)))
    assert f"put keys that may write to it into the secret {SECRET}" in failure.message
    with failing("GetSecretValue", refused("AccessDenied")):
        assert kinds(publisher.publish(envelopes(1))) == [UNAVAILABLE]
    assert publisher.publish(envelopes(1)) == [SENT]


# Order and repetition


def group_of(entry: Entry) -> str:
    return str(entry["MessageGroupId"])


def test_a_group_is_a_subject__and_an_event_without_one_waits_for_nobody(messages: Messages) -> None:
    ends = ("a", "b", "c", "d", "e")
    subjects = ("things/1", "things/2", "things/1", None, None)
    events = [envelopes(1, id=end, subject=subject)[0] for end, subject in zip(ends, subjects, strict=True)]

    messages.publisher.publish(events)

    (entries,) = messages.calls
    if messages.publisher.keeps_order:
        first, other, again, *alone = map(group_of, entries)
        assert first == again
        assert len({first, other, *alone}) == 4
    else:
        assert not any("MessageGroupId" in entry for entry in entries)


@pytest.mark.parametrize("subject", ["x" * 2_000, "ключ", "a b\tc", "\u200b"])
def test_any_subject_makes_a_group_that_aws_takes(subject: str, messages: Messages) -> None:
    assert messages.publisher.publish(envelopes(1, subject=subject)) == [SENT]

    ((entry,),) = messages.calls
    for name in ("MessageGroupId", "MessageDeduplicationId"):
        assert not messages.publisher.keeps_order or re.fullmatch(r"[!-~]{1,128}", entry[name])


# What arrives


def test_the_body_is_the_cloudevent_itself__with_attributes_to_filter_by(messages: Messages) -> None:
    (event,) = envelopes(1, payload='{"name":"café 😀","count":1}', after="earlier")

    messages.publisher.publish([event])

    ((entry,),) = messages.calls
    assert event_in(entry) == event
    assert {name: each["StringValue"] for name, each in entry["MessageAttributes"].items()} == {
        "type": event.type,
        "source": event.source,
    }
    (message,) = messages.messages
    assert Envelope.from_json(message.body) == event


def test_a_size_counts_attributes_too__names_types_and_values(messages: Messages) -> None:
    (event,) = envelopes(1, type="thing.geändert")

    messages.publisher.publish([event])

    ((entry,),) = messages.calls
    attributes = sum(
        len(name) + len(each["DataType"]) + len(each["StringValue"].encode())
        for name, each in entry["MessageAttributes"].items()
    )
    assert messages.publisher.size(event) == len(event.to_json().encode()) + attributes


@pytest.mark.parametrize("url", [f"sns://{TOPIC}", YMQ])
def test_an_event_that_the_place_would_not_take_is_refused_before_it_is_written__and_no_smaller_one(url: str) -> None:
    runtime = Runtime(stage.settings(publisher_url=url))
    kind, _ = kind_of(url)
    (empty,) = envelopes(1)
    room = kind.limits.entry_bytes - kind.size(empty)
    (fits,), (larger,) = envelopes(1, payload=f'"{"x" * room}"'), envelopes(1, payload=f'"{"x" * room}x"')
    (wide,) = envelopes(1, payload=f'"{"ü" * (room // 2 + 1)}"')

    check_size(fits, OutboxRow.pending(fits), runtime)
    for beyond in (larger, wide):
        with pytest.raises(EventTooLarge, match="on its way, and its destination 262144"):
            check_size(beyond, OutboxRow.pending(beyond), runtime)


# URLs


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("sns://things", "name it by its ARN"),
        (f"sns://{QUEUE}", "the ARN is one of sqs"),
        (f"sqs://{TOPIC}", "the ARN is one of sns"),
        (f"sqs://{QUEUE.replace(REGION, 'nowhere')}", "region nowhere is none"),
        ("sqs://https://sqs.us-east-1.amazonaws.com/123456789012/things", "name it by its ARN"),
        ("ymq://host/path", "option secret is missing"),
        ("ymq://host?secret=s", "names no queue"),
        ("ymq:///path?secret=s", "names no host"),
        ("ymq://id:key@host/path?secret=s", "user or password"),
        ("ymq://host/path?secret=s&key=k", "option 'key'"),
    ],
)
def test_a_url_that_cannot_be_is_refused_at_start__with_what_is_wrong(url: str, what: str) -> None:
    with pytest.raises(PublisherUrlError, match=what):
        Runtime(stage.settings(publisher_url=url)).use(Destination)


@pytest.mark.parametrize(
    ("url", "needs"),
    [
        (f"sqs://{QUEUE}", (Need(("sqs:GetQueueUrl", "sqs:SendMessage"), QUEUE),)),
        (f"sns://{TOPIC}", (Need(("sns:Publish",), TOPIC),)),
        (YMQ, (Need(("secretsmanager:GetSecretValue",), f"secretsmanager:secret:{SECRET}-??????"),)),
    ],
)
def test_publishing_needs_its_own_place_and_no_other(url: str, needs: tuple[Need, ...]) -> None:
    assert Destination.needs(Runtime(stage.settings(publisher_url=url))) == needs


def test_a_place_in_another_region_is_asked_there() -> None:
    kind, place = kind_of(f"sqs://{QUEUE.replace(REGION, 'eu-west-1')}")
    clients.sqs("eu-west-1").create_queue(QueueName="things")

    assert kind.at(place, Runtime(stage.settings())).publish(envelopes(1)) == [SENT]


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        (YMQ, "https://message-queue.api.cloud.yandex.net:443"),
        ("ymq://127.0.0.1:9/b1g/things?secret=queue-keys", "http://127.0.0.1:9"),
        ("ymq://localhost.example:8080/b1g/things?secret=queue-keys", "https://localhost.example:8080"),
    ],
)
def test_ymq_is_spoken_to_without_encryption_on_this_machine_alone(
    url: str, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_keys()
    asked: list[str] = []

    def elsewhere(place: str, **_: object) -> None:
        asked.append(place)
        raise NoCredentialsError

    monkeypatch.setattr(clients, "sqs_elsewhere", elsewhere)
    publish(url)

    assert asked == [endpoint]


# A queue that parts are put into


def test_a_source_sends_by_the_same_way__and_finds_the_message_at_fault() -> None:
    make_queue("things")
    source = SqsSource(clients.sqs().get_queue_url(QueueName="things")["QueueUrl"])
    bodies = [f"message {number}" for number in range(12)]

    def holds_the_bad_one(call: clients.Call) -> bool:
        entries = call.parameters.get("Entries", ())
        return call.operation == "SendMessageBatch" and any(each["MessageBody"] == bodies[7] for each in entries)

    with failing(holds_the_bad_one, refused("InvalidMessageContents"), times=99):
        found = source.put([Message(body) for body in bodies])

    assert [failure.kind for failure in found] == [PERMANENT]
    assert len(source.receive(10, wait=0, hidden=30) + source.receive(10, wait=0, hidden=30)) == 11
