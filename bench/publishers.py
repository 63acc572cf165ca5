"""What a destination costs through its publisher, beside a bare loop of its client with the same acknowledgements.

The bare loop writes its events with `json` and sends the same messages: what it does not do is cut them into batches
by their size, know what each became, or find the one at fault. AWS is a set of prepared bytes below botocore's HTTP
layer.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

from canned import (
    SETTINGS,
    CannedAws,
    Response,
    apart,
    asked_for_less,
    headed,
    log_to_nowhere,
    make_console,
    met,
    response,
)
from lack import Lack, parts_left_out
from rich.console import Console
from rich.table import Table

from app.events import RepoCreated
from local import rabbitmq
from mailroom.clock import SystemClock, timestamp
from mailroom.outbox.event import Envelope, payload_of
from mailroom.publishers.broker import BrokerPublisher
from mailroom.publishers.publisher import SENT, Publisher, batches, kind_of
from mailroom.runtime import Runtime

LEAST = 0.7
"""The publisher's events per second, in parts of the bare loop's."""
BATCH = 10
REGION, ACCOUNT = "us-east-1", "111122223333"
WARM_UP = 200
RABBITMQ, KAFKA = "rabbitmq", "kafka"


@dataclass(frozen=True, slots=True)
class Contest:
    """One destination, two ways to it.

    Parameters
    ----------
    bare
        Sends messages with these texts and attributes, until each is acknowledged as the publisher has it.
    """

    publisher: Publisher
    bare: Callable[[Sequence[str]], None]


@dataclass(frozen=True, slots=True)
class Figures:
    """Seconds per event: by the clock, and of this process's CPU."""

    wall: float
    cpu: float


def make_events(count: int) -> list[Envelope]:
    """Make events as the example's `POST /repos` does, none of which is written yet."""
    event = RepoCreated(repo_id="01JDW3NDEJ0000000SR4RV0000", name="payments-reconciliation", owner_id="01JDVZK8W4T5F1")
    payload, now = payload_of(event), timestamp(SystemClock().now())
    return [
        Envelope(
            id=f"01JDW3NDEK00000000{number:08d}-03",
            type=RepoCreated.type,
            source=SETTINGS.source,
            subject=f"repos/{number}",
            time=now,
            payload=payload,
            traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        )
        for number in range(count)
    ]


# AWS


def batch_answer() -> Response:
    """Answer a batch of SQS in which all went well."""
    done = [
        {"Id": str(n), "MessageId": f"{n:08d}-1111-2222-3333-444455556666", "MD5OfMessageBody": "0" * 32}
        for n in range(BATCH)
    ]
    return response({"Successful": done, "Failed": []})


def topic_answer() -> Response:
    """Answer a batch of SNS in which all went well."""
    members = "".join(
        f"<member><MessageId>{n:08d}-1111-2222-3333-444455556666</MessageId><Id>{n}</Id></member>" for n in range(BATCH)
    )
    text = (
        '<PublishBatchResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><PublishBatchResult><Failed/>'
        f"<Successful>{members}</Successful></PublishBatchResult>"
        "<ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></PublishBatchResponse>"
    )
    return headed(text.encode())


