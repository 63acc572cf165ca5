"""Alarms: each says what it means, what to type first and where the runbook goes on."""

from __future__ import annotations

from enum import StrEnum

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from infra.stage import StageConfig

RUNBOOKS = "docs/operations.md"
MINUTE = Duration.minutes(1)


class Runbook(StrEnum):
    """The headings of the runbooks, as anchors."""

    DEAD_LETTERS = "dead-letters"
    UNDELIVERED = "undelivered-events"
    FAILED_JOBS = "failed-jobs"
    FUNCTION_ERRORS = "function-errors"
    THROTTLES = "throttled-functions"
    SLOW_RELAY = "slow-relay"
    API_ERRORS = "api-errors"


class Alarms(Construct):
    """The topic that alarms are sent to, and the one way to make an alarm."""

    def __init__(self, scope: Construct, id_: str, *, stage: StageConfig) -> None:
        super().__init__(scope, id_)
        self.topic = sns.Topic(self, "Topic", enforce_ssl=stage.on_aws)
        self._let_cloudwatch_publish()
        if stage.alarm_email:
            self.topic.add_subscription(subscriptions.EmailSubscription(stage.alarm_email))

    def add(
        self,
        scope: Construct,
        id_: str,
        *,
        metric: cloudwatch.Metric,
        above: float,
        means: str,
        first: str,
        runbook: Runbook,
        minutes: int = 1,
    ) -> cloudwatch.Alarm:
        """Sound when a metric stays above a value for so many minutes.

        Parameters
        ----------
        means
            What has happened, in a sentence.
        first
            The command to type first.
        """
        alarm = cloudwatch.Alarm(
            scope,
            id_,
            metric=metric,
            threshold=above,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            evaluation_periods=minutes,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            alarm_description=f"{means} First: {first} Then: {RUNBOOKS}#{runbook}",
        )
        alarm.add_alarm_action(actions.SnsAction(self.topic))
        return alarm

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
