"""Confirmation of e-mail addresses: nothing else is sent to an address before somebody who reads its mail agrees."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from hmac import compare_digest
from typing import Annotated

from pydantic import StringConstraints

from app.email import Email
from app.events import OwnerEmailChanged
from app.owners import Owner, find_owner, of_change
from mailroom.clock import moment, timestamp
from mailroom.http.command import Command
from mailroom.telemetry import LogEvent, Metric, count, log
from mailroom.unit_of_work import UnitOfWork

TOKEN_BYTES = 16
"""128 bits: too many to try, so that attempts need no limit of their own."""
TOKEN_LASTS = timedelta(days=1)

Token = Annotated[str, StringConstraints(pattern=rf"^[0-9a-f]{{{2 * TOKEN_BYTES}}}$")]
"""A token as the e-mail has it."""


class WrongToken(Exception):
    """The token is not the one that was sent last to the owner's address of now."""

    def __init__(self, owner_id: str) -> None:
        super().__init__(
            f"the token is not the one that was sent last to the address of owner {owner_id}: use that one, or set the"
            " address again for a new one"
        )


class ExpiredToken(Exception):
    """The token is too old."""

    def __init__(self, owner_id: str) -> None:
        super().__init__(f"the token for owner {owner_id} has expired: set the same address again for a new one")


class ConfirmEmail(Command):
    """The token out of the e-mail that asks for confirmation."""

    token: Token


def ask(event: OwnerEmailChanged, work: UnitOfWork) -> None:
    """Send a new token to the owner's address, if it is still the one of the event and unconfirmed.

    Of the token only a hash is kept. If the e-mail leaves twice, the token of the attempt that was committed counts.

    Raises
    ------
    EmailNotSent
        If SES does not take it.
    """
    owner = find_owner(event.owner_id, work)
    if owner.email is None or owner.email_change != event.change_id or owner.email_confirmed:
        reason = "the address was changed or confirmed meanwhile"
        log(LogEvent.EMAIL_SKIPPED, reason=reason, owner_id=owner.id)
        count(Metric.EMAILS_SKIPPED)
        return
    token = work.runtime.random.randbytes(TOKEN_BYTES).hex()
    expires_at = timestamp(work.now() + TOKEN_LASTS)
    work.use(Email).send(
        to=owner.email,
        receiver=f"owner {owner.id!r}",
        subject="Please confirm your e-mail address",
        text=_text(owner.id, token, expires_at),
        event_id=work.cause_id,
    )
    actions = [Owner.email_token_hash.set(_hash(token)), Owner.email_token_expires_at.set(expires_at)]
    work.update(Owner(owner.id), actions, condition=of_change(event.change_id))


def confirm(owner_id: str, command: ConfirmEmail, work: UnitOfWork) -> None:
    """Confirm an owner's address by the token that was sent to it; the same again changes nothing.

    Raises
    ------
    WrongToken, ExpiredToken
        If it is another one, or too old.
    """
    owner = find_owner(owner_id, work)
    digest = _hash(command.token)
    if not compare_digest(owner.email_token_hash or "", digest):
        raise WrongToken(owner_id)
    if owner.email_confirmed:
        return
    if owner.email_token_expires_at is None or work.now() >= moment(owner.email_token_expires_at):
        raise ExpiredToken(owner_id)
    still_this = Owner.email_token_hash == digest
    work.update(Owner(owner_id), [Owner.email_confirmed.set(True)], condition=still_this, refused=WrongToken(owner_id))


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _text(owner_id: str, token: str, expires_at: str) -> str:
    return f"""\
Whoever acts for the owner {owner_id} asked us to send e-mails about its repositories to this address.

If you want that, confirm the address until {expires_at}, by this token
for the owner {owner_id}: {token}

Send it as {{"token": "..."}} by POST to /api/v1/owners/{owner_id}/email-confirmation.

If you do not want it, or do not know what this is about, ignore this e-mail: nothing else is sent to this address
unless it is confirmed.
"""
