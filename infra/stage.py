"""What differs between stages, in one frozen object; nothing else in infra asks which stage it is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from aws_cdk import RemovalPolicy
from aws_cdk.aws_logs import RetentionDays

from infra.layout import LAYERS
from mailroom.peers import NONE
from mailroom.publishers.place import PublisherUrlError
from mailroom.publishers.publisher import kind_of
from mailroom.settings import Auth
from mailroom.timings import Timings, timings_of

LOCAL, DEV = "local", "dev"


class StageError(ValueError):
    """A stage that cannot be; the message says why."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Whose JSON Web Tokens callers bring, and for whom they have to be.

    Parameters
    ----------
    issuer
        The tokens' `iss`: an https URL below which API Gateway finds `.well-known/openid-configuration`.
    audience
        One of these is in the tokens' `aud`, or is their `client_id`.

    Raises
    ------
    StageError
        If there is an issuer without an audience or the other way round, or the issuer is no https URL.
    """

    issuer: str
    audience: tuple[str, ...]

    def __post_init__(self) -> None:
        if not re.fullmatch(r"https://[^\s?#]+", self.issuer):
            raise StageError(f"jwt_issuer: {self.issuer!r} is no https URL without query and fragment")
        if not self.audience or not all(self.audience):
            raise StageError("jwt_audience: name at least one, and no empty one: else tokens for others would be taken")

    @classmethod
    def of(cls, issuer: str | None, audience: str | None) -> Self | None:
        """Read them from the CDK context, audiences with commas between them; None if neither is there."""
        if not issuer and not audience:
            return None
        return cls(issuer or "", tuple(each.strip() for each in (audience or "").split(",")) if audience else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class StageConfig:
    """One stage.

    Parameters
    ----------
    auth
        Who may call the API.
    tokens
        What their tokens must be, if that is how callers are known.
    on_aws
        Whether it is deployed to AWS; if not, to the emulator, which traces nothing and speaks plain HTTP.
    keeps_data
        Whether tables and queues survive their stack, and tables can be restored to any second.
    built_layers
        Where `make build` and `make build-aws` leave the layers.
    email_sender
        Where the application's e-mails come from.
    emails_per_second
        How many SES takes from the account.
    alarm_email
        Who is told of alarms; None leaves the topic without subscribers.
    concurrency
        The most invocations of one consumer side by side, whatever it declares.
    throttle_rate, throttle_burst
        API requests per second, steadily and at once.
    cleanup_units
        DynamoDB capacity units that the hourly clean-up may use: 5,000 cost $0.0006 as reads, $0.003 as deletes.
    publisher_url
        Where the relay delivers; None is a bus of the stage's own.
    outbound_networks
        What webhooks may reach besides the public internet, and by plain http: on a laptop the laptop itself.
    """

    name: str
    auth: Auth
    tokens: Tokens | None
    on_aws: bool
    keeps_data: bool
    built_layers: Path
    email_sender: str
    emails_per_second: float
    alarm_email: str | None
    log_retention: RetentionDays
    concurrency: int
    throttle_rate: int
    throttle_burst: int
    cleanup_units: int
    publisher_url: str | None
    outbound_networks: str

    @classmethod
    def of(
        cls,
        name: str,
        *,
        email_sender: str,
        emails_per_second: float = 14,
        alarm_email: str | None = None,
        tokens: Tokens | None = None,
        publisher_url: str | None = None,
        built_layers: Path = LAYERS,
    ) -> Self:
        """Answer the stage of this name: `local`, `dev`, and production for every other name.

        With `tokens` the public API takes those, without them it takes AWS credentials; `local` asks nobody.

        Raises
        ------
        StageError
            If the name cannot be part of a stack's name, or the publisher's URL names no destination.
        """
        if not re.fullmatch(r"[a-z][a-z0-9-]{0,19}", name):
            raise StageError(f"{name!r} is no stage: take up to 20 lower-case letters, digits and hyphens")
        if publisher_url is not None:
            _check_destination(publisher_url)
        local, production = name == LOCAL, name not in (LOCAL, DEV)
        tokens = None if local else tokens
        return cls(
            name=name,
            auth="none" if local else "jwt" if tokens else "iam",
            tokens=tokens,
            on_aws=not local,
            keeps_data=production,
            built_layers=built_layers,
            email_sender=email_sender,
            emails_per_second=emails_per_second,
            alarm_email=alarm_email,
            log_retention=RetentionDays.THREE_MONTHS if production else RetentionDays.ONE_WEEK,
            concurrency=2 if local else 1_000,
            throttle_rate=1_000 if production else 100,
            throttle_burst=2_000 if production else 200,
            cleanup_units=5_000 if production else 500,
            publisher_url=publisher_url,
            outbound_networks="127.0.0.0/8" if local else NONE,
        )

    @property
    def timings(self) -> Timings:
        """The durations of this stage."""
        return timings_of(self.name)

    @property
    def removal_policy(self) -> RemovalPolicy:
        """What becomes of tables, queues and logs when their stack goes."""
        return RemovalPolicy.RETAIN if self.keeps_data else RemovalPolicy.DESTROY


def _check_destination(url: str) -> None:
    try:
        kind_of(url)
    except PublisherUrlError as error:
        raise StageError(str(error)) from error
