"""Owners over HTTP."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel

from app.owners import DEFAULT_REPO_QUOTA, Owner, PutOwner, find_owner, set_owner
from mailroom.http.call import Call
from mailroom.http.reply import Reply
from mailroom.http.route import Success
from mailroom.http.routes import Routes
from mailroom.needs import Access

routes = Routes(access=Access(writes=(Owner,)))


class OwnerView(BaseModel):
    """An owner as callers see it: with the quota that counts, set or not."""

    id: str
    email: str | None
    repo_quota: int

    @classmethod
    def of(cls, owner: Owner) -> Self:
        """Show an owner."""
        quota = DEFAULT_REPO_QUOTA if owner.repo_quota is None else int(owner.repo_quota)
        return cls(id=owner.id, email=owner.email, repo_quota=quota)


@routes.put("/api/v1/owners/{owner_id}", body=PutOwner, success=Success(200, OwnerView))
def put_owner(command: PutOwner, call: Call, owner_id: str) -> Reply:
    """Set what is known of an owner."""
    return Reply(200, OwnerView.of(set_owner(owner_id, command, call.work)))


@routes.get("/api/v1/owners/{owner_id}", success=Success(200, OwnerView))
def get_owner(call: Call, owner_id: str) -> Reply:
    """Show an owner; one that nobody ever set has the defaults."""
    return Reply(200, OwnerView.of(find_owner(owner_id, call.work)))
