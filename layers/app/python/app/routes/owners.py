"""Owners over HTTP."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel

from app.confirmation import ConfirmEmail, ExpiredToken, WrongToken, confirm
from app.events import OwnerEmailChanged
from app.owners import DEFAULT_REPO_QUOTA, EmailChangedTooSoon, Owner, PutOwner, find_owner, set_owner
from mailroom.http.call import Call
from mailroom.http.problem import ProblemKind
from mailroom.http.reply import Reply
from mailroom.http.route import Success
from mailroom.http.routes import Routes
from mailroom.needs import Access

routes = Routes(
    access=Access(writes=(Owner,), publishes=(OwnerEmailChanged,)),
    problems={
        EmailChangedTooSoon: ProblemKind(409, "email-changed-too-soon", "The e-mail was changed moments ago"),
        WrongToken: ProblemKind(409, "wrong-confirmation-token", "The token does not confirm the owner's e-mail"),
        ExpiredToken: ProblemKind(409, "expired-confirmation-token", "The token has expired"),
    },
)


class OwnerView(BaseModel):
    """An owner as callers see it: with the quota that counts, set or not.

    E-mails about repositories are sent to an address that is confirmed, and to no other.
    """

    id: str
    email: str | None
    email_confirmed: bool
    repo_quota: int

    @classmethod
    def of(cls, owner: Owner) -> Self:
        """Show an owner."""
        quota = DEFAULT_REPO_QUOTA if owner.repo_quota is None else int(owner.repo_quota)
        return cls(id=owner.id, email=owner.email, email_confirmed=bool(owner.email_confirmed), repo_quota=quota)


@routes.put("/api/v1/owners/{owner_id}", body=PutOwner, success=Success(200, OwnerView), raises=[EmailChangedTooSoon])
def put_owner(command: PutOwner, call: Call, owner_id: str) -> Reply:
    """Set what is known of an owner. Another address is unconfirmed: an e-mail with a token asks to confirm it."""
    return Reply(200, OwnerView.of(set_owner(owner_id, command, call.work)))


@routes.get("/api/v1/owners/{owner_id}", success=Success(200, OwnerView))
def get_owner(call: Call, owner_id: str) -> Reply:
    """Show an owner; one that nobody ever set has the defaults."""
    return Reply(200, OwnerView.of(find_owner(owner_id, call.work)))


@routes.post(
    "/api/v1/owners/{owner_id}/email-confirmation",
    body=ConfirmEmail,
    success=Success(204),
    raises=[WrongToken, ExpiredToken],
)
def confirm_email(command: ConfirmEmail, call: Call, owner_id: str) -> Reply:
    """Confirm an owner's e-mail by the token that was sent to it; the same again changes nothing."""
    confirm(owner_id, command, call.work)
    return Reply(204)
