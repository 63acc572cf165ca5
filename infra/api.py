"""The HTTP APIs."""

from __future__ import annotations

import json
from typing import cast

from aws_cdk import aws_apigatewayv2 as apigatewayv2
from aws_cdk import aws_logs as logs
from aws_cdk.aws_apigatewayv2_authorizers import HttpIamAuthorizer, HttpJwtAuthorizer
from aws_cdk.aws_apigatewayv2_integrations import HttpLambdaIntegration
from constructs import Construct

from infra.lambda_function import LambdaFunction, Workload
from infra.monitoring import MINUTE, Advice, Runbook, When
from infra.stage import StageConfig
from infra.surroundings import Surroundings
from mailroom import idempotency
from mailroom.needs import Access
from mailroom.operations.api import api as operations

API, OPERATIONS = "api", "operations"
_LOGGED = {
    "requestId": "requestId",
    "requestTime": "requestTime",
    "method": "httpMethod",
    "path": "path",
    "status": "status",
    "responseLength": "responseLength",
    "responseLatency": "responseLatency",
    "functionLatency": "integrationLatency",
    "functionError": "integrationErrorMessage",
    "error": "error.message",
    "caller": "identity.caller",
    "ip": "identity.sourceIp",
    "userAgent": "identity.userAgent",
}
"""https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-logging-variables.html"""


class FunctionApi(Construct):
    """An HTTP API in front of one function that knows its routes.

    Parameters
    ----------
    below
        The path below which everything goes to the function.
    authorizer
        What finds out who calls; None lets everybody in.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        surroundings: Surroundings,
        workload: Workload,
        below: str,
        authorizer: apigatewayv2.IHttpRouteAuthorizer | None,
    ) -> None:
        super().__init__(scope, id_)
        self._surroundings = surroundings
        self.function = self._build_function(workload)
        self.api = apigatewayv2.HttpApi(self, "Http", create_default_stage=False)
        self.stage = self._build_stage()
        self._add_routes(below, authorizer)
        self._add_alarm()

    def _build_function(self, workload: Workload) -> LambdaFunction:
        function = LambdaFunction(self, "Function", surroundings=self._surroundings, workload=workload)
        function.allow(idempotency.NEEDS)
        function.allow(idempotency.NEEDS_TO_FORGET)
        return function

    def _build_stage(self) -> apigatewayv2.HttpStage:
        config = self._surroundings.stage
        stage = apigatewayv2.HttpStage(
            self,
            "Stage",
            http_api=self.api,
            stage_name="$default",
            auto_deploy=True,
            throttle=apigatewayv2.ThrottleSettings(rate_limit=config.throttle_rate, burst_limit=config.throttle_burst),
        )
        cast(apigatewayv2.CfnStage, stage.node.default_child).access_log_settings = self._access_log()
        return stage

    def _access_log(self) -> apigatewayv2.CfnStage.AccessLogSettingsProperty:
        config = self._surroundings.stage
        group = logs.LogGroup(self, "AccessLog", retention=config.log_retention, removal_policy=config.removal_policy)
        line = json.dumps({name: f"$context.{variable}" for name, variable in _LOGGED.items()})
        return apigatewayv2.CfnStage.AccessLogSettingsProperty(destination_arn=group.log_group_arn, format=line)

    def _add_routes(self, below: str, authorizer: apigatewayv2.IHttpRouteAuthorizer | None) -> None:
        self.api.add_routes(
            path=f"{below}/{{proxy+}}",
            methods=[apigatewayv2.HttpMethod.ANY],
            integration=HttpLambdaIntegration("Function", self.function.function),
            authorizer=authorizer,
        )

    def _add_alarm(self) -> None:
        self._surroundings.alarms.add(
            self,
            "Errors",
            metric=self.api.metric_server_error(period=MINUTE, statistic="Sum"),
            when=When(above=0),
            advice=Advice(
                means=f"The HTTP API {self.function.name} answered a request with a 5xx.",
                first=self.function.tail,
                runbook=Runbook.API_ERRORS,
            ),
        )


class PublicApi(FunctionApi):
    """The API that callers use: who they are is what the stage asks."""

    def __init__(self, scope: Construct, id_: str, *, surroundings: Surroundings, access: Access) -> None:
        super().__init__(
            scope,
            id_,
            surroundings=surroundings,
            workload=Workload(name=API, folder="api", access=access, timeout=surroundings.timings.api_timeout),
            below="/api",
            authorizer=_authorizer(surroundings.stage),
        )


class OperationsApi(FunctionApi):
    """The API that operators use: an API of its own, which no flood of requests to the other one can throttle.

    On AWS they sign their requests, whatever the stage asks of the public; who may call it is then IAM's to say, by
    `execute-api:Invoke`.
    """

    def __init__(self, scope: Construct, id_: str, *, surroundings: Surroundings) -> None:
        super().__init__(
            scope,
            id_,
            surroundings=surroundings,
            workload=Workload(
                name=OPERATIONS,
                folder="operations",
                access=operations.access,
                timeout=surroundings.timings.operations_timeout,
            ),
            below="/ops",
            authorizer=HttpIamAuthorizer() if surroundings.stage.on_aws else None,
        )


def _authorizer(stage: StageConfig) -> apigatewayv2.IHttpRouteAuthorizer | None:
    if stage.tokens is not None:
        return HttpJwtAuthorizer("Tokens", stage.tokens.issuer, jwt_audience=list(stage.tokens.audience))
    return HttpIamAuthorizer() if stage.auth == "iam" else None
