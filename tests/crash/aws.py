"""AWS in process: made once, emptied between runs, on the run's own clock, and true where moto is not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import boto3
import moto  # noqa: F401 - before any client is made
import pytest
from botocore.awsrequest import AWSResponse
from botocore.client import BaseClient
from botocore.compat import HTTPHeaders
from moto import mock_aws
from moto.backends import get_backend

from mailroom import clients
from mailroom.clock import Clock
from mailroom.master_keys import SEED
from mailroom.row import Row, bind
from mailroom.sources.source import MAX_RECEIVES
from mailroom.testing import ManualClock
from mailroom.timings import Timings
from tests import stage
from tests.lagging_reads import LaggingReads
from tests.quick_moto import make_quick

from .partial_answers import AwsCall

Between = Callable[[AwsCall, str, dict[str, Any]], dict[str, Any]]

ACCOUNT, REGION = "123456789012", "us-east-1"
BUS, QUEUE = "bus", "counting"
ARRIVALS, FIFO_ARRIVALS = "arrivals", "arrivals.fifo"
"""Queues that destinations end in; a topic of the first one's name feeds it."""
SETTINGS = stage.settings(publisher_url=f"eventbridge://{BUS}")
APP_SETTINGS = stage.app_settings()


class TransactionTokens:
    """Answers a transaction that took effect before by its `ClientRequestToken`, as AWS does and moto doesn't.

    https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html
    """

    life = 600
    """Seconds after which AWS forgets a token."""

    def __init__(self, clock: Callable[[], Clock]) -> None:
        self._clock = clock
        self._took_effect: dict[str, tuple[Any, float]] = {}

    def attach(self, client: Any) -> None:
        """Stand between a client and AWS, behind whoever observes its calls."""
        client.meta.events.register("before-call.*.*", self._answer)
        client.meta.events.register_first("after-call.*.*", self._remember)

    def forget(self) -> None:
        """Forget every token."""
        self._took_effect.clear()

    def _answer(
        self, model: Any, params: dict[str, Any], context: dict[str, Any], **_: Any
    ) -> tuple[AWSResponse, dict[str, Any]] | None:
        if model.name != "TransactWriteItems":
            return None
        request = json.loads(params["body"])
        token = request.pop("ClientRequestToken", None)
        context["transaction"] = token, request
        known, since = self._took_effect.get(token, (None, 0))
        if known is None or self._clock().monotonic() - since > self.life:
            return None
        if known == request:
            return AWSResponse("", 200, HTTPHeaders(), None), {"ResponseMetadata": {}}
        error = {"Code": "IdempotentParameterMismatchException", "Message": "the token is another transaction's"}
        return AWSResponse("", 400, HTTPHeaders(), None), {"Error": error, "ResponseMetadata": {}}

    def _remember(self, http_response: Any, context: dict[str, Any], **_: Any) -> None:
        token, request = context.pop("transaction", (None, None))
        if token is not None and http_response.status_code < 300:
            self._took_effect.setdefault(token, (request, self._clock().monotonic()))


