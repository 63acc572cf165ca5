"""The stacks: what outlives a deployment, and the service that stands on it."""

from __future__ import annotations

from collections.abc import Iterable

from aws_cdk import Environment, Stack
from constructs import Construct

from infra.api import OperationsApi, PublicApi
from infra.application import Application
from infra.consumers import Consumers
from infra.dashboard import Dashboard
from infra.feeds import StageDestination
from infra.files import ReportBucket
from infra.jobs import Jobs
from infra.lambda_function import LambdaFunction
from infra.layers import Layers
from infra.monitoring import Alarms, GaugeAlarms
from infra.outbox import DeployedRelay
from infra.outputs import describe
from infra.rules import check_rules
from infra.signing import SigningAlarm, SigningSecret
from infra.stage import StageConfig
from infra.surroundings import Surroundings, settings_of
from infra.tables import Tables
from mailroom.deployment import data_stack, service_stack
from mailroom.row import Row


class DataStack(Stack):
    """What holds data."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        stage: StageConfig,
        models: Iterable[type[Row]],
        env: Environment,
    ) -> None:
        super().__init__(scope, id_, env=env)
        self.tables = Tables(self, "Tables", stage=stage, models=models)
        self.signing_secret = SigningSecret(self, "Signing", stage=stage)
        self.reports = ReportBucket(self, "Reports", stage=stage)


class ServiceStack(Stack):
    """What works on it."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        stage: StageConfig,
        application: Application,
        data: DataStack,
        env: Environment,
    ) -> None:
        super().__init__(scope, id_, env=env)
        self.destination = StageDestination(self, stage=stage)
        surroundings = Surroundings(
            stage=stage,
            tables=data.tables,
            alarms=Alarms(self, "Alarms", stage=stage),
            settings=settings_of(
                stage,
                tables=data.tables,
                publisher_url=self.destination.url,
                signing_secret=data.signing_secret.arn,
                reports_bucket=data.reports.name,
            ),
            layers=Layers(self, "Layers", stage=stage),
        )
        self.api = PublicApi(self, "Api", surroundings=surroundings, access=application.api)
        self.operations = OperationsApi(self, "Operations", surroundings=surroundings)
        self.relay = DeployedRelay(self, "Relay", surroundings=surroundings)
        self.jobs = Jobs(self, "Jobs", jobs=application.jobs, surroundings=surroundings)
        self.consumers = Consumers(
            self,
            "Consumers",
            consumers=application.consumers,
            surroundings=surroundings,
            feed=self.destination.feed,
        )
        GaugeAlarms(self, "Gauges", alarms=surroundings.alarms)
        SigningAlarm(self, "Signing", alarms=surroundings.alarms)
        if stage.on_aws:
            Dashboard(self, "Dashboard", api=self.api, consumers=self.consumers.all, jobs=self.jobs.all)
        self._describe(surroundings)

    def _describe(self, surroundings: Surroundings) -> None:
        whole = {
            "api_id": self.api.api.api_id,
            "api_url": self.api.stage.url,
            "ops_id": self.operations.api.api_id,
            "ops_url": self.operations.stage.url,
            "settings": surroundings.environment(),
            "tables": surroundings.tables.names(),
            "buses": self.destination.buses,
        }
        single = (self.api.function, self.operations.function, self.relay.function)
        queues: dict[LambdaFunction, dict[str, str]] = {each: {} for each in single}
        queues |= {each.function: each.queues for each in self.consumers.all}
        queues |= {each.function: each.queues for each in self.jobs.all}
        describe(self, whole, queues=queues)


def add_stacks(scope: Construct, *, stage: StageConfig, env: Environment) -> tuple[DataStack, ServiceStack]:
    """Add the stacks of a stage, with its timings checked and, for AWS, every resource held against cdk-nag.

    Raises
    ------
    TimingError
        If the stage's durations contradict each other, or a job of the machinery may run into its next firing.
    """
    application = Application.discover()
    stage.timings.check({each.name: each.timeout for each in application.consumers if each.timeout is not None})
    application.check(stage.timings)
    data = DataStack(scope, data_stack(stage.name), stage=stage, models=application.models, env=env)
    service = ServiceStack(scope, service_stack(stage.name), stage=stage, application=application, data=data, env=env)
    if stage.on_aws:
        check_rules(scope)
    return data, service
