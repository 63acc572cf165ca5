"""Calls that carry several entries to AWS, whose answer takes all but one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

AwsCall = Callable[[dict[str, Any]], dict[str, Any]]
"""Sends these parameters to AWS, and answers the parsed answer."""


@dataclass(frozen=True, slots=True)
class PartialRefusal:
    """The first entry of a call is refused by itself, with this code."""

    code: str
    sender_fault: bool = False
    final: bool = False
    """Whether the entry can never be taken: its event is dead then, with the code as the reason."""

    @property
    def value(self) -> str:
        """What a report says of it."""
        return f"takes all entries but one, which is refused with {self.code}"


_EVENT_BUS = (
    PartialRefusal("InternalFailure"),
    PartialRefusal("ThrottlingException"),
    PartialRefusal("LimitExceededException"),
    PartialRefusal("NotAuthorizedForSourceException"),
    PartialRefusal("NotAuthorizedForDetailTypeException"),
    PartialRefusal("InvalidArgument", final=True),
    PartialRefusal("MalformedDetail", final=True),
)
"""https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_PutEventsResultEntry.html"""
_QUEUE = (
    PartialRefusal("InternalError"),
    PartialRefusal("ServiceUnavailable"),
    PartialRefusal("RequestThrottled", sender_fault=True),
    PartialRefusal("AccessDenied", sender_fault=True),
    PartialRefusal("InvalidMessageContents", sender_fault=True, final=True),
    PartialRefusal("SomethingNew"),
    PartialRefusal("SomethingNew", sender_fault=True),
)
"""https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/CommonErrors.html, and an unknown one."""
_RECEIPTS = (
    PartialRefusal("InternalError"),
    PartialRefusal("ReceiptHandleIsInvalid", sender_fault=True),
)

REFUSALS: dict[str, tuple[PartialRefusal, ...]] = {
    "PutEvents": _EVENT_BUS,
    "SendMessageBatch": _QUEUE,
    "PublishBatch": _QUEUE,
    "DeleteMessageBatch": _RECEIPTS,
    "ChangeMessageVisibilityBatch": _RECEIPTS,
    "BatchWriteItem": (PartialRefusal("UnprocessedItems"),),
}
"""How AWS refuses an entry, by operation."""


def refused_entry(refusal: PartialRefusal, call: AwsCall, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Send all entries but the first, and answer that this one was refused."""
    match operation:
        case "BatchWriteItem":
            ((table, requests),) = parameters["RequestItems"].items()
            answer = call({**parameters, "RequestItems": {table: requests[1:]}}) if requests[1:] else {}
            return {**answer, "UnprocessedItems": {table: requests[:1]}}
        case "PutEvents":
            entries = parameters["Entries"]
            answer = call({**parameters, "Entries": entries[1:]}) if entries[1:] else {"Entries": []}
            refused = {"ErrorCode": refusal.code, "ErrorMessage": "injected"}
            return {**answer, "FailedEntryCount": 1, "Entries": [refused, *answer["Entries"]]}
        case _:
            name = "PublishBatchRequestEntries" if operation == "PublishBatch" else "Entries"
            first, *others = parameters[name]
            answer = call({**parameters, name: others}) if others else {}
            failed = {
                "Id": first["Id"],
                "Code": refusal.code,
                "Message": "injected",
                "SenderFault": refusal.sender_fault,
            }
            return {**answer, "Failed": [failed, *answer.get("Failed", ())]}
