"""Queues, each with a place for what it cannot deliver."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.monitoring import MINUTE, Runbook
from infra.rules import do_otherwise
from infra.surroundings import Surroundings
from mailroom.consumer import MAX_RECEIVES


class DeadLetterQueue(Construct):
    """Keeps what could not be delivered, as long as SQS can, and sounds an alarm about the first of it.

    Parameters
    ----------
    means
        What it means that something lies here.
    first
        The command to type first; by default one that shows what lies here.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        surroundings: Surroundings,
        means: str,
        runbook: Runbook,
        first: str | None = None,
    ) -> None:
        super().__init__(scope, id_)
        self.queue = sqs.Queue(
            self,
            "Queue",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=surroundings.stage.on_aws,
            retention_period=Duration.seconds(surroundings.timings.dead_letter_retention),
            removal_policy=surroundings.stage.removal_policy,
        )
        do_otherwise(self.queue, "SQS3", because="it is the dead-letter queue itself, of a rule's target or a function")
        look = f"aws sqs receive-message --queue-url {self.queue.queue_url} --message-attribute-names All"
        surroundings.alarms.add(
            self,
            "NotEmpty",
            metric=self.queue.metric_approximate_number_of_messages_visible(period=MINUTE, statistic="Maximum"),
            above=0,
            means=means,
            first=first or look,
            runbook=runbook,
        )


class QueueWithDeadLetters(Construct):
    """A function's source: hides a message long enough for the function, and gives up on it in the end.

    Parameters
    ----------
    function_timeout
        Seconds that one invocation of the function may take.
    means, first
        Of the alarm about dead letters: see `DeadLetterQueue`.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        surroundings: Surroundings,
        function_timeout: int,
        means: str,
        first: str,
    ) -> None:
        super().__init__(scope, id_)
        timings = surroundings.timings
        self.dead_letters = DeadLetterQueue(
            self, "Dead", surroundings=surroundings, means=means, first=first, runbook=Runbook.DEAD_LETTERS
        )
        self.queue = sqs.Queue(
            self,
            "Queue",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=surroundings.stage.on_aws,
            visibility_timeout=Duration.seconds(timings.visibility(function_timeout)),
            retention_period=Duration.seconds(timings.source_retention),
            removal_policy=surroundings.stage.removal_policy,
            dead_letter_queue=sqs.DeadLetterQueue(queue=self.dead_letters.queue, max_receive_count=MAX_RECEIVES),
            redrive_allow_policy=sqs.RedriveAllowPolicy(redrive_permission=sqs.RedrivePermission.DENY_ALL),
        )
