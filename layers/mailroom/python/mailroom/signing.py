"""Signatures of webhooks, by Standard Webhooks 1.0.0: made by us, checked by whoever receives.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hmac import compare_digest
from typing import Self

from mailroom.clock import epoch_milliseconds

SECRET_PREFIX = "whsec_"  # noqa: S105 - what a secret begins with
VERSION = "v1"
"""HMAC-SHA256. Others, `v1a` for example, are skipped."""
MIN_KEY = 24
"""The fewest bytes of a secret, by the specification; none at all is what an unset variable would make of it."""
TOLERANCE = 300
"""Seconds that a timestamp may differ from the receiver's clock: what the specification's own libraries take."""

_MESSAGE_ID = re.compile(r"[!-\-/-~]{1,256}", re.ASCII)
"""Printable and without a dot: dots part what is signed, and with one more a message could be read as another."""
_TIMESTAMP = re.compile(r"[0-9]{1,12}", re.ASCII)


class SignatureRefused(Exception):
    """The message is not proven to come from a holder of the secret just now."""


@dataclass(frozen=True, slots=True)
class EndpointKey:
    """What one endpoint's messages are signed with; derived anew whenever it is needed, never stored.

    Parameters
    ----------
    id
        The id of the master key that it comes from.
    secret
        `whsec_` and the key's 32 bytes in base64, as its owner gets it.
    """

    id: str
    secret: str = field(repr=False)

    @classmethod
    def derive(cls, master_id: str, master: bytes, endpoint_id: str) -> Self:
        """Make the key of an endpoint: HMAC-SHA256 of its id under the master key."""
        key = hmac.digest(master, endpoint_id.encode(), hashlib.sha256)
        return cls(master_id, SECRET_PREFIX + base64.b64encode(key).decode())


def signature_header(keys: Sequence[EndpointKey], *, message_id: str, timestamp: int, body: bytes) -> str:
    """Answer the `webhook-signature` header: a signature under each key, so that a receiver may hold any of them.

    Parameters
    ----------
    message_id
        What goes out as `webhook-id`: the same at every attempt.
    timestamp
        Seconds since 1970 of this attempt, what goes out as `webhook-timestamp`.
    body
        The bytes that are sent.

    Raises
    ------
    ValueError
        If there is no key, or the message id is not up to 256 printable ASCII characters without a dot.
    """
    if not keys:
        raise ValueError("there is no key to sign with")
    if not _MESSAGE_ID.fullmatch(message_id):
        raise ValueError(
            f"{message_id!r} cannot be the id of a message: take up to 256 printable ASCII characters and no dot"
        )
    signed = _signed_content(message_id, str(timestamp), body)
    return " ".join(_sign(_key_of(each.secret), signed).decode() for each in keys)


def verify(
    secrets: Sequence[str],
    *,
    message_id: str,
    timestamp: str,
    signatures: str,
    body: bytes,
    now: datetime,
    tolerance: float = TOLERANCE,
) -> None:
    """Take a message if a signature of it fits any of the secrets and its time is now.

    Parameters
    ----------
    secrets
        `whsec_…`: all that are live while keys change.
    message_id, timestamp, signatures
        The headers `webhook-id`, `webhook-timestamp` and `webhook-signature` as they came.
    body
        The bytes that came, before anything has parsed them.
    tolerance
        Seconds that the timestamp may differ from `now`, either way.

    Raises
    ------
    SignatureRefused
        In every other case, whatever came.
    NaiveMoment
        If `now` has no time zone.
    """
    if not _MESSAGE_ID.fullmatch(message_id):
        raise SignatureRefused("the webhook-id is none")
    if not _TIMESTAMP.fullmatch(timestamp) or abs(epoch_milliseconds(now) / 1000 - int(timestamp)) > tolerance:
        raise SignatureRefused(f"the webhook-timestamp is not within {tolerance:g} s of now")
    signed = _signed_content(message_id, timestamp, body)
    expected = [_sign(key, signed) for key in _keys_of(secrets)]
    given = [each.encode("ascii", "replace") for each in signatures.split(" ")]
    # A list, so that every candidate is compared: how long it takes does not tell which one came close.
    if not any([compare_digest(ours, theirs) for ours in expected for theirs in given]):  # noqa: C419
        raise SignatureRefused("no webhook-signature fits")


def _signed_content(message_id: str, timestamp: str, body: bytes) -> bytes:
    return f"{message_id}.{timestamp}.".encode() + body


def _sign(key: bytes, content: bytes) -> bytes:
    return f"{VERSION},".encode() + base64.b64encode(hmac.digest(key, content, hashlib.sha256))


def _keys_of(secrets: Sequence[str]) -> list[bytes]:
    try:
        return [_key_of(secret) for secret in secrets]
    except ValueError:
        raise SignatureRefused("a secret of the receiver is not whsec_ and 24 bytes or more in base64") from None


def _key_of(secret: str) -> bytes:
    if not secret.startswith(SECRET_PREFIX):
        raise ValueError("a secret begins with whsec_")
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except ValueError:
        raise ValueError("a secret is base64 after whsec_") from None
    if len(key) < MIN_KEY:
        raise ValueError("a secret has 24 bytes at least: whoever guesses it signs")
    return key
