"""Events that could not be put into a consumer's queue: in the dead-letter queue of its rule or subscription."""

from __future__ import annotations

from mailroom.dead_letters.letter import DeadLetter
from mailroom.dead_letters.queue import DeadMessage
from mailroom.dead_letters.queued import QueuedLetters
from mailroom.dead_letters.records import ConsumerRecords, Record
from mailroom.deployment import UNDELIVERED, Deployment
from mailroom.failures import Failure, FailureKind, failure_of_code
from mailroom.idempotency import IdempotencyRow
from mailroom.runtime import Runtime

_UNTOLD = Failure(FailureKind.TRANSIENT, "Undelivered", "whoever could not put it into the queue did not say why")


class UndeliveredLetters(QueuedLetters):
    """Lists and moves what a rule or a subscription could not put into a consumer's queue.

    SQS's own redrive does not move these: it knows the dead-letter queues of queues alone.
    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_StartMessageMoveTask.html
    EventBridge leaves its own envelope there, with the reason in the message's attributes; a consumer is sent the event
    that is inside.
    https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-rule-dlq.html
    """

    def __init__(self, consumer: str, runtime: Runtime, deployment: Deployment) -> None:
        name, queues = f"{consumer}{UNDELIVERED}", deployment.queues
        super().__init__(name, runtime, ConsumerRecords(consumer, runtime), queue=queues[consumer], dead=queues[name])

    def page(self, cursor: str | None = None, *, limit: int = 100) -> tuple[list[DeadLetter], str | None]:
        """Return what lies in the queue, the oldest first, and the cursor of the next page: each takes a look."""
        return self._lying(cursor, limit)

    def get(self, event_id: str) -> DeadLetter | None:
        """Return None: no list tells of them."""
        return None

    def _is_listed(self, record: Record | None) -> bool:
        return False

    def _failure_of(self, message: DeadMessage, record: IdempotencyRow | None) -> Failure:
        code = message.attributes.get("ERROR_CODE")
        return failure_of_code(code, message.attributes.get("ERROR_MESSAGE", "")) if code else _UNTOLD

    def _attempts_at(self, message: DeadMessage, record: IdempotencyRow | None) -> int:
        repeated = message.attributes.get("RETRY_ATTEMPTS", "")
        return int(repeated) + 1 if repeated.isdecimal() else 1
