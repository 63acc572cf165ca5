"""An event as a message of SQS, SNS and what speaks their protocol: its attributes, its order and its size."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from mailroom.outbox.event import Envelope

_TEXT = "String"


def attributes_of(event: Envelope) -> dict[str, Any]:
    """Answer what filters go by without reading the body.

    https://docs.aws.amazon.com/sns/latest/dg/sns-message-attributes.html
    """
    return {name: {"DataType": _TEXT, "StringValue": value} for name, value in _filtered_by(event).items()}


def size_of_message(event: Envelope) -> int:
    """Answer a message's size as SQS and SNS count it: the body, and each attribute's name, type and value.

    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html
    """
    attributes = sum(len(name) + len(_TEXT) + len(value.encode()) for name, value in _filtered_by(event).items())
    return len(event.to_json().encode()) + attributes


def ordering_of(event: Envelope) -> dict[str, str]:
    """Answer what FIFO queues and topics go by: order within a subject, and once per event and redrive.

    A group is a hash, since a subject may be longer and have more characters than a group's name. An event without a
    subject waits for nobody. What an operator redrives comes anew: within five minutes of an attempt that did arrive
    it would vanish otherwise.
    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/using-messagededuplicationid-property.html
    """
    group = event.id if event.subject is None else sha256(event.subject.encode()).hexdigest()
    return {"MessageGroupId": group, "MessageDeduplicationId": f"{event.id}.{event.redriven}"}


def _filtered_by(event: Envelope) -> dict[str, str]:
    return {"type": event.type, "source": event.source}
