"""An SQS queue as a source of messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError, NoCredentialsError, NoRegionError, PartialCredentialsError

from mailroom import clients
from mailroom.failures import Failure, FailureKind, failure_of
from mailroom.sources.source import MAX_BATCH, MAX_MESSAGE_BYTES, Record, SourceRefused, stale

if TYPE_CHECKING:
    from types_boto3_sqs.type_defs import MessageTypeDef

_REFUSED = frozenset(
    {
        "AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist", "InvalidAddress",
        "AccessDenied", "AccessDeniedException", "AuthFailure", "InvalidClientTokenId", "InvalidSecurity",
        "KmsAccessDenied", "KMS.AccessDeniedException", "OptInRequired", "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)  # fmt: skip
"""https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/CommonErrors.html"""
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
            if error.response["Error"]["Code"] in _REFUSED:
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

    def put(self, bodies: Sequence[str]) -> list[Failure]:
        """Put messages in: see `Sink`."""
        failures: list[Failure] = []
        for batch in _within_limits(bodies):
            entries = [{"Id": str(number), "MessageBody": body} for number, body in enumerate(batch)]
            failures.extend(_put(self._url, entries))
        return failures


def _put(url: str, entries: Any) -> Iterator[Failure]:
    try:
        answer = clients.sqs().send_message_batch(QueueUrl=url, Entries=entries)
    except Exception as error:
        yield from [failure_of(error)] * len(entries)
        return
    done = {each["Id"] for each in answer.get("Successful", ())}
    reasons = {each["Id"]: _failure(each) for each in answer.get("Failed", ())}
    yield from (reasons.get(entry["Id"], _UNANSWERED) for entry in entries if entry["Id"] not in done)


def _within_limits(bodies: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for body in bodies:
        bytes_more = len(body.encode())
        if batch and (len(batch) == MAX_BATCH or size + bytes_more > MAX_MESSAGE_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(body)
        size += bytes_more
    if batch:
        yield batch


def _in_batches(entries: Sequence[dict[str, Any]], call: Callable[[Any], _Answer]) -> dict[str, Failure]:
    """Call with so many entries as a call takes; answer the failures by receipt."""
    failed: dict[str, Failure] = {}
    for batch in _batches(entries):
        try:
            answer = call([{"Id": str(number), **entry} for number, entry in enumerate(batch)])
        except Exception as error:
            failed.update((entry["ReceiptHandle"], failure_of(error)) for entry in batch)
        else:
            failed.update(_failures(batch, answer))
    return failed


def _batches(entries: Sequence[dict[str, Any]]) -> Iterator[Sequence[dict[str, Any]]]:
    for start in range(0, len(entries), MAX_BATCH):
        yield entries[start : start + MAX_BATCH]


def _failures(batch: Sequence[dict[str, Any]], answer: _Answer) -> Iterator[tuple[str, Failure]]:
    done = {each["Id"] for each in answer.get("Successful", ())}
    reasons = {each["Id"]: _failure(each) for each in answer.get("Failed", ())}
    for number, entry in enumerate(batch):
        if str(number) not in done:
            yield entry["ReceiptHandle"], reasons.get(str(number), _UNANSWERED)


_UNANSWERED = Failure(FailureKind.UNAVAILABLE, "Unanswered", "SQS did not answer for this message")


def _failure(refused: Mapping[str, Any]) -> Failure:
    code, message = refused["Code"], refused.get("Message", "")
    if code in _STALE:
        return stale(f"{code}: {message}")
    kind = FailureKind.TRANSIENT if refused.get("SenderFault") else FailureKind.UNAVAILABLE
    return Failure(kind, code, message)


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
