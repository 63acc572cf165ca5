"""Alarms: each says what it means, what to type first and where the runbook goes on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from infra.stage import StageConfig
from mailroom.deployment import SERVICE
from mailroom.telemetry import NAMESPACE, Metric

RUNBOOKS = "docs/operations.md"
MINUTE = Duration.minutes(1)


class Runbook(StrEnum):
    """The headings of the runbooks, as anchors."""

    DEAD_LETTERS = "dead-letters"
    MANY_DEAD_LETTERS = "too-many-dead-letters"
    UNDELIVERED = "undelivered-events"
    EXPIRING = "expiring-dead-letters"
    OLD_MESSAGES = "old-messages"
    SLOW_RELAY = "slow-relay"
    FAILED_JOBS = "failed-jobs"
    SILENT_JOBS = "jobs-that-do-not-run"
    FUNCTION_ERRORS = "function-errors"
    THROTTLES = "throttled-functions"
    API_ERRORS = "api-errors"
    STUCK_SAGAS = "stuck-sagas"
    UNREAD_KEYS = "unread-signing-keys"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What an alarm tells whom it wakes.

    Parameters
    ----------
    means
        What has happened, in a sentence.
    first
        The command to type first.
    """

    means: str
    first: str
    runbook: Runbook

    def __str__(self) -> str:
        return f"{self.means} First: {self.first} Then: {RUNBOOKS}#{self.runbook}"


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """When an alarm sounds: a metric is above a value, or below one, in each of so many periods.

    Parameters
    ----------
    datapoints
        In how many of the periods, if not in each.
    silence
        Whether a period without a value counts too.
    """

    above: float | None = None
    below: float | None = None
    periods: int = 1
    datapoints: int | None = None
    silence: bool = False


class Alarms(Construct):
    """The topic that alarms are sent to, and the one way to make an alarm."""

    def __init__(self, scope: Construct, id_: str, *, stage: StageConfig) -> None:
        super().__init__(scope, id_)
        self._stage = stage
        self.topic = sns.Topic(self, "Topic", enforce_ssl=stage.on_aws)
        self._let_cloudwatch_publish()
        if stage.alarm_email:
            self.topic.add_subscription(subscriptions.EmailSubscription(stage.alarm_email))

    def add(
        self, scope: Construct, id_: str, *, metric: cloudwatch.Metric, when: When, advice: Advice
    ) -> cloudwatch.Alarm:
        """Add an alarm."""
        operator, missing = cloudwatch.ComparisonOperator, cloudwatch.TreatMissingData
        alarm = cloudwatch.Alarm(
            scope,
            id_,
            metric=metric,
            threshold=_threshold(when),
            comparison_operator=operator.LESS_THAN_THRESHOLD if when.above is None else operator.GREATER_THAN_THRESHOLD,
            evaluation_periods=when.periods,
            datapoints_to_alarm=when.datapoints,
            treat_missing_data=missing.BREACHING if when.silence else missing.NOT_BREACHING,
            alarm_description=str(advice),
        )
        alarm.add_alarm_action(actions.SnsAction(self.topic))
        return alarm

    def command(self, words: str) -> str:
        """Write a command of `mailroom` for this stage."""
        return f"mailroom {words} --stage {self._stage.name}"

    def _let_cloudwatch_publish(self) -> None:
        # A topic with a policy of its own has lost the default one, which lets the account's alarms in.
        self.topic.add_to_resource_policy(
            iam.PolicyStatement(
                actions=["sns:Publish"],
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                resources=[self.topic.topic_arn],
                conditions={"StringEquals": {"aws:SourceAccount": self.topic.env.account}},
            )
        )


class GaugeAlarms(Construct):
    """Alarms on the state of the whole stage, as the job `metrics_export` reports it."""

    def __init__(self, scope: Construct, id_: str, *, alarms: Alarms) -> None:
        super().__init__(scope, id_)
        alarms.add(
            self,
            "Dead",
            metric=gauge(Metric.DLQ_EVENTS_TOTAL),
            when=When(above=100, periods=5, datapoints=3, silence=True),
            advice=Advice(
                means="More than 100 letters are dead, or nobody counts them.",
                first=alarms.command("dead list"),
                runbook=Runbook.MANY_DEAD_LETTERS,
            ),
        )
        # Queues have alarms of their own about the first letter in them; the outbox's dead events are a table's rows.
        alarms.add(
            self,
            "DeadEvents",
            metric=gauge(Metric.OUTBOX_DEAD),
            when=When(above=0),
            advice=Advice(
                means="An event could not be published, and stays in the outbox until someone decides.",
                first=alarms.command("dead list --source outbox"),
                runbook=Runbook.DEAD_LETTERS,
            ),
        )
        alarms.add(
            self,
            "OldestPending",
            metric=gauge(Metric.OUTBOX_OLDEST_PENDING_SECONDS),
            when=When(above=Duration.minutes(5).to_seconds(), periods=3),
            advice=Advice(
                means="An event has waited in the outbox for more than five minutes.",
                first=alarms.command("status"),
                runbook=Runbook.SLOW_RELAY,
            ),
        )
        alarms.add(
            self,
            "StuckSagas",
            metric=gauge(Metric.SAGA_STUCK),
            when=When(above=0),
            advice=Advice(
                means="A saga can neither go on nor be undone.",
                first=alarms.command("saga list --status stuck"),
                runbook=Runbook.STUCK_SAGAS,
            ),
        )


def gauge(metric: Metric) -> cloudwatch.Metric:
    """Answer a metric that one job reports for the whole stage, without dimensions."""
    return cloudwatch.Metric(namespace=NAMESPACE, metric_name=metric.value, period=MINUTE, statistic="Maximum")


def counter(metric: Metric, statistic: str = "Sum") -> cloudwatch.Metric:
    """Answer a metric that every function adds to."""
    return cloudwatch.Metric(
        namespace=NAMESPACE,
        metric_name=metric.value,
        dimensions_map={"service": SERVICE},
        period=MINUTE,
        statistic=statistic,
    )


def _threshold(when: When) -> float:
    value = when.below if when.above is None else when.above
    if value is None:
        raise ValueError("an alarm is above or below something")
    return value
