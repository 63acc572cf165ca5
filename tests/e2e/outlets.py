"""Destinations to relay to for real: each is named before it is there, is made, and tells what has arrived.

Another destination is one more entry in `OUTLETS`; the brokers, which need a server, are fixtures of the test.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from local.account import ACCOUNT, REGION
from mailroom import clients
from mailroom.outbox.event import Envelope
from mailroom.publishers.ymq import KEY, KEY_ID
from tests.moto_server import moto_server

from .brokers import Broker

MOTOS_ACCOUNT = "123456789012"


class Outlet(Protocol):
    """A destination, and the other side of it."""

    url: str
    """What the relay delivers to."""

    def open(self) -> None:
        """Make it; until then the relay cannot reach it."""
        ...

    def read(self) -> list[Envelope]:
        """Answer what has arrived and was not read before, in order."""
        ...


class _ReadFromQueue:
    """Whatever ends in a queue."""

    fed_by: str | None = None
    """The service that puts messages in, if it is not the relay."""

    def __init__(self, url: str, queue: str, sqs: Callable[[], Any] = clients.sqs) -> None:
        self.url = url
        self._sqs = sqs
        self._queue = queue
        self.is_open = False

    def open(self) -> None:
        self.is_open = True
        attributes = {"FifoQueue": "true"} if self._queue.endswith(".fifo") else {}
        if self.fed_by is not None:
            attributes["Policy"] = json.dumps({"Version": "2012-10-17", "Statement": [self._let_in(self.fed_by)]})
        self._sqs().create_queue(QueueName=self._queue, Attributes=attributes)

    def read(self) -> list[Envelope]:
        url, arrived = self._sqs().get_queue_url(QueueName=self._queue)["QueueUrl"], []
        while messages := self._receive(url):
            arrived += [Envelope.from_json(each["Body"]) for each in messages]
            for each in messages:
                self._sqs().delete_message(QueueUrl=url, ReceiptHandle=each["ReceiptHandle"])
        return arrived

    def close(self) -> None:
        self._sqs().delete_queue(QueueUrl=self._sqs().get_queue_url(QueueName=self._queue)["QueueUrl"])

    def _let_in(self, service: str) -> dict[str, Any]:
        arn = _arn("sqs", self._queue)
        return {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sqs:SendMessage", "Resource": arn}

    def _receive(self, url: str) -> list[Any]:
        answer: list[Any] = self._sqs().receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
        return answer


class _FromBus(_ReadFromQueue):
    """A bus with a rule into a queue."""

    fed_by = "events.amazonaws.com"

    def __init__(self, name: str) -> None:
        super().__init__(f"eventbridge://{name}", name)
        self._name = name

    def open(self) -> None:
        super().open()
        events = clients.events()
        events.create_event_bus(Name=self._name)
        events.put_rule(Name=self._name, EventBusName=self._name, EventPattern='{"detail-type": ["thing.happened"]}')
        target: Any = {"Id": "queue", "Arn": _arn("sqs", self._name), "InputPath": "$.detail"}
        events.put_targets(Rule=self._name, EventBusName=self._name, Targets=[target])

    def close(self) -> None:
        events = clients.events()
        events.remove_targets(Rule=self._name, EventBusName=self._name, Ids=["queue"])
        events.delete_rule(Name=self._name, EventBusName=self._name)
        events.delete_event_bus(Name=self._name)
        super().close()


class _FromTopic(_ReadFromQueue):
    """A topic with a queue subscribed to it, as consumers are: by type, and without SNS's wrapping."""

    fed_by = "sns.amazonaws.com"

    def __init__(self, name: str) -> None:
        self._arn = _arn("sns", name)
        super().__init__(f"sns://{self._arn}", name)
        self._name = name

    def open(self) -> None:
        super().open()
        clients.sns(REGION).create_topic(Name=self._name)
        attributes = {"RawMessageDelivery": "true", "FilterPolicy": json.dumps({"type": ["thing.happened"]})}
        clients.sns(REGION).subscribe(
            TopicArn=self._arn, Protocol="sqs", Endpoint=_arn("sqs", self._name), Attributes=attributes
        )

    def close(self) -> None:
        clients.sns(REGION).delete_topic(TopicArn=self._arn)
        super().close()


class InBroker:
    """A broker as an outlet.

    Parameters
    ----------
    open_
        Makes the place that the relay publishes to, or lets it in.
    """

    def __init__(self, broker: Broker, open_: Callable[[], None]) -> None:
        self.url = broker.url
        self.open = open_
        self._broker = broker
        self._read = 0

    def read(self) -> list[Envelope]:
        arrived = self._broker.arrived()[self._read :]
        self._read += len(arrived)
        return arrived


@contextmanager
def _closing(outlet: _ReadFromQueue) -> Iterator[Outlet]:
    yield outlet
    if outlet.is_open:
        outlet.close()


@contextmanager
def _ymq(name: str) -> Iterator[Outlet]:
    """A queue of a service that is not the emulator; the keys to it are in the emulator's secret."""
    with moto_server() as server:
        keys = {KEY_ID: "key-id", KEY: "key"}
        clients.secretsmanager().create_secret(Name=name, SecretString=json.dumps(keys))

        def sqs() -> Any:
            return clients.sqs_elsewhere(f"http://{server}", region=REGION, key_id="key-id", key="key")

        url = f"ymq://{server}/{MOTOS_ACCOUNT}/{name}?secret={name}&region={REGION}"
        yield _ReadFromQueue(url, name, sqs)
        clients.secretsmanager().delete_secret(SecretId=name, ForceDeleteWithoutRecovery=True)


def _arn(service: str, name: str) -> str:
    return f"arn:aws:{service}:{REGION}:{ACCOUNT}:{name}"


def _queue(name: str) -> _ReadFromQueue:
    return _ReadFromQueue(f"sqs://{_arn('sqs', name)}", name)


OUTLETS: dict[str, Callable[[str], AbstractContextManager[Outlet]]] = {
    "eventbridge": lambda name: _closing(_FromBus(name)),
    "sns": lambda name: _closing(_FromTopic(name)),
    "sqs": lambda name: _closing(_queue(name)),
    "sqs-fifo": lambda name: _closing(_queue(f"{name}.fifo")),
    "ymq": _ymq,
}
"""Each makes a destination of a name that nobody else has."""
