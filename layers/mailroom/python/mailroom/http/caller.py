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
        Who it is for people who read what was done: the ARN, session included; a token's subject.
    owner_id
        The one owner that it may act for; None is any: AWS principals are services, trusted by their policies.
    """

    scope: tuple[str, ...]
    name: str = field(default="", compare=False)
    owner_id: str | None = None

    def may_act_for(self, owner_id: str) -> bool:
        """Answer whether an owner's things are the caller's to see and to change."""
        return self.owner_id is None or self.owner_id == owner_id


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
        case "jwt":
            return _jwt_caller(event)


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


def _jwt_caller(event: APIGatewayProxyEventV2) -> Caller:
    # API Gateway has checked signature, issuer, audience and times; a subject means something to its issuer alone.
    claims = event.request_context.authorizer.jwt_claim
    issuer, subject = (claims.get(name) for name in ("iss", "sub"))
    if not (isinstance(issuer, str) and issuer and isinstance(subject, str) and subject):
        raise Problem(
            UNAUTHENTICATED,
            "send Authorization: Bearer and a token that has an issuer and a subject",
            headers={"WWW-Authenticate": "Bearer"},
        )
    return Caller(("jwt", issuer, subject), subject, owner_id=subject)


def _without_session(principal: str) -> str:
    """Answer a role's unique id for one of its sessions, and any other principal as it is.

    A session is `AROA…:session`. A federated user is `account:name`: only the name tells one from another.
    https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_variables.html#principaltable
    """
    role, _, _ = principal.partition(":")
    return role if role.startswith("AROA") else principal
