"""The one kind of Lambda function in the house."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from aws_cdk import Duration, IgnoreMode
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.grants import grant, grant_access
from infra.layers import NOT_DEPLOYED
from infra.layout import FUNCTIONS
from infra.monitoring import MINUTE, Advice, Runbook, When
from infra.rules import do_otherwise
from infra.surroundings import Surroundings
from mailroom.declarations import DECLARATION_VARIABLE, Declaration, DeclarationError
from mailroom.deployment import SERVICE
from mailroom.needs import Access, Need
from mailroom.telemetry import NAMESPACE

RUNTIME = lambda_.Runtime.PYTHON_3_13
ARCHITECTURE = lambda_.Architecture.ARM_64
MAX_TIMEOUT = 15 * 60
"""https://docs.aws.amazon.com/lambda/latest/dg/configuration-timeout.html"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What one function does.

    Parameters
    ----------
    name
        What people call it: in alarms and in the stack's output.
    folder
        The folder below `functions/` that holds its handler.
    access
        What it touches: becomes its grants.
    timeout
        Seconds that one invocation may take.
    memory
        MiB of memory.
    declaration
        What it runs, where the handler serves many.
    """

    name: str
    folder: str
    access: Access
    timeout: int
    memory: int = 512
    declaration: Declaration | None = None

    def __post_init__(self) -> None:
        if not 0 < self.timeout <= MAX_TIMEOUT:
            raise DeclarationError(f"{self.name}: a timeout is 1 to {MAX_TIMEOUT} s, not {self.timeout}")

    @classmethod
    def of(cls, declaration: Declaration, *, folder: str, timeout: int) -> Self:
        """Answer what a declaration asks for; the timeout is for one that names none."""
        return cls(
            name=declaration.name,
            folder=folder,
            access=declaration.access,
            timeout=declaration.timeout or timeout,
            memory=declaration.memory,
            declaration=declaration,
        )


class LambdaFunction(Construct):
    """A function with our settings and layers, a role and a log group of its own, and alarms."""

    def __init__(self, scope: Construct, id_: str, *, surroundings: Surroundings, workload: Workload) -> None:
        super().__init__(scope, id_)
        self.workload = workload
        self._surroundings = surroundings
        self._logs = self._log_group()
        self.role = self._own_role()
        self.function = self._build()
        grant_access(self.role, workload.access, surroundings=surroundings)
        self._add_alarms()

    @property
    def name(self) -> str:
        """What people call it."""
        return self.workload.name

    def allow(self, need: Need) -> None:
        """Allow what the function takes besides what its access declares."""
        grant(self.role, need, surroundings=self._surroundings)

    @property
    def tail(self) -> str:
        """The command that shows what the function wrote lately."""
        return f"aws logs tail {self._logs.log_group_name} --since 1h"

    def _log_group(self) -> logs.LogGroup:
        stage = self._surroundings.stage
        return logs.LogGroup(self, "Logs", retention=stage.log_retention, removal_policy=stage.removal_policy)

    def _own_role(self) -> iam.Role:
        # Without AWSLambdaBasicExecutionRole, which may write to every log group of the account.
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        self._logs.grant_write(role)
        return role

    def _environment(self) -> dict[str, str]:
        declaration = self.workload.declaration
        own = {DECLARATION_VARIABLE: declaration.target} if declaration else {}
        return {
            **self._surroundings.environment(),
            **own,
            "POWERTOOLS_SERVICE_NAME": SERVICE,
            "POWERTOOLS_METRICS_NAMESPACE": NAMESPACE,
            "POWERTOOLS_TRACE_DISABLED": str(not self._surroundings.stage.on_aws).lower(),
        }

    def _build(self) -> lambda_.Function:
        traced = self._surroundings.stage.on_aws
        function = lambda_.Function(
            self,
            "Function",
            code=self._code(),
            handler="handler.handler",
            runtime=RUNTIME,
            architecture=ARCHITECTURE,
            layers=self._surroundings.layers.of(self.workload.access, self._surroundings.runtime),
            environment=self._environment(),
            role=self.role,
            log_group=self._logs,
            timeout=Duration.seconds(self.workload.timeout),
            memory_size=self.workload.memory,
            tracing=lambda_.Tracing.ACTIVE if traced else lambda_.Tracing.DISABLED,
        )
        if traced:
            do_otherwise(self.role, "IAM5[Resource::*]", because="X-Ray's two actions know no resources")
        do_otherwise(function, "L1", because="the dependencies layer is built for this runtime")
        return function

    def _code(self) -> lambda_.Code:
        folder = FUNCTIONS / self.workload.folder
        return lambda_.Code.from_asset(str(folder), exclude=NOT_DEPLOYED, ignore_mode=IgnoreMode.GIT)

    def _add_alarms(self) -> None:
        self._surroundings.alarms.add(
            self,
            "Errors",
            metric=self.function.metric_errors(period=MINUTE, statistic="Sum"),
            when=When(above=0),
            advice=Advice(
                means=f"The function {self.name} raised an error, timed out or was killed.",
                first=self.tail,
                runbook=Runbook.FUNCTION_ERRORS,
            ),
        )
        self._surroundings.alarms.add(
            self,
            "Throttles",
            metric=self.function.metric_throttles(period=MINUTE, statistic="Sum"),
            when=When(above=0, periods=3),
            advice=Advice(
                means=f"Lambda refused to start the function {self.name}: the account's concurrency is used up.",
                first="aws lambda get-account-settings",
                runbook=Runbook.THROTTLES,
            ),
        )
