"""The APIs let in whom their stage lets in, not too often, and keep a line of each request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mailroom.timings import MAX_API_TIMEOUT
from tests.infra.assembly import Assembly, id_in
from tests.infra.conftest import Synth

BELOW = {"api": "ANY /api/{proxy+}", "operations": "ANY /ops/{proxy+}"}


@pytest.fixture(params=sorted(BELOW))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def route_to(assembly: Assembly, name: str) -> dict[str, Any]:
    function = f"${{{assembly.function(name)}.Arn}}"
    (integration,) = [
        each
        for each, resource in assembly.of_type("ApiGatewayV2::Integration").items()
        if resource["Properties"]["IntegrationUri"] == function
    ]
    (route,) = [
        each["Properties"]
        for each in assembly.of_type("ApiGatewayV2::Route").values()
        if each["Properties"]["Target"] == f"integrations/${{{integration}}}"
    ]
    return route


def stage_of(assembly: Assembly, name: str) -> dict[str, Any]:
    api = route_to(assembly, name)["ApiId"]
    (stage,) = [
        each["Properties"]
        for each in assembly.of_type("ApiGatewayV2::Stage").values()
        if each["Properties"]["ApiId"] == api
    ]
    return stage


@pytest.mark.parametrize(("name", "authorization"), [("local", "NONE"), ("dev", "AWS_IAM"), ("prod", "AWS_IAM")])
def test_callers_sign_their_requests__except_on_a_laptop(synth: Synth, name: str, authorization: str) -> None:
    assembly = synth(name)
    routes = assembly.of_type("ApiGatewayV2::Route").values()
    assert {each["Properties"]["AuthorizationType"] for each in routes} == {authorization}
    assert assembly.deployment["settings"]["MAILROOM_AUTH"] == ("none" if name == "local" else "iam")


def test_every_path_below_its_own_goes_to_the_one_function(prod: Assembly, name: str) -> None:
    assert route_to(prod, name)["RouteKey"] == BELOW[name]
    assert len(prod.of_type("ApiGatewayV2::Route")) == len(BELOW)


def test_operators_have_an_api_of_their_own__which_no_flood_of_requests_throttles(prod: Assembly) -> None:
    apis = {id_in(route_to(prod, name)["ApiId"]): name for name in BELOW}
    assert sorted(apis) == sorted(prod.of_type("ApiGatewayV2::Api"))
    told = (prod.deployment["api_id"], prod.deployment["ops_id"])
    assert [apis[id_in(each)] for each in told] == ["api", "operations"]


def test_the_function_answers_before_the_api_gives_up(prod: Assembly, name: str) -> None:
    assert prod.properties(prod.function(name))["Timeout"] <= MAX_API_TIMEOUT


def test_requests_are_throttled(prod: Assembly, name: str) -> None:
    settings = stage_of(prod, name)["DefaultRouteSettings"]
    assert 0 < settings["ThrottlingRateLimit"] <= settings["ThrottlingBurstLimit"]


def test_each_request_leaves_a_line_of_json(prod: Assembly, name: str) -> None:
    settings = stage_of(prod, name)["AccessLogSettings"]
    line = json.loads(settings["Format"])
    assert {"requestId", "method", "path", "status", "responseLatency", "caller"} <= set(line)
    assert id_in(settings["DestinationArn"]) in prod.of_type("Logs::LogGroup")
