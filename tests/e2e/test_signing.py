"""The deployed rotation of the master keys: it reads and writes the stage's real secret, under the rights it has."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from local.stack import LocalStack
from mailroom.jobs.hmac_rotator import hmac_rotator
from mailroom.master_keys import MasterKey, MasterKeys
from mailroom.timings import timings_of

TIMINGS = timings_of("local")


class Secret:
    """The stage's signing secret, as an operator sees it."""

    def __init__(self, stack: LocalStack) -> None:
        self._aws = stack.client("secretsmanager")
        self._id = stack.settings["MAILROOM_SIGNING_SECRET"]

    def read(self) -> tuple[str, MasterKeys]:
        """Answer the version and the keys."""
        found = self._aws.get_secret_value(SecretId=self._id)
        version: str = found["VersionId"]
        return version, MasterKeys.parse(found["SecretString"], version=version, created_at=found["CreatedDate"])

    @property
    def keys(self) -> tuple[MasterKey, ...]:
        """The keys that are live."""
        return self.read()[1].keys

    def age(self, seconds: float) -> None:
        """Let the latest key be so old."""
        *others, latest = self.keys
        aged = MasterKey.of(latest.id, latest.key, datetime.now(UTC) - timedelta(seconds=seconds))
        self._aws.put_secret_value(SecretId=self._id, SecretString=MasterKeys(keys=(*others, aged)).to_json())


@pytest.fixture
def secret(stack: LocalStack) -> Secret:
    return Secret(stack)


@pytest.fixture
def rotate(client: Callable[[str], Any], stack: LocalStack) -> Callable[[], None]:
    """Runs the deployed job, which has to end well."""

    def run() -> None:
        answer = client("lambda").invoke(
            FunctionName=stack.functions[hmac_rotator.name], Payload=json.dumps({}).encode()
        )
        assert "FunctionError" not in answer, answer["Payload"].read()

    return run


def test_a_key_is_joined_and_then_replaced_by_the_next__and_a_second_run_changes_nothing(
    secret: Secret, rotate: Callable[[], None]
) -> None:
    (first,) = secret.keys
    rotate()
    assert [each.id for each in secret.keys] == [first.id], "a young key stays alone"

    secret.age(TIMINGS.signing_rotation)
    rotate()
    version, both = secret.read()
    current, following = both.keys
    assert (current.id, current.key, following.id) == (first.id, first.key, version)
    rotate()
    assert secret.read() == (version, both)

    secret.age(TIMINGS.signing_overlap)
    rotate()
    version, left = secret.read()
    assert [(each.id, each.key) for each in left.keys] == [(following.id, following.key)]
    rotate()
    assert secret.read() == (version, left)
