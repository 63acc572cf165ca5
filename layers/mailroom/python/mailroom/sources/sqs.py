"""An SQS queue as a source of messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError, NoCredentialsError, NoRegionError, PartialCredentialsError

from mailroom import clients
from mailroom.failures import DENIED, NOT_THERE, Failure, failure_of
from mailroom.publishers.entries import outcomes_by_id
from mailroom.publishers.publisher import Outcome, within
from mailroom.publishers.sqs import SqsPublisher, send
from mailroom.sources.source import MAX_BATCH, TENANT, Message, Record, SourceRefused, stale

if TYPE_CHECKING:
    from types_boto3_sqs.type_defs import MessageTypeDef

_STALE = frozenset({"ReceiptHandleIsInvalid", "InvalidParameterValue", "AWS.SimpleQueueService.MessageNotInflight"})
"""What SQS says of a receipt whose message is gone, or is not in flight any more.
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibility.html"""

_Answer = Mapping[str, Any]


class SqsSource:
    """A standard queue.

    SQS answers success to a deletion by an earlier receipt, and deletes nothing: such a message comes again unseen.

    Parameters
    ----------
    queue_url
        Where it is.
    """

    def __init__(self, queue_url: str) -> None:
        self._url = queue_url

    def receive(self, limit: int, *, wait: int, hidden: int) -> list[Record]:
        """Answer up to so many messages: see `Source`."""
        try:
            answer = clients.polling_sqs().receive_message(
                QueueUrl=self._url,
                MaxNumberOfMessages=limit,
                WaitTimeSeconds=wait,
                VisibilityTimeout=hidden,
                MessageAttributeNames=["All"],
                MessageSystemAttributeNames=["All"],
            )
        except ClientError as error:
            if error.response["Error"]["Code"] in NOT_THERE | DENIED:
                raise SourceRefused(f"{self._url} cannot be read: {failure_of(error).message}") from error
            raise
        except (NoCredentialsError, NoRegionError, PartialCredentialsError) as error:
            raise SourceRefused(f"{self._url} cannot be read: {error}") from error
        return [_record(message) for message in answer.get("Messages", ())]

    def hide(self, seconds: Mapping[str, float]) -> dict[str, Failure]:
        """Hide messages for so long: see `Source`."""
        return _in_batches(
            [{"ReceiptHandle": receipt, "VisibilityTimeout": int(wanted)} for receipt, wanted in seconds.items()],
            lambda entries: clients.sqs().change_message_visibility_batch(QueueUrl=self._url, Entries=entries),
        )

    def delete(self, receipts: Sequence[str]) -> dict[str, Failure]:
        """Delete messages: see `Source`."""
        return _in_batches(
            [{"ReceiptHandle": receipt} for receipt in receipts],
            lambda entries: clients.sqs().delete_message_batch(QueueUrl=self._url, Entries=entries),
        )

    def put(self, messages: Sequence[Message]) -> list[Failure]:
        """Put messages in: see `Sink`."""
        outcomes: list[Outcome] = []
        for batch in within(SqsPublisher.limits, messages, lambda message: len(message.body.encode())):
            entries = [{"Id": str(number), **_entry(message)} for number, message in enumerate(batch)]
            outcomes += send(clients.sqs(), self._url, entries)
        return [outcome for outcome in outcomes if isinstance(outcome, Failure)]


def _entry(message: Message) -> dict[str, Any]:
    return {
        "MessageBody": message.body,
        **({TENANT: message.tenant} if message.tenant else {}),
        **({"DelaySeconds": message.delay} if message.delay else {}),
    }


def _in_batches(entries: Sequence[dict[str, Any]], call: Callable[[Any], _Answer]) -> dict[str, Failure]:
    """Call with so many entries as a call takes; answer the failures by receipt."""
    failed: dict[str, Failure] = {}
    for start in range(0, len(entries), MAX_BATCH):
        batch = [{"Id": str(number), **entry} for number, entry in enumerate(entries[start : start + MAX_BATCH])]
        try:
            outcomes = outcomes_by_id(batch, call(batch))
        except Exception as error:
            outcomes = [failure_of(error)] * len(batch)
        for entry, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Failure):
                failed[entry["ReceiptHandle"]] = _of_receipt(outcome)
    return failed


def _of_receipt(failure: Failure) -> Failure:
    return stale(f"{failure.type}: {failure.message}") if failure.type in _STALE else failure


def _record(message: MessageTypeDef) -> Record:
    attributes = message.get("MessageAttributes", {})
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message.get("Body", ""),
        "attributes": dict(message["Attributes"]),
        "messageAttributes": {name: _attribute(dict(value)) for name, value in attributes.items()},
        "md5OfBody": message.get("MD5OfBody", ""),
        "eventSource": "aws:sqs",
    }


def _attribute(value: Mapping[str, Any]) -> dict[str, Any]:
    """Write an attribute as Lambda does, whose names begin with a small letter."""
    return {name[0].lower() + name[1:]: part for name, part in value.items()}
