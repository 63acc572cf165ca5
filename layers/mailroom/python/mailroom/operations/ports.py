"""What the operators' function reaches for outside our tables, and the rights that this takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from mailroom.clock import timestamp
from mailroom.dead_letters.consumer import ConsumerLetters
from mailroom.dead_letters.desk import Desk
from mailroom.dead_letters.outbox import OutboxLetters
from mailroom.deployment import MANY_QUEUES, Deployment, Queues, names_in
from mailroom.needs import Need
from mailroom.status import NEEDS_OF_CONSUMERS, NEEDS_OF_SHARDS, consumer_status, job_status, shard_status

if TYPE_CHECKING:
    from mailroom.runtime import Runtime


class RedriveDesk(Desk):
    """The desk of dead letters, with the right to move messages between the stage's queues. It is a port."""

    @classmethod
    def needs(cls, runtime: Runtime) -> tuple[Need, ...]:
        """Return the rights to take messages out of dead-letter queues and to send them again, and to note it."""
        actions = ("sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:ReceiveMessage", "sqs:SendMessage")
        return (
            Need(actions, f"sqs:{names_in(runtime.settings.stage)}", why_many=MANY_QUEUES),
            OutboxLetters.NEEDS,
            *ConsumerLetters.NEEDS,
            *Queues.needs(runtime),
        )

    @classmethod
    def connect(cls, runtime: Runtime) -> Self:
        """Open it over the stage's deployment."""
        return cls(runtime, runtime.use(Deployment))


class StageStatus:
    """How the stage is doing. It is a port, whose needs are those of `mailroom.status`."""

    def __init__(self, runtime: Runtime, deployment: Deployment) -> None:
        self._runtime = runtime
        self._deployment = deployment

    @classmethod
    def needs(cls, runtime: Runtime) -> tuple[Need, ...]:
        """Return the rights to see how full shards and queues are, and whether functions are started."""
        named = names_in(runtime.settings.stage)
        why_named = "each consumer and each job has a function of its own, and CloudFormation names it"
        lists = ("events:ListRuleNamesByTarget", "lambda:ListEventSourceMappings")
        return (
            *NEEDS_OF_SHARDS,
            *NEEDS_OF_CONSUMERS,
            *Queues.needs(runtime),
            Need(("lambda:GetFunctionConfiguration",), f"lambda:function:{named}", why_many=why_named),
            Need(("events:DescribeRule",), f"events:rule/{named}", why_many=why_named),
            Need(lists, "*", why_many="these two actions know no resources"),
        )

    @classmethod
    def connect(cls, runtime: Runtime) -> Self:
        """Look at the stage's deployment."""
        return cls(runtime, runtime.use(Deployment))

    def to_dict(self) -> dict[str, Any]:
        """Read everything, now, and answer it as JSON values."""
        runtime, deployment = self._runtime, self._deployment
        return {
            "stage": deployment.stage,
            "at": timestamp(runtime.clock.now()),
            "shards": [each.to_dict() for each in shard_status(runtime)],
            "consumers": [each.to_dict() for each in consumer_status(runtime, deployment)],
            "jobs": [each.to_dict() for each in job_status(runtime, deployment)],
        }
