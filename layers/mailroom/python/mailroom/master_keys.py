"""The master keys that endpoints' keys are derived from: what the stage's signing secret holds, and its next change."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import AwareDatetime, Base64Encoder, BaseModel, ConfigDict, EncodedBytes, Field, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from mailroom.clock import aware
from mailroom.failures import Unavailable
from mailroom.signing import EndpointKey
from mailroom.timings import Timings

SEED = "seed"
"""What a secret holds that nobody has rotated yet: a random text, which is its first key."""
KEY_BYTES = 32
"""The specification asks for 24 to 64: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md#signature-scheme"""


class MalformedSecret(Unavailable):
    """The signing secret is not what it should be; nothing is signed under it, and nothing is put in its place."""


class StrictBase64(Base64Encoder):
    """Base64 that skips nothing: with a character damaged, pydantic's own would make another key of it."""

    @classmethod
    def decode(cls, data: bytes) -> bytes:
        """Answer the bytes."""
        try:
            return base64.b64decode(data, validate=True)
        except ValueError:
            raise PydanticCustomError("base64_decode", "no base64") from None


class MasterKey(BaseModel):
    """One master key.

    Parameters
    ----------
    id
        The id of the secret's version in which it appeared first.
    key
        At least 32 random bytes, in base64 in the secret.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    id: Annotated[str, Field(min_length=1)]
    key: Annotated[bytes, EncodedBytes(encoder=StrictBase64), Field(min_length=KEY_BYTES, repr=False)]
    made_at: AwareDatetime

    @classmethod
    def of(cls, id_: str, key: bytes, made_at: datetime) -> MasterKey:
        """Make one of its bytes."""
        return cls.model_construct(id=id_, key=key, made_at=aware(made_at))

    def endpoint_key(self, endpoint_id: str) -> EndpointKey:
        """Answer what an endpoint's messages are signed with under this key."""
        return EndpointKey.derive(self.id, self.key, endpoint_id)


class MasterKeys(BaseModel):
    """The keys that are live: the current one and, while they overlap, the next. All of them sign."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    keys: Annotated[tuple[MasterKey, ...], Field(min_length=1, max_length=2)]

    @classmethod
    def parse(cls, text: str, *, version: str, created_at: datetime) -> MasterKeys:
        """Read the content of the secret.

        Parameters
        ----------
        text
            `{"keys": [{"id": …, "key": …, "made_at": …}, …]}`, or `{"seed": "…"}` as a new secret has it.
        version, created_at
            The id of the secret's version and when it was made: those of the key that a seed is.

        Raises
        ------
        MalformedSecret
            If it is anything else; the message tells the place, never the content.
        """
        try:
            content = json.loads(text)
        except ValueError:
            raise MalformedSecret("the signing secret is no JSON: put back its previous version") from None
        if isinstance(content, dict) and set(content) == {SEED}:
            return cls.grown(content[SEED], version=version, created_at=created_at)
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            places = "; ".join(map(_place, error.errors(include_input=False)))
            raise MalformedSecret(
                f"the signing secret is malformed ({places}): put back its previous version"
            ) from None

    @classmethod
    def grown(cls, seed: Any, *, version: str, created_at: datetime) -> MasterKeys:
        """Answer the one key that a seed is: the same for whoever reads it.

        Raises
        ------
        MalformedSecret
            If it is too short, or no ASCII text.
        """
        if not isinstance(seed, str) or not seed.isascii() or len(seed) < KEY_BYTES:
            raise MalformedSecret(f"the seed of the signing secret is no ASCII text of {KEY_BYTES} characters or more")
        return cls(keys=(MasterKey.of(version, seed.encode(), created_at),))

    def to_json(self) -> str:
        """Write what the secret holds."""
        return self.model_dump_json()


@dataclass(frozen=True, slots=True)
class Change:
    """What a rotation does next.

    Parameters
    ----------
    keys
        What the secret holds from then on.
    added, promoted, retired
        Ids of the keys that it happens to.
    """

    keys: MasterKeys
    added: str | None = None
    promoted: str | None = None
    retired: str | None = None


def next_change(keys: MasterKeys, *, now: datetime, timings: Timings, new_key: MasterKey) -> Change | None:
    """Answer what is due: one step at most, so that no two rotations run at once.

    A clock that was set back makes keys younger than they are, and nothing is due.
    """
    current, *rest = keys.keys
    if rest:
        (following,) = rest
        if now - following.made_at < timedelta(seconds=timings.signing_overlap):
            return None
        return Change(MasterKeys(keys=(following,)), promoted=following.id, retired=current.id)
    if now - current.made_at < timedelta(seconds=timings.signing_rotation):
        return None
    return Change(MasterKeys(keys=(current, new_key)), added=new_key.id)


def _place(problem: ErrorDetails) -> str:
    # The name of a field that should not be there may be anything, a secret too.
    known = problem["loc"][:-1] if problem["type"] == "extra_forbidden" else problem["loc"]
    return f"{'.'.join(map(str, known)) or 'the whole'}: {problem['type']}"
