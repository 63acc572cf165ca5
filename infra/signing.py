"""The secret that holds the master keys of webhook signatures."""

from __future__ import annotations

from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from infra.rules import do_otherwise
from infra.stage import StageConfig
from mailroom.master_keys import SEED

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