ANSWERS = {
    "PutEvents": response({"FailedEntryCount": 0, "Entries": [{"EventId": f"{n:08d}-1111"} for n in range(BATCH)]}),
    "DescribeEventBus": response({"Name": "bus"}),
    "GetQueueUrl": response({"QueueUrl": f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/things"}),
    "SendMessageBatch": batch_answer(),
    "PublishBatch": topic_answer(),
}
ATTRIBUTES: dict[str, Any] = {
    "type": {"DataType": "String", "StringValue": RepoCreated.type},
    "source": {"DataType": "String", "StringValue": SETTINGS.source},
}


Send = Callable[[Sequence[str]], None]


@contextmanager
def to_aws(url: str, service: str, sender: Callable[[Any], Send]) -> Iterator[Contest]:
    """Make a contest about a destination of AWS's protocols; `sender` answers what sends one batch by a client."""
    aws = CannedAws(ANSWERS)
    aws.connect()
    client = aws.client(service) if service == "events" else aws.client(service, REGION)
    send = sender(client)

    def bare(texts: Sequence[str]) -> None:
        for start in range(0, len(texts), BATCH):
            send(texts[start : start + BATCH])

    kind, place = kind_of(url)
    yield Contest(kind.at(place, Runtime(SETTINGS)), bare)


def to_bus(client: Any) -> Send:
    """Put on a bus."""
    same = {"EventBusName": "bus", "Source": SETTINGS.source, "DetailType": RepoCreated.type}

    def send(texts: Sequence[str]) -> None:
        assert not client.put_events(Entries=[{**same, "Detail": text} for text in texts])["FailedEntryCount"]

    return send


def to_topic(client: Any) -> Send:
    """Publish to a topic."""

    def send(texts: Sequence[str]) -> None:
        entries = [{"Id": str(n), "Message": text, "MessageAttributes": ATTRIBUTES} for n, text in enumerate(texts)]
        assert not client.publish_batch(TopicArn=arn("sns"), PublishBatchRequestEntries=entries).get("Failed")

    return send


def to_queue(client: Any, *, fifo: bool = False) -> Send:
    """Send to a queue."""
    url = f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/things"

    def send(texts: Sequence[str]) -> None:
        entries: list[dict[str, Any]] = [
            {"Id": str(n), "MessageBody": text, "MessageAttributes": ATTRIBUTES} for n, text in enumerate(texts)
        ]
        for n, entry in enumerate(entries if fifo else ()):
            entry |= {"MessageGroupId": f"repos-{n}", "MessageDeduplicationId": f"01JDW3NDEK00000000{n:08d}-03"}
        assert not client.send_message_batch(QueueUrl=url, Entries=entries).get("Failed")

    return send


def arn(service: str, suffix: str = "") -> str:
    """Answer the ARN of a queue or a topic."""
    return f"arn:aws:{service}:{REGION}:{ACCOUNT}:things{suffix}"


@contextmanager
def to_broker(kind_of_broker: str) -> Iterator[Contest]:
    """Make a contest about a broker of its own."""
    import brokers  # noqa: PLC0415 - needs the brokers' clients, without which the other contests still run

    broker: Callable[[], AbstractContextManager[tuple[str, Send]]] = getattr(brokers, kind_of_broker)
    with broker() as (url, bare):
        kind, place = kind_of(url)
        publisher = kind.at(place, Runtime(SETTINGS))
        assert isinstance(publisher, BrokerPublisher)
        yield Contest(publisher, bare)
        publisher.close()


CONTESTS: dict[str, Callable[[], AbstractContextManager[Contest]]] = {
    "eventbridge": lambda: to_aws("eventbridge://bus", "events", to_bus),
    "sns": lambda: to_aws(f"sns://{arn('sns')}", "sns", to_topic),
    "sqs": lambda: to_aws(f"sqs://{arn('sqs')}", "sqs", to_queue),
    "sqs FIFO": lambda: to_aws(f"sqs://{arn('sqs', '.fifo')}", "sqs", partial(to_queue, fifo=True)),
    RABBITMQ: lambda: to_broker(RABBITMQ),
    KAFKA: lambda: to_broker(KAFKA),
}
"""Every destination; one that needs a server starts it in its context. A process of its own runs each."""


def lacking() -> list[Lack]:
    """Return what is missing for the contests about brokers; those about AWS need nothing."""
    lacks = [
        Lack(f"the Python package {package}", "pip install -r requirements-dev.txt", part)
        for package in ("pika", "confluent_kafka", "trustme")
        if find_spec(package) is None
        for part in (RABBITMQ, KAFKA)
    ]
    if not rabbitmq.SERVER.exists():
        lacks.append(Lack(f"a RabbitMQ server ({rabbitmq.SERVER})", rabbitmq.INSTALL, RABBITMQ))
    return lacks


# Measuring


def measure(name: str, count: int, repetitions: int) -> tuple[list[Figures], list[Figures]]:
    """Send events again and again, through the publisher and bare in turn; answer the figures of both."""
    ours, theirs = [], []
    with log_to_nowhere(), CONTESTS[name]() as contest:
        _publish(contest.publisher, make_events(WARM_UP))
        contest.bare([event.to_json() for event in make_events(WARM_UP)])
        for number in range(repetitions):
            fresh, plain = make_events(count), [json.loads(event.to_json()) for event in make_events(count)]

            def publish(events: Sequence[Envelope] = fresh) -> None:
                _publish(contest.publisher, events)

            def bare(events: Sequence[dict[str, Any]] = plain) -> None:
                contest.bare([json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in events])

            sides = [(publish, ours), (bare, theirs)]
            for act, figures in sides if number % 2 else reversed(sides):
                figures.append(_timed(act, count))
    return ours, theirs


def _publish(publisher: Publisher, events: Sequence[Envelope]) -> None:
    for batch in batches(events, publisher):
        outcomes = publisher.publish(batch)
        assert outcomes == [SENT] * len(batch), outcomes


def _timed(act: Callable[[], None], count: int) -> Figures:
    wall, cpu = time.perf_counter(), time.process_time()
    act()
    return Figures((time.perf_counter() - wall) / count, (time.process_time() - cpu) / count)


def report(console: Console, count: int, repetitions: int) -> None:
    table = Table()
    for heading in ("destination", "events/s", "bare events/s", "ratio", "CPU µs/event", "bare CPU µs/event", "target"):
        table.add_column(heading, justify="right" if table.columns else "left")
    left_out = parts_left_out(lacking())
    for name in CONTESTS:
        if name in left_out:
            table.add_row(name, "not run")
            continue
        ours, theirs = apart(measure, name, count, repetitions)
        ratio = statistics.median(bare.wall / mine.wall for mine, bare in zip(ours, theirs, strict=True))
        walls = [f"{1 / statistics.median(each.wall for each in side):,.0f}" for side in (ours, theirs)]
        cpus = [f"{statistics.median(each.cpu for each in side) * 1e6:.0f}" for side in (ours, theirs)]
        table.add_row(name, *walls, f"{ratio:.2f}", *cpus, met(ratio >= LEAST))
    console.print(f"[bold]{count:,} events, {repetitions} times each way in turn; medians")
    console.print(table)
    console.print(f"Target: at least {LEAST} of the bare loop's events per second.")
    for lack in lacking():
        told = f"Without {lack.what}, {lack.part} was not run. To install it:\n  {lack.install}"
        console.print(told, markup=False, soft_wrap=True)
    console.print()


def main() -> None:
    count, repetitions = (500, 3) if asked_for_less(__doc__, "fewer events") else (2_000, 9)
    report(make_console(), count, repetitions)


if __name__ == "__main__":
    main()
