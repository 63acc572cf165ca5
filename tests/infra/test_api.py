"""The API lets in whom its stage lets in, not too often, and keeps a line of each request."""

from __future__ import annotations

import json

import pytest

from mailroom.timings import MAX_API_TIMEOUT
from tests.infra.assembly import Assembly
from tests.infra.conftest import Synth


@pytest.mark.parametrize(("name", "authorization"), [("local", "NONE"), ("dev", "AWS_IAM"), ("prod", "AWS_IAM")])
def test_callers_sign_their_requests__except_on_a_laptop(synth: Synth, name: str, authorization: str) -> None:
    assembly = synth(name)
    routes = assembly.of_type("ApiGatewayV2::Route").values()
    assert {each["Properties"]["AuthorizationType"] for each in routes} == {authorization}
    assert assembly.deployment["settings"]["MAILROOM_AUTH"] == ("none" if name == "local" else "iam")


def test_every_path_below_api_goes_to_the_one_function(prod: Assembly) -> None:
    routes = [each["Properties"]["RouteKey"] for each in prod.of_type("ApiGatewayV2::Route").values()]
    assert routes == ["ANY /api/{proxy+}"]


def test_the_function_answers_before_the_api_gives_up(prod: Assembly) -> None:
    assert prod.properties(prod.function("api"))["Timeout"] <= MAX_API_TIMEOUT


def test_requests_are_throttled(prod: Assembly) -> None:
    (stage,) = prod.of_type("ApiGatewayV2::Stage").values()
    settings = stage["Properties"]["DefaultRouteSettings"]
    assert 0 < settings["ThrottlingRateLimit"] <= settings["ThrottlingBurstLimit"]


def test_each_request_leaves_a_line_of_json(prod: Assembly) -> None:
    (stage,) = prod.of_type("ApiGatewayV2::Stage").values()
    settings = stage["Properties"]["AccessLogSettings"]
    line = json.loads(settings["Format"])
    assert {"requestId", "method", "path", "status", "responseLatency"} <= set(line)
    assert settings["DestinationArn"].strip("${}").split(".")[0] in prod.of_type("Logs::LogGroup")
