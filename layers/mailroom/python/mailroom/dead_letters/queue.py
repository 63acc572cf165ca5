"""A dead-letter queue, looked into message by message: SQS lets nobody read without receiving.

What is received is hidden from everyone else until the look is over. Receipts count up the messages' receive count,
which does nothing here: a dead-letter queue of ours has no redrive policy itself. But SQS takes a message that was
received three times out of the age that it reports of the queue:
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html
All queues of ours are standard ones: there is no order to disturb.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from mailroom import clients
from mailroom.clock import Clock, at_epoch_milliseconds, epoch_milliseconds
from mailroom.consumer import key_of
from mailroom.deployment import queue_depths
from mailroom.failures import NOT_THERE, Permanent
from mailroom.outbox.event import Envelope, bare
from mailroom.sources.source import MAX_BATCH, TENANT
from mailroom.sources.sqs import SqsSource

if TYPE_CHECKING:
    from types_boto3_sqs.type_defs import MessageTypeDef

LOOKED_AT = 1_000
"""Messages that one look for the sake of a list passes over."""
SEARCHED = 10_000
"""Messages that one look passes over in search of certain ones; SQS lets 120,000 be in flight.
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-queues.html"""
PATIENCE = 60
"""Seconds that a look goes on without success, not counting what is done with the messages meanwhile."""
IN_HAND = 120
"""Seconds for which a received message is hidden: longer than a look without success, so that nothing comes twice."""
_TO_WORK_IN = 10
"""Of these, the seconds within which a message can be sent and deleted."""
WAIT = 1
"""Seconds that a receive waits: only a long poll asks all of SQS's servers, so that none means none.
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-short-and-long-polling.html"""
_NOTHING_NEW = 3
"""Receives in a row with nothing but known messages, after which the look has come round."""


def never() -> bool:
    """Return that it is not time to stop."""
    return False


@dataclass(frozen=True, slots=True)
class DeadMessage:
    """A message as it lies in a dead-letter queue.

    Parameters
    ----------
    id
        What its effect happens once for: see `key_of`.
    envelope
        The event in it; None if none can be read.
    sent_at
        When it was sent first: by this SQS counts its days, in a dead-letter queue too.
        https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/setting-up-dead-letter-queue-retention.html
    attributes
        What whoever put it there said of it.
    """

    id: str
    message_id: str
    body: str = field(repr=False)
    receipt: str
    envelope: Envelope | None = field(repr=False)
    sent_at: datetime
    tenant: str | None
    attributes: dict[str, str]

    @classmethod
    def of(cls, message: MessageTypeDef) -> DeadMessage:
        """Read what SQS answered."""
        system: dict[str, str] = dict(message["Attributes"])  # type: ignore[arg-type]
        attributes = {name: each.get("StringValue", "") for name, each in message.get("MessageAttributes", {}).items()}
        try:
            envelope: Envelope | None = Envelope.from_json(message["Body"])
        except Permanent:
            envelope = None
        return cls(
            id=key_of(envelope, message["MessageId"]),
            message_id=message["MessageId"],
            body=message["Body"],
            receipt=message["ReceiptHandle"],
            envelope=envelope,
            sent_at=at_epoch_milliseconds(int(system["SentTimestamp"])),
            tenant=system.get(TENANT),
            attributes=attributes,
        )

    @property
    def text(self) -> str:
        """What its consumer is to be sent: the event alone, where one can be read."""
        return bare(self.body) if self.envelope else self.body

    @property
    def place(self) -> str:
        """Where it stands among others: by age, and each in a place of its own."""
        return f"{epoch_milliseconds(self.sent_at):015d}/{self.message_id}"


class DeadLetterQueue:
    """A standard queue in which messages lie that nobody receives but operators."""

    def __init__(self, url: str, clock: Clock) -> None:
        self.url = url
        self._clock = clock

    def depth(self) -> int:
        """Return how many messages it has, those in somebody's hands included; a queue that is gone has none."""
        try:
            return queue_depths([self.url])[self.url]
        except ClientError as error:
            if error.response["Error"]["Code"] in NOT_THERE:
                return 0
            raise

    @contextmanager
    def looking(self, *, up_to: int, stop: Callable[[], bool] = never) -> Iterator[Look]:
        """Look through it inside the block; at its end all that was not taken out is visible again, at once.

        After a process that dies in the middle it is visible again after `IN_HAND` seconds.

        Parameters
        ----------
        up_to
            Messages that the look may pass over.
        stop
            Asked before each receive: a deep queue may take longer than a request has.
        """
        look = Look(self.url, self._clock, up_to=up_to, stop=stop)
        try:
            yield look
        finally:
            look.give_back()

    def searching(self, *, stop: Callable[[], bool] = never) -> AbstractContextManager[Look]:
        """Look through it for certain messages: no further than `SEARCHED`."""
        return self.looking(up_to=SEARCHED, stop=stop)


