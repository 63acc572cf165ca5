"""Confirms e-mail addresses as their readers do: by the token in the e-mail that the emulator's SES took."""

import re
from uuid import uuid4

from local.api import Answer, Api
from local.mailbox import Mailbox
from local.waiting import eventually

_TOKEN = re.compile(r"\b[0-9a-f]{32}\b")


def confirm_address(api: Api, mailbox: Mailbox, owner_id: str, address: str, *, within: float = 150.0) -> Answer:
    """Wait for the token that was sent to an owner's address, and confirm the address by it.

    Raises NeverHappened if no token comes in so many seconds: two sweeps of the relay, since a wake-up may be lost.
    """
    token = eventually(lambda: token_sent_to(address, mailbox), within=within, what="the e-mail with the token")
    return api.post(f"/api/v1/owners/{owner_id}/email-confirmation", {"token": token}, key=str(uuid4()))


def token_sent_to(address: str, mailbox: Mailbox) -> str | None:
    """Return the latest token that was sent to an address."""
    tokens = [token for mail in mailbox.to(address) for token in _TOKEN.findall(mail.text)]
    return tokens[-1] if tokens else None
