"""Queues, each with a place for what it cannot deliver."""

from __future__ import annotations

from dataclasses import replace

from aws_cdk import Duration
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.monitoring import MINUTE, Advice, Runbook, When
from infra.rules import do_otherwise
from infra.surroundings import Surroundings
from mailroom.sources.source import MAX_RECEIVES
from mailroom.timings import EXPIRY_NOTICE

_FIVE_MINUTES = Duration.minutes(5)


class DeadLetterQueue(Construct):
    """Keeps what could not be delivered, as long as SQS can, and sounds an alarm about the first of it.

    Parameters
    ----------
    advice
        What it means that something lies here.
    waited
        Seconds that a message may have waited in another queue: SQS counts them towards the retention, but not in the
        age that it reports.
        https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/setting-up-dead-letter-queue-retention.html
    """

    def __init__(
        self, scope: Construct, id_: str, *, surroundings: Surroundings, advice: Advice, waited: int = 0
    ) -> None:
        super().__init__(scope, id_)
        self._surroundings = surroundings
        self.queue = sqs.Queue(
            self,
            "Queue",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=surroundings.stage.on_aws,
            retention_period=Duration.seconds(surroundings.timings.dead_letter_retention),
            removal_policy=surroundings.stage.removal_policy,
        )
        do_otherwise(self.queue, "SQS3", because="it is the dead-letter queue itself, of a rule's target or a function")
        self._add_alarms(advice, waited)

    def _add_alarms(self, advice: Advice, waited: int) -> None:
        alarms, timings = self._surroundings.alarms, self._surroundings.timings
        alarms.add(
            self,
            "NotEmpty",
            metric=self.queue.metric_approximate_number_of_messages_visible(period=MINUTE, statistic="Maximum"),
            when=When(above=0),
            advice=advice,
        )
        alarms.add(
            self,
            "Expiring",
            metric=self.queue.metric_approximate_age_of_oldest_message(period=_FIVE_MINUTES, statistic="Maximum"),
            when=When(above=timings.dead_letter_retention - waited - EXPIRY_NOTICE),
            advice=replace(
                advice,
                means=f"{advice.means} In two days SQS may delete it for good.",
                runbook=Runbook.EXPIRING,
            ),
        )


class QueueWithDeadLetters(Construct):
    """A function's source: hides a message long enough for the function, and gives up on it in the end.

    Parameters
    ----------
    function_timeout
        Seconds that one invocation of the function may take.
    gave_up, too_old
        Of the alarms about dead letters, and about messages that are older than all attempts take.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        surroundings: Surroundings,
        function_timeout: int,
        gave_up: Advice,
        too_old: Advice,
    ) -> None:
        super().__init__(scope, id_)
        timings = surroundings.timings
        self.dead_letters = DeadLetterQueue(
            self, "Dead", surroundings=surroundings, advice=gave_up, waited=timings.source_retention
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
        surroundings.alarms.add(
            self,
            "Old",
            metric=self.queue.metric_approximate_age_of_oldest_message(period=_FIVE_MINUTES, statistic="Maximum"),
            when=When(above=timings.longest_stay(function_timeout)),
            advice=too_old,
        )