class Look:
    """One pass through a queue: iterate over its messages, and `take` those that are to leave it.

    It ends when the queue has no more, when enough were passed over, after `PATIENCE` without success, or on `stop`.
    """

    def __init__(self, url: str, clock: Clock, *, up_to: int, stop: Callable[[], bool]) -> None:
        self._url, self._clock, self._up_to, self._stop = url, clock, up_to, stop
        self._held: dict[str, str] = {}
        self._seen: set[str] = set()
        self._since = clock.monotonic()
        self.taken = 0
        self.reached_end = False
        """Whether nothing was left that was not in somebody else's hands."""
        self.was_stopped = False

    @property
    def seen(self) -> int:
        """How many messages it came upon."""
        return len(self._seen)

    def __iter__(self) -> Iterator[DeadMessage]:
        nothing_new = 0
        while not self._is_enough():
            received_at, messages = self._clock.monotonic(), self._receive()
            fresh = [message for message in messages if message.message_id not in self._seen]
            nothing_new = 0 if fresh else nothing_new + 1
            if not messages or nothing_new == _NOTHING_NEW:
                self.reached_end = True
                return
            self._held.update({message.message_id: message.receipt for message in messages})
            yield from self._in_time(fresh, until=received_at + IN_HAND - _TO_WORK_IN)

    def take(self, message: DeadMessage) -> None:
        """Delete a message, for good."""
        clients.sqs().delete_message(QueueUrl=self._url, ReceiptHandle=message.receipt)
        del self._held[message.message_id]
        self.taken += 1
        self._since = self._clock.monotonic()

    def give_back(self) -> None:
        """Let everyone see again what was not taken."""
        held, self._held = self._held, {}
        # What cannot be given back now is visible again when its time is over.
        SqsSource(self._url).hide(dict.fromkeys(held.values(), 0))

    def _in_time(self, messages: list[DeadMessage], *, until: float) -> Iterator[DeadMessage]:
        """Return messages while they are surely hidden; what whoever asks is too slow for comes again."""
        for message in messages:
            asked_at = self._clock.monotonic()
            if asked_at < until:
                self._seen.add(message.message_id)
                yield message
                self._since += self._clock.monotonic() - asked_at

    def _is_enough(self) -> bool:
        self.was_stopped = self._stop()
        late = self._clock.monotonic() - self._since > PATIENCE
        return self.was_stopped or late or len(self._held) >= self._up_to

    def _receive(self) -> list[DeadMessage]:
        names: Any = [TENANT, "SentTimestamp"]
        answer = clients.sqs().receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=MAX_BATCH,
            VisibilityTimeout=IN_HAND,
            WaitTimeSeconds=WAIT,
            MessageAttributeNames=["All"],
            MessageSystemAttributeNames=names,
        )
        return [DeadMessage.of(message) for message in answer.get("Messages", ())]
