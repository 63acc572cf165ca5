"""Destinations that take batches of messages: SQS, SNS and Yandex Message Queue against moto, refusals canned."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from moto.backends import get_backend

from mailroom import clients
from mailroom.failures import DENIED, NOT_THERE, FailureKind, failure_of_code
from mailroom.outbox.event import Envelope
from mailroom.publishers.publisher import Publisher, kind_of
from mailroom.publishers.ymq import KEY, KEY_ID
from mailroom.runtime import Runtime
from tests import stage

ACCOUNT, REGION = "123456789012", "us-east-1"
SECRET = "queue-keys"
KEYS = {"key_id": "key-id", "key": "key"}
_RAW = {"RawMessageDelivery": "true"}
Entry = Mapping[str, Any]


class Messages:
    """A queue, or a topic with a queue subscribed to it; what arrives is read from moto itself.

    Parameters
    ----------
    url
        The destination's URL.
    queue
        The queue that everything arrives in.
    batch
        The operation that carries the entries, and its parameter that holds them.
    """

    def __init__(self, url: str, *, queue: str, batch: tuple[str, str]) -> None:
        kind, place = kind_of(url)
        self.url = url
        self.publisher: Publisher = kind.at(place, Runtime(stage.settings()))
        self.calls: list[list[Entry]] = []
        """The entries of each call."""
        self.refused_whole: Callable[[Sequence[str]], str | None] = lambda _: None
        """Answers the code that a call with these ids is refused with."""
        self.answer: Callable[[list[Entry]], dict[str, Any] | Exception] | None = None
        """Answers calls, if moto is not to."""
        self.batch = batch
        self._queue = queue
        self._codes: Mapping[str, str] = {}

    @property
    def deduplicates(self) -> bool:
        """Whether what arrives a second time within five minutes vanishes."""
        return self.publisher.keeps_order

    @property
    def messages(self) -> list[Any]:
        """The messages that are in the queue, in order."""
        messages: list[Any] = get_backend("sqs")[ACCOUNT][REGION].queues[self._queue]._messages
        return messages

    @property
    def delivered(self) -> Sequence[str]:
        return [json.loads(message.body)["id"] for message in self.messages]

    def refuse(self, codes: Mapping[str, str]) -> None:
        self._codes = codes

    # What stands between the client and moto

    def build(self, params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        entries: list[Entry] = params[self.batch[1]]
        self.calls.append(entries)
        context["entries"] = entries
        context["refused"] = [each for each in entries if _id_of(each) in self._codes]
        params[self.batch[1]] = [each for each in entries if _id_of(each) not in self._codes]

    def before(self, context: dict[str, Any], **_: Any) -> tuple[Any, dict[str, Any]] | None:
        entries = context["entries"]
        if code := self.refused_whole([_id_of(each) for each in entries]):
            return SimpleNamespace(status_code=400), {"Error": {"Code": code, "Message": "told so"}}
        if self.answer is not None:
            answer = self.answer(entries)
            if isinstance(answer, Exception):
                raise answer
            return SimpleNamespace(status_code=200), answer
        if len(context["refused"]) == len(entries):
            return SimpleNamespace(status_code=200), {"Successful": []}
        return None

    def after(self, parsed: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        for entry in context["refused"]:
            code = self._codes[_id_of(entry)]
            ours = failure_of_code(code, "").kind is not FailureKind.UNAVAILABLE or code in NOT_THERE | DENIED
            refusal = {"Id": entry["Id"], "Code": code, "Message": "told so", "SenderFault": ours}
            parsed.setdefault("Failed", []).append(refusal)


@contextmanager
def answering(destination: Messages, client: Any) -> Iterator[Messages]:
    """Stand between a client and moto inside the block."""
    service, operation = client.meta.service_model.service_name, destination.batch[0]
    handlers = {
        f"before-parameter-build.{service}.{operation}": destination.build,
        f"before-call.{service}.{operation}": destination.before,
        f"after-call.{service}.{operation}": destination.after,
    }
    for name, handler in handlers.items():
        client.meta.events.register(name, handler)
    try:
        yield destination
    finally:
        for name, handler in handlers.items():
            client.meta.events.unregister(name, handler)


def make_queue(name: str) -> str:
    """Make a queue, FIFO by its name; answer its ARN."""
    fifo: Any = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
    clients.sqs().create_queue(QueueName=name, Attributes=fifo)
    return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}"


def make_topic(name: str) -> str:
    """Make a topic, FIFO by its name, with a queue of the same name subscribed to it; answer its ARN."""
    fifo: Any = {"FifoTopic": "true"} if name.endswith(".fifo") else {}
    topic = clients.sns(REGION).create_topic(Name=name, Attributes=fifo)["TopicArn"]
    clients.sns(REGION).subscribe(TopicArn=topic, Protocol="sqs", Endpoint=make_queue(name), Attributes=_RAW)
    return topic


def keep_keys(key_id: str = KEYS["key_id"]) -> None:
    """Put keys into the secret."""
    text = json.dumps({KEY_ID: key_id, KEY: KEYS["key"]})
    client = clients.secretsmanager()
    if any(each["Name"] == SECRET for each in client.list_secrets()["SecretList"]):
        client.put_secret_value(SecretId=SECRET, SecretString=text)
    else:
        client.create_secret(Name=SECRET, SecretString=text)


def sqs_destination(name: str) -> Messages:
    return Messages(f"sqs://{make_queue(name)}", queue=name, batch=("SendMessageBatch", "Entries"))


def sns_destination(name: str) -> Messages:
    url = f"sns://{make_topic(name)}"
    return Messages(url, queue=name, batch=("PublishBatch", "PublishBatchRequestEntries"))


def ymq_destination(name: str, server: str) -> Messages:
    make_queue(name)
    keep_keys()
    url = f"ymq://{server}/{ACCOUNT}/{name}?secret={SECRET}&region={REGION}"
    return Messages(url, queue=name, batch=("SendMessageBatch", "Entries"))


def sent(entries: Sequence[Entry]) -> dict[str, Any]:
    """Make the answer of a call that went well for every entry."""
    return {"Successful": [{"Id": each["Id"], "MessageId": "m"} for each in entries]}


def event_in(entry: Entry) -> Envelope:
    """Answer the event in an entry."""
    return Envelope.from_json(entry.get("MessageBody") or entry["Message"])


def _id_of(entry: Entry) -> str:
    return event_in(entry).id
