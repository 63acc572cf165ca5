"""The secret that holds the master keys of webhook signatures."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from infra.monitoring import Advice, Alarms, Runbook, When, counter
from infra.rules import do_otherwise
from infra.stage import StageConfig
from mailroom.master_keys import SEED
from mailroom.telemetry import Metric

_EMPTY = "{}"  # JSON to which the generated text is added


class SigningSecret(Construct):
    """Secrets Manager's own random text to begin with, which is the first key; the job `hmac_rotator` does the rest."""

    def __init__(self, scope: Construct, id_: str, *, stage: StageConfig) -> None:
        super().__init__(scope, id_)
        secret = secretsmanager.CfnSecret(
            self,
            "Secret",
            description="Master keys of webhook signatures; the job hmac_rotator rotates them",
            # For the life of the secret: with any change here CloudFormation generates a new one over all keys.
            generate_secret_string=secretsmanager.CfnSecret.GenerateSecretStringProperty(
                secret_string_template=_EMPTY,
                generate_string_key=SEED,
                password_length=64,
                exclude_punctuation=True,
            ),
        )
        secret.apply_removal_policy(stage.removal_policy)
        do_otherwise(
            secret,
            "SMG4",
            because="Secrets Manager's rotation has no overlap in which two keys sign; a job of ours has",
        )
        self.arn = secret.attr_id
        """`Ref` would be the same on AWS, and the secret's name in the emulator."""


class SigningAlarm(Construct):
    """The alarm on processes that cannot read the secret.

    It counts hours, for a day: who has a copy signs on for a week, so that one hour's trouble need wake nobody, and
    where little is signed a process asks rarely.
    """

    def __init__(self, scope: Construct, id_: str, *, alarms: Alarms) -> None:
        super().__init__(scope, id_)
        alarms.add(
            self,
            "Unread",
            metric=counter(Metric.SIGNING_KEYS_UNREAD).with_(period=Duration.hours(1)),
            when=When(above=0, periods=24, datapoints=3),
            advice=Advice(
                means="Who signs webhooks cannot read the signing keys, and soon signs with old ones or not at all.",
                first=alarms.command("jobs"),
                runbook=Runbook.UNREAD_KEYS,
            ),
        )
