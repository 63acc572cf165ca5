"""Where messages come from: the port that a worker receives by, and a consumer's edge postpones by."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from mailroom.clock import at_epoch_milliseconds, epoch_milliseconds, timestamp
from mailroom.failures import Failure, FailureKind, Unavailable
from mailroom.timings import MAX_VISIBILITY

TENANT: Final = "MessageGroupId"
"""What SQS calls a message's tenant, where it takes it and where it answers it."""

Record = dict[str, Any]
"""A message in the shape in which Lambda passes SQS messages on.
https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html"""

MAX_BATCH = 10
"""How many messages a call takes at most.
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html"""
MAX_RECEIVES = 10
"""Deliveries after which SQS moves a message to the dead-letter queue: more than an ordinary failure needs."""


MAX_MESSAGE_BYTES = 1_048_576
"""UTF-8 bytes of a message at most, and of all those in one call.
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html"""
MAX_TENANT = 128
"""Characters of a message's tenant at most: ASCII letters, digits and punctuation.
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html"""


class SourceRefused(Unavailable):
    """The source is not there, or we may not read it: somebody has to mend that."""


class Source(Protocol):
    """A queue: a message that was received stays hidden for a while, and comes again unless it is deleted.

    The receipt of a message is that of its last delivery; an earlier one neither hides nor deletes it. What is
    answered for a receipt is why it did not work: `stale` if there is nothing more to be done with it.
    """

    def receive(self, limit: int, *, wait: int, hidden: int) -> list[Record]:
        """Answer up to so many messages, at most 10; wait at most so many seconds for the first.

        Parameters
        ----------
        hidden
            Seconds for which they stay hidden, from their delivery on.

        Raises
        ------
        SourceRefused
            If the source is not there, or we may not read it.
        Exception
            If it could not be read this time.
        """
        ...

    def hide(self, seconds: Mapping[str, float]) -> dict[str, Failure]:
        """Hide messages for whole seconds from now on, 0 to give them back; both maps are by receipt."""
        ...

    def delete(self, receipts: Sequence[str]) -> dict[str, Failure]:
        """Delete messages for good; answer those that were not."""
        ...


@dataclass(frozen=True, slots=True)
class Message:
    """A message to put into a queue.

    Parameters
    ----------
    tenant
        Whose it is. While one tenant holds much of what is in flight, SQS delivers the others' messages first; it is
        no order and no lock. `MessageGroupId`, on a standard queue, is its word:
        https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-fair-queues.html
    delay
        Seconds before anybody gets it, `MAX_DELAY` at most; a FIFO queue takes none.
    """

    body: str
    tenant: str | None = None
    delay: int = 0


class Sink(Protocol):
    """A queue to put messages into."""

    def put(self, messages: Sequence[Message]) -> list[Failure]:
        """Put messages in, none of them larger than the queue takes; answer the failures of those that are not in.

        What was put before a failure stays: whoever puts all of them again makes duplicates.
        """
        ...


class Queue(Source, Sink, Protocol):
    """A queue that is received from, and put into."""


def is_tenant(name: str) -> bool:
    """Answer whether a queue takes this for the name of a tenant."""
    return re.fullmatch(f"[!-~]{{1,{MAX_TENANT}}}", name) is not None


def stale(message: str) -> Failure:
    """Make the failure of a receipt whose message is gone, visible again or delivered anew."""
    return Failure(FailureKind.PERMANENT, "StaleReceipt", message)


def receives_of(record: Mapping[str, Any]) -> int:
    """Answer how often a message was delivered, this time included."""
    return int(record["attributes"]["ApproximateReceiveCount"])


def sent_at(record: Mapping[str, Any]) -> str | None:
    """Return when a message was sent first, as rows write it; None if its source does not tell."""
    sent = record["attributes"].get("SentTimestamp")
    return timestamp(at_epoch_milliseconds(int(sent))) if sent else None


def longest_hiding(record: Mapping[str, Any], now: datetime) -> float:
    """Answer the seconds for which a message may still be hidden: 12 h after its first delivery that is over."""
    first_received = int(record["attributes"]["ApproximateFirstReceiveTimestamp"]) / 1000
    return max(0, MAX_VISIBILITY - (epoch_milliseconds(now) / 1000 - first_received) - 1)
