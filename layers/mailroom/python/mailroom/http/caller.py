"""Callers: who sends a request, by the stage's way of knowing."""

from __future__ import annotations

from dataclasses import dataclass, field

from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEventV2

from mailroom.http.kinds import UNAUTHENTICATED
from mailroom.http.problem import Problem
from mailroom.settings import Auth


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request.

    Parameters
    ----------
    scope
        Tells this caller from every other, and stays the same from one session to the next.
    name
        Who it is for people who read what was done: the ARN, session included.
    """

    scope: tuple[str, ...]
    name: str = field(default="", compare=False)


ANYBODY = Caller(("none",), "anybody")
"""The one caller of a stage without authentication."""


def caller_of(event: APIGatewayProxyEventV2, auth: Auth) -> Caller:
    """Answer who sends a request.

    Raises
    ------
    Problem
        If the request carries no identity: nobody is taken for somebody.
    """
    match auth:
        case "none":
            return ANYBODY
        case "iam":
            return _iam_caller(event)


def _iam_caller(event: APIGatewayProxyEventV2) -> Caller:
    iam = event.request_context.authorizer.iam
    principal = iam.user_id or iam.caller_id
    if not iam.account_id or not principal:
        raise Problem(
            UNAUTHENTICATED,
            "sign the request with AWS credentials (Signature Version 4)",
            headers={"WWW-Authenticate": "AWS4-HMAC-SHA256"},
        )
    return Caller(("iam", iam.account_id, _without_session(principal)), iam.user_arn or principal)


def _without_session(principal: str) -> str:
    """Answer a role's unique id for one of its sessions, and any other principal as it is.

    A session is `AROA…:session`. A federated user is `account:name`: only the name tells one from another.
    https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_variables.html#principaltable
    """
    role, _, _ = principal.partition(":")
    return role if role.startswith("AROA") else principal
