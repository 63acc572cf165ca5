"""Where the master keys lie, and the port by which senders and owners get an endpoint's keys."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING, Self

from botocore.exceptions import BotoCoreError, ClientError

from mailroom import clients, telemetry
from mailroom.failures import Unavailable, failure_of
from mailroom.master_keys import MalformedSecret, MasterKeys
from mailroom.needs import Need
from mailroom.signing import EndpointKey
from mailroom.telemetry import LogEvent, Metric

if TYPE_CHECKING:
    from mailroom.runtime import Runtime

READ_SECRET, WRITE_SECRET = "secretsmanager:GetSecretValue", "secretsmanager:PutSecretValue"
_CURRENT = "AWSCURRENT"
"""The label of the version that is read. https://docs.aws.amazon.com/secretsmanager/latest/userguide/whats-in-a-secret.html"""


class SecretPutBack(Exception):
    """An older version of the secret was made the current one, and its successor is there already."""


@dataclass(frozen=True, slots=True)
class StoredKeys:
    """The master keys as they were read.

    Parameters
    ----------
    version
        The id of the secret's version.
    """

    version: str
    keys: MasterKeys

    @property
    def successor(self) -> str:
        """The id of the version that follows: the same for everyone who read this one, so that one of two wins."""
        return str(uuid.uuid5(_FOLLOWS, self.version))


_FOLLOWS = uuid.UUID("6f0e7b6a-7c1d-4b52-9a55-3d1f0c6a2e41")
"""Sets our version ids apart from others that are made of a version's id."""


class SigningSecret:
    """The stage's signing secret, to read and to replace."""

    def __init__(self, secret_id: str) -> None:
        self._id = secret_id

    @classmethod
    def needs(cls, runtime: Runtime) -> tuple[Need, ...]:
        """Answer the right to read the secret and to put a new value."""
        return (Need((READ_SECRET, WRITE_SECRET), runtime.settings.signing_secret),)

    @classmethod
    def connect(cls, runtime: Runtime) -> Self:
        """Use the secret that the settings name."""
        return cls(runtime.settings.signing_secret)

    def read(self) -> StoredKeys:
        """Answer what is current.

        Raises
        ------
        MalformedSecret
            If it holds something else than master keys.
        """
        answer = clients.secretsmanager().get_secret_value(SecretId=self._id, VersionStage=_CURRENT)
        version = answer["VersionId"]
        keys = MasterKeys.parse(answer.get("SecretString", ""), version=version, created_at=answer["CreatedDate"])
        return StoredKeys(version, keys)

    def replace(self, stored: StoredKeys, keys: MasterKeys) -> bool:
        """Put other keys in the place of those that were read, in one step; answer whether this call did it.

        A version has its id for good: of two that follow the same one the second is refused, or is the same.
        https://docs.aws.amazon.com/secretsmanager/latest/apireference/API_PutSecretValue.html

        Raises
        ------
        SecretPutBack
            If what was read is still current, though it has been followed once.
        """
        try:
            answer = clients.secretsmanager().put_secret_value(
                SecretId=self._id, ClientRequestToken=stored.successor, SecretString=keys.to_json()
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != "ResourceExistsException":
                raise
        else:
            if _CURRENT in answer["VersionStages"]:
                return True
        self._expect_another_than(stored)
        return False

    def _expect_another_than(self, stored: StoredKeys) -> None:
        if self.read().version == stored.version:
            raise SecretPutBack(
                f"version {stored.version} of the signing secret was made current again after {stored.successor} had "
                "followed it, so that it cannot be followed: put its value once more, as a new version"
            )


@dataclass(frozen=True, slots=True)
class _Copy:
    """Master keys in memory, with the `clock.monotonic()` when they were read and when to ask again."""

    keys: MasterKeys = field(repr=False)
    read_at: float
    ask_again_at: float


class SigningKeys:
    """The keys of endpoints, derived from the one copy of the master keys that a process keeps for a while."""

    def __init__(self, runtime: Runtime) -> None:
        self._secret = runtime.use(SigningSecret)
        self._clock = runtime.clock
        self._timings = runtime.timings
        self._copy: _Copy | None = None
        self._reading = Lock()

    @classmethod
    def needs(cls, runtime: Runtime) -> tuple[Need, ...]:
        """Answer the right to read the stage's secret."""
        return (Need((READ_SECRET,), runtime.settings.signing_secret),)

    @classmethod
    def connect(cls, runtime: Runtime) -> Self:
        """Derive from the secret that the settings name."""
        return cls(runtime)

    def keys_of(self, endpoint_id: str) -> list[EndpointKey]:
        """Answer the live keys of an endpoint, the current one first: all of them sign together.

        Raises
        ------
        Unavailable
            If the master keys cannot be read, and there is no copy of them that is younger than the overlap.
        """
        return [each.endpoint_key(endpoint_id) for each in self._master_keys().keys]

    def _master_keys(self) -> MasterKeys:
        with self._reading:
            now = self._clock.monotonic()
            if self._copy is None or now >= self._copy.ask_again_at:
                self._copy = self._read(now, self._copy)
            return self._copy.keys

    def _read(self, now: float, older: _Copy | None) -> _Copy:
        ask_again_at = now + self._timings.signing_key_cache
        try:
            return _Copy(self._secret.read().keys, read_at=now, ask_again_at=ask_again_at)
        except (BotoCoreError, ClientError, MalformedSecret) as error:
            failure = failure_of(error)
            telemetry.log(LogEvent.SIGNING_KEYS_UNREAD, failure=failure, signs_on=older is not None)
            telemetry.count(Metric.SIGNING_KEYS_UNREAD)
            # Until the overlap is over, whoever took the keys that came since still takes the older ones.
            if older is None or now - older.read_at >= self._timings.signing_overlap:
                raise Unavailable(f"the signing secret cannot be read: {failure.message}") from error
            return replace(older, ask_again_at=min(ask_again_at, older.read_at + self._timings.signing_overlap))
