"""A stage whose callers bring tokens: API Gateway checks them, and operators go on signing their requests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra.stage import StageConfig, StageError, Tokens
from tests.infra.assembly import Assembly
from tests.infra.conftest import SynthOf

ISSUER = "https://issuer.example/pool"
TOKENS = Tokens(ISSUER, ("web", "mobile"))


def stage_with_tokens(name: str, built_layers: Path) -> StageConfig:
    return StageConfig.of(name, email_sender="sender@example.com", tokens=TOKENS, built_layers=built_layers)


@pytest.fixture
def assembly(built_layers: Path, synth_of: SynthOf) -> Assembly:
    """The stage `dev` with tokens."""
    return synth_of(stage_with_tokens("dev", built_layers))


def routes(assembly: Assembly) -> dict[str, dict[str, Any]]:
    found = assembly.of_type("ApiGatewayV2::Route").values()
    return {each["Properties"]["RouteKey"]: each["Properties"] for each in found}


def test_api_gateway_checks_issuer_and_audience__before_a_request_gets_in(assembly: Assembly) -> None:
    [(name, authorizer)] = assembly.of_type("ApiGatewayV2::Authorizer").items()
    assert authorizer["Properties"]["AuthorizerType"] == "JWT"
    assert authorizer["Properties"]["JwtConfiguration"] == {"Issuer": ISSUER, "Audience": ["web", "mobile"]}
    assert authorizer["Properties"]["IdentitySource"] == ["$request.header.Authorization"]
    public = routes(assembly)["ANY /api/{proxy+}"]
    assert (public["AuthorizationType"], name in str(public["AuthorizerId"])) == ("JWT", True)


def test_the_function_reads_the_tokens_claims__and_asks_for_nothing_else(assembly: Assembly) -> None:
    assert assembly.deployment["settings"]["MAILROOM_AUTH"] == "jwt"


def test_operators_sign_their_requests__whatever_the_public_brings(assembly: Assembly) -> None:
    assert routes(assembly)["ANY /ops/{proxy+}"]["AuthorizationType"] == "AWS_IAM"


def test_a_laptop_asks_nobody__whatever_the_context_says(built_layers: Path) -> None:
    local = stage_with_tokens("local", built_layers)
    assert (local.auth, local.tokens) == ("none", None)


@pytest.mark.parametrize(
    ("issuer", "audience", "tokens"),
    [
        (None, None, None),
        ("", "", None),
        (ISSUER, "web", Tokens(ISSUER, ("web",))),
        (ISSUER, "web, mobile", TOKENS),
    ],
)
def test_the_context_says_whose_tokens_are_taken(
    issuer: str | None, audience: str | None, tokens: Tokens | None
) -> None:
    assert Tokens.of(issuer, audience) == tokens


@pytest.mark.parametrize(
    ("issuer", "audience", "wrong"),
    [
        (ISSUER, None, "jwt_audience"),
        (ISSUER, "", "jwt_audience"),
        (ISSUER, "web,", "jwt_audience"),
        (ISSUER, " ", "jwt_audience"),
        (None, "web", "jwt_issuer"),
        ("issuer.example", "web", "jwt_issuer"),
        ("http://issuer.example", "web", "jwt_issuer"),
        ("https://", "web", "jwt_issuer"),
        ("https://issuer.example?a=b", "web", "jwt_issuer"),
    ],
)
def test_half_an_answer_fails_synth__by_the_name_of_the_other_half(
    issuer: str | None, audience: str | None, wrong: str
) -> None:
    with pytest.raises(StageError, match=wrong):
        Tokens.of(issuer, audience)


def test_the_same_stage_without_tokens_takes_signed_requests(stage: Callable[[str], StageConfig]) -> None:
    assert (stage("dev").auth, stage("dev").tokens) == ("iam", None)
