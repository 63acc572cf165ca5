"""Callers: the same one from session to session, and nobody without an identity."""

from __future__ import annotations

from typing import Any

import pytest
from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEventV2

from mailroom.http.caller import ANYBODY, Caller, caller_of
from mailroom.http.kinds import UNAUTHENTICATED
from mailroom.http.problem import Problem

ACCOUNT = "000000000000"


def event(authorizer: Any) -> APIGatewayProxyEventV2:
    return APIGatewayProxyEventV2({"requestContext": {"authorizer": authorizer}})


def iam(**identity: str | None) -> APIGatewayProxyEventV2:
    return event({"iam": identity})


def test_a_role_is_the_same_caller__in_every_session() -> None:
    one = caller_of(iam(accountId=ACCOUNT, userId="AROAEXAMPLE:session-1"), "iam")
    other = caller_of(iam(accountId=ACCOUNT, userId="AROAEXAMPLE:session-2"), "iam")

    assert one == other == Caller(("iam", ACCOUNT, "AROAEXAMPLE"))


def test_a_user_is_known_by_the_unique_id__that_outlives_no_other_user() -> None:
    assert caller_of(iam(accountId=ACCOUNT, userId="AIDAEXAMPLE"), "iam") == Caller(("iam", ACCOUNT, "AIDAEXAMPLE"))


def test_federated_users_are_different_callers__of_one_account() -> None:
    one = caller_of(iam(accountId=ACCOUNT, userId=f"{ACCOUNT}:user-1"), "iam")

    assert one != caller_of(iam(accountId=ACCOUNT, userId=f"{ACCOUNT}:user-2"), "iam")


def test_the_caller_id_counts__if_there_is_no_user_id() -> None:
    assert caller_of(iam(accountId=ACCOUNT, callerId="AROAEXAMPLE:s"), "iam").scope[-1] == "AROAEXAMPLE"


@pytest.mark.parametrize(
    "anonymous",
    [
        event(None),
        event({}),
        event({"iam": None}),
        event({"jwt": {"claims": {"sub": "owner-1"}}}),
        iam(accountId=ACCOUNT),
        iam(userId="AROAEXAMPLE:s"),
        iam(accountId="", userId=""),
        iam(accountId=None, userId=None),
    ],
)
def test_a_request_is_refused__without_an_identity(anonymous: APIGatewayProxyEventV2) -> None:
    with pytest.raises(Problem) as refused:
        caller_of(anonymous, "iam")

    assert refused.value.kind is UNAUTHENTICATED
    assert refused.value.headers["WWW-Authenticate"] == "AWS4-HMAC-SHA256"


ISSUER = "https://issuer.example"


def jwt(**claims: Any) -> APIGatewayProxyEventV2:
    return event({"jwt": {"claims": claims, "scopes": None}})


def test_a_tokens_subject_is_the_caller__together_with_its_issuer() -> None:
    caller = caller_of(jwt(iss=ISSUER, sub="owner-1", exp="1", jti="a"), "jwt")

    assert (caller.scope, caller.name) == (("jwt", ISSUER, "owner-1"), "owner-1")
    assert caller == caller_of(jwt(iss=ISSUER, sub="owner-1", exp="2", jti="b"), "jwt")
    assert caller.scope != caller_of(jwt(iss="https://other.example", sub="owner-1"), "jwt").scope


@pytest.mark.parametrize(
    "anonymous",
    [
        event(None),
        event({}),
        event({"jwt": None}),
        event({"jwt": {}}),
        event({"jwt": {"claims": None}}),
        event({"iam": {"accountId": ACCOUNT, "userId": "AIDAEXAMPLE"}}),
        jwt(iss=ISSUER),
        jwt(sub="owner-1"),
        jwt(iss="", sub="owner-1"),
        jwt(iss=ISSUER, sub=""),
        jwt(iss=ISSUER, sub=None),
        jwt(iss=ISSUER, sub=["owner-1"]),
    ],
)
def test_a_request_is_refused__without_a_subject_and_an_issuer(anonymous: APIGatewayProxyEventV2) -> None:
    with pytest.raises(Problem) as refused:
        caller_of(anonymous, "jwt")

    assert refused.value.kind is UNAUTHENTICATED
    assert refused.value.headers["WWW-Authenticate"] == "Bearer"


def test_a_subject_acts_for_itself_alone__and_a_principal_of_aws_for_anybody() -> None:
    owner = caller_of(jwt(iss=ISSUER, sub="owner-1"), "jwt")
    service = caller_of(iam(accountId=ACCOUNT, userId="AIDAEXAMPLE"), "iam")

    assert [owner.may_act_for(each) for each in ("owner-1", "owner-2", "OWNER-1", "", "owner-1 ")] == [True] + [
        False
    ] * 4
    assert service.may_act_for("owner-1")
    assert ANYBODY.may_act_for("owner-1")


def test_everybody_is_one_caller__on_a_stage_without_authentication() -> None:
    assert caller_of(event(None), "none") is ANYBODY


def test_people_read_who_it_was__session_included() -> None:
    arn = f"arn:aws:sts::{ACCOUNT}:assumed-role/on-call/somebody"
    assert caller_of(iam(accountId=ACCOUNT, userId="AROAEXAMPLE:somebody", userArn=arn), "iam").name == arn
    assert caller_of(iam(accountId=ACCOUNT, userId="AIDAEXAMPLE"), "iam").name == "AIDAEXAMPLE"