class Aws:
    """The account: our tables, a bus, and a consumer's queue with its dead-letter queue.

    Its own clients are none of ours: no fault strikes them and no observer sees them.
    """

    def __init__(self) -> None:
        self.clock, self._ticks = ManualClock(), count(1)
        self.tokens = TransactionTokens(lambda: self.clock)
        self.reads = LaggingReads(lambda: self.clock)
        self.between: Between = lambda call, _, parameters: call(parameters)
        """Stands between our clients and AWS: sends the call's parameters, or others, and answers."""
        self._sqs = boto3.client("sqs")
        self._secrets = boto3.client("secretsmanager")
        clients.forget()
        self.tokens.attach(clients.dynamodb())
        bind(SETTINGS, APP_SETTINGS)
        self._tables = SETTINGS.table_names() | APP_SETTINGS.table_names()
        for name in self._tables:
            Row.tables[name].create_table(billing_mode="PAY_PER_REQUEST", wait=False)
        clients.events().create_event_bus(Name=BUS)
        clients.s3().create_bucket(Bucket=APP_SETTINGS.reports_bucket)
        self.queues = self._make_queues()
        self._make_destinations()

    def stand_between(self, patch: pytest.MonkeyPatch) -> None:
        """Let `between` have every call of our clients before their observers have it."""
        make_call, own = BaseClient._make_api_call, (self._sqs, self._secrets)

        def made(client: Any, operation: str, parameters: dict[str, Any]) -> Any:
            def call(changed: dict[str, Any]) -> Any:
                return make_call(client, operation, changed)

            return call(parameters) if client in own else self.between(call, operation, parameters)

        patch.setattr(BaseClient, "_make_api_call", made)

    def empty(self, clock: ManualClock) -> None:
        """Take everything out of tables and queues, and go by this clock."""
        self.clock, self._ticks = clock, count(1)
        self.tokens.forget()
        self.reads.forget()
        for table in _backend("dynamodb").tables.values():
            table.items.clear()
        _backend("secretsmanager").secrets.clear()
        _backend("s3").buckets[APP_SETTINGS.reports_bucket].keys.clear()
        for queue in _backend("sqs").queues.values():
            queue._messages.clear()
            queue._pending_messages.clear()
            queue.deleted_messages.clear()
        self.move_after(MAX_RECEIVES)

    def milliseconds(self) -> float:
        """Answer the time by which queues go.

        It ticks with each look at it: for moto, visible is what was hidden until before now.
        """
        return self.clock.now().timestamp() * 1000 + next(self._ticks) / 1000

    def move_after(self, receives: int) -> None:
        """Let SQS move a message to the dead-letter queue after so many deliveries."""
        _backend("sqs").queues[QUEUE].redrive_policy["maxReceiveCount"] = receives

    # What there is to see is read from moto itself: by calls it would take most of the time.

    def items(self, table: str) -> list[dict[str, Any]]:
        """Answer what a table has, by its short name, as plain values."""
        items = _backend("dynamodb").tables[self._tables[table]].all_items()
        return [{name: value.value for name, value in item.attrs.items()} for item in items]

    def depth(self, queue: str) -> int:
        """Answer how many messages a queue has, those in flight too."""
        return len(_backend("sqs").queues[queue]._messages)

    def bodies(self, queue: str) -> list[str]:
        """Answer what is in a queue, in the order in which it came."""
        return [message.body for message in _backend("sqs").queues[queue]._messages]

    def object(self, key: str) -> bytes | None:
        """Answer what is in an object of the reports' bucket; None if there is none."""
        found = _backend("s3").buckets[APP_SETTINGS.reports_bucket].keys.get(key)
        return None if found is None else bytes(found.value)

    def send(self, body: str, *, to: str = QUEUE) -> None:
        """Put a message into the consumer's queue, or into another."""
        self._sqs.send_message(QueueUrl=self.queues[to], MessageBody=body)

    def receive(self) -> list[dict[str, Any]]:
        """Take messages out of the consumer's queue, in the form in which Lambda passes them on."""
        if not self.depth(QUEUE):
            return []
        answer = self._sqs.receive_message(
            QueueUrl=self.queues[QUEUE], MaxNumberOfMessages=10, MessageSystemAttributeNames=["All"]
        )
        return [
            {
                "messageId": message["MessageId"],
                "receiptHandle": message["ReceiptHandle"],
                "body": message["Body"],
                "attributes": message["Attributes"],
                "eventSource": "aws:sqs",
            }
            for message in answer.get("Messages", [])
        ]

    def make_secret(self) -> None:
        """Make the signing secret as CloudFormation does, with a key that is old: moto's own clock is years behind."""
        self._secrets.create_secret(Name=SETTINGS.signing_secret, SecretString=json.dumps({SEED: "s" * 64}))

    def secret_versions(self) -> dict[str, str]:
        """Answer what the signing secret holds and held, by version, the latest last."""
        versions = _backend("secretsmanager").secrets[SETTINGS.signing_secret].versions
        return {name: version["secret_string"] for name, version in versions.items()}

    def delete(self, receipt: str) -> None:
        """Delete a message that was handled."""
        self._sqs.delete_message(QueueUrl=self.queues[QUEUE], ReceiptHandle=receipt)

    def _make_queues(self) -> dict[str, str]:
        dead = self._sqs.create_queue(QueueName=f"{QUEUE}-dead")["QueueUrl"]
        arn = self._sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        attributes: Any = {
            "RedrivePolicy": json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": MAX_RECEIVES}),
            "VisibilityTimeout": str(Timings().visibility(Timings().consumer_timeout)),
        }
        queue = self._sqs.create_queue(QueueName=QUEUE, Attributes=attributes)["QueueUrl"]
        return {QUEUE: queue, f"{QUEUE}-dead": dead}

    def _make_destinations(self) -> None:
        self._sqs.create_queue(QueueName=ARRIVALS)
        self._sqs.create_queue(QueueName=FIFO_ARRIVALS, Attributes={"FifoQueue": "true"})
        topic = clients.sns(REGION).create_topic(Name=ARRIVALS)["TopicArn"]
        raw = {"RawMessageDelivery": "true"}
        clients.sns(REGION).subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn_of("sqs", ARRIVALS), Attributes=raw)


def arn_of(service: str, name: str) -> str:
    """Answer the ARN of a queue or a topic of the account."""
    return f"arn:aws:{service}:{REGION}:{ACCOUNT}:{name}"


@contextmanager
def aws_in_process() -> Iterator[Aws]:
    """Stand in for AWS inside the block; its queues go by the clock of whatever run is on."""
    with mock_aws(), pytest.MonkeyPatch.context() as patch:
        make_quick(patch)
        aws = Aws()
        patch.setattr("moto.sqs.models.unix_time", lambda *_: aws.clock.now().timestamp())
        patch.setattr("mailroom.dead_letters.queue.WAIT", 0)  # moto would wait by a clock that stands still
        patch.setattr("moto.s3.models.S3_UPLOAD_PART_MIN_SIZE", 1)  # so that a part takes no five megabytes
        patch.setattr("moto.sqs.models.unix_time_millis", lambda *_: aws.milliseconds())
        aws.stand_between(patch)
        with aws.reads.attached():
            yield aws
        aws.reads.check()
    clients.forget()


def _backend(service: str) -> Any:
    return get_backend(service)[ACCOUNT]["aws" if service == "s3" else REGION]  # type: ignore[call-overload]
