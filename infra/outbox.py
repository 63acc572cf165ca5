"""The relay, woken by the outbox table's stream."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as sources
from constructs import Construct

from infra.lambda_function import LambdaFunction, Workload
from infra.monitoring import MINUTE, Advice, Runbook, When
from infra.rules import do_otherwise
from infra.surroundings import Surroundings
from mailroom.controls import RELAY
from mailroom.needs import Access
from mailroom.outbox.event import SHARDS
from mailroom.outbox.relay import Relay
from mailroom.outbox.table import PENDING_PREFIX, OutboxRow

_NEW_MAIL = {
    "eventName": lambda_.FilterRule.is_equal("INSERT"),
    "dynamodb": {"Keys": {OutboxRow.partition.attr_name: {"S": lambda_.FilterRule.begins_with(PENDING_PREFIX)}}},
}


class DeployedRelay(Construct):
    """The function that delivers a shard as soon as it has mail. What it misses, the sweep finds."""

    def __init__(self, scope: Construct, id_: str, *, surroundings: Surroundings) -> None:
        super().__init__(scope, id_)
        self._surroundings = surroundings
        self.function = self._build_function()
        self._wake_up()
        self._add_alarm()

    def _build_function(self) -> LambdaFunction:
        access = Access(uses=(Relay,))
        timeout = self._surroundings.timings.wake_up_timeout
        workload = Workload(name=RELAY, folder="relay", access=access, timeout=timeout)
        return LambdaFunction(self, "Function", surroundings=self._surroundings, workload=workload)

    def _wake_up(self) -> None:
        # A wake-up is only a hint: a bounded number of attempts and none that is stale.
        timings = self._surroundings.timings
        source = sources.DynamoEventSource(
            self._surroundings.tables.of(OutboxRow),
            starting_position=lambda_.StartingPosition.LATEST,
            filters=[lambda_.FilterCriteria.filter(_NEW_MAIL)],
            batch_size=100,
            max_batching_window=Duration.seconds(timings.wake_up_window),
            parallelization_factor=SHARDS,
            retry_attempts=timings.wake_up_retries,
            max_record_age=Duration.seconds(timings.wake_up_age),
            bisect_batch_on_error=True,
        )
        self.function.function.add_event_source(source)
        do_otherwise(self.function.role, "IAM5[Resource::*]", because="ListStreams knows no resources")

    def _add_alarm(self) -> None:
        late = Duration.seconds(self._surroundings.timings.late_wake_up)
        self._surroundings.alarms.add(
            self,
            "Late",
            metric=self.function.function.metric("IteratorAge", period=MINUTE, statistic="Maximum"),
            when=When(above=late.to_milliseconds()),
            advice=Advice(
                means=f"The relay is woken more than {late.to_seconds():g} seconds late.",
                first=self._surroundings.alarms.command("status"),
                runbook=Runbook.SLOW_RELAY,
            ),
        )
