"""The secret of webhook signatures: made once, kept, read by those who sign and written by its rotation alone."""

from __future__ import annotations

import pytest

from mailroom.jobs.hmac_rotator import hmac_rotator
from mailroom.master_keys import SEED
from tests.infra.assembly import Assembly
from tests.infra.conftest import Synth

KIND = "SecretsManager::Secret"


def secret_of(assembly: Assembly) -> str:
    (logical_id,) = assembly.of_type(KIND)
    return logical_id


@pytest.mark.parametrize(("name", "policy"), [("local", "Delete"), ("dev", "Delete"), ("prod", "Retain")])
def test_the_secret_survives_its_stack__where_data_does(synth: Synth, name: str, policy: str) -> None:
    (secret,) = synth(name).of_type(KIND).values()
    assert (secret["DeletionPolicy"], secret["UpdateReplacePolicy"]) == (policy, policy)


@pytest.mark.parametrize("name", ["local", "dev", "prod"])
def test_what_a_secret_is_generated_from_never_changes__or_every_deployed_one_would_be_generated_anew(
    synth: Synth, name: str
) -> None:
    assembly = synth(name)
    assert assembly.properties(secret_of(assembly))["GenerateSecretString"] == {
        "ExcludePunctuation": True,
        "GenerateStringKey": SEED,
        "PasswordLength": 64,
        "SecretStringTemplate": "{}",
    }


def test_functions_are_given_the_secrets_name_and_never_its_value(prod: Assembly) -> None:
    arn = f"${{{secret_of(prod)}.Id}}"
    for function in prod.of_type("Lambda::Function").values():
        variables = function["Properties"]["Environment"]["Variables"]
        assert variables["MAILROOM_SIGNING_SECRET"] == arn
        assert "resolve:secretsmanager" not in str(variables)


def test_its_rotation_alone_writes_the_secret(prod: Assembly) -> None:
    arn = f"${{{secret_of(prod)}.Id}}"
    granted = {name: prod.grants(prod.function(name)).get(arn, set()) for name in prod.deployment["functions"]}
    assert granted.pop(hmac_rotator.name) == {"secretsmanager:GetSecretValue", "secretsmanager:PutSecretValue"}
    assert all(each <= {"secretsmanager:GetSecretValue"} for each in granted.values())


def test_nobody_may_touch_other_secrets(prod: Assembly) -> None:
    arn = f"${{{secret_of(prod)}.Id}}"
    for name in prod.deployment["functions"]:
        for resource, actions in prod.grants(prod.function(name)).items():
            assert resource == arn or not any(each.startswith("secretsmanager:") for each in actions)
