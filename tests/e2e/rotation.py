"""The stage's master keys and the deployed job that rotates them, as an operator sees and ages them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

import pytest

from local.stack import LocalStack
from mailroom.jobs.hmac_rotator import hmac_rotator
from mailroom.master_keys import MasterKey, MasterKeys
from mailroom.timings import timings_of

TIMINGS = timings_of("local")


class Secret:
    """The stage's signing secret."""

    def __init__(self, stack: LocalStack) -> None:
        self._aws = stack.client("secretsmanager")
        self._id = stack.settings["MAILROOM_SIGNING_SECRET"]

    @property
    def text(self) -> str:
        """What it holds."""
        return str(self._aws.get_secret_value(SecretId=self._id)["SecretString"])

    @text.setter
    def text(self, text: str) -> None:
        self._aws.put_secret_value(SecretId=self._id, SecretString=text)

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
        self.text = MasterKeys(keys=(*others, aged)).to_json()


@pytest.fixture
def secret(stack: LocalStack, eventually: Callable[..., Any]) -> Iterator[Secret]:
    """The secret; what it held is put back, and no function has another copy any more when the next test begins."""
    secret = Secret(stack)
    before = secret.text
    try:
        yield secret
    finally:
        secret.text = before
        forgotten_at = monotonic() + TIMINGS.signing_key_cache
        eventually(lambda: monotonic() > forgotten_at, what="every copy of other keys is too old")


@pytest.fixture
def rotate(client: Callable[[str], Any], stack: LocalStack) -> Callable[[], None]:
    """Runs the deployed job, which has to end well."""

    def run() -> None:
        answer = client("lambda").invoke(
            FunctionName=stack.functions[hmac_rotator.name], Payload=json.dumps({}).encode()
        )
        assert "FunctionError" not in answer, answer["Payload"].read()

    return run
