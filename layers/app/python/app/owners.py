"""Owners of repositories: where to write to them, and how many repositories they may have."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints
from pynamodb.attributes import NumberAttribute, UnicodeAttribute, UnicodeSetAttribute

from mailroom.failures import Permanent
from mailroom.http.command import Command
from mailroom.row import Row
from mailroom.unit_of_work import UnitOfWork

DEFAULT_REPO_QUOTA = 100
MAX_REPO_QUOTA = 1_000_000
MAX_LOCAL_PART = 64
"""https://www.rfc-editor.org/rfc/rfc5321#section-4.5.3.1.1"""

_LABEL = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_LAST_LABEL = "[A-Za-z]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_ATOM = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"


def _has_short_local_part(address: str) -> str:
    if len(address.partition("@")[0]) > MAX_LOCAL_PART:
        raise ValueError(f"more than {MAX_LOCAL_PART} characters are before the @")
    return address


EmailAddress = Annotated[
    str,
    StringConstraints(
        max_length=254,
        pattern=rf"^{_ATOM}(\.{_ATOM})*@({_LABEL}\.)+{_LAST_LABEL}$",
    ),
    AfterValidator(_has_short_local_part),
]
"""What SES sends to: `local@domain` in ASCII (RFC 5321 without quoted parts and addresses of hosts), so nothing can add
a header. SES refuses a local part with a dot at either end or two in a row.
https://docs.aws.amazon.com/ses/latest/APIReference-V2/API_Destination.html
"""

OwnerId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class QuotaExceeded(Permanent):
    """The owner has as many repositories as the quota allows."""

    def __init__(self, owner_id: str) -> None:
        super().__init__(f"owner {owner_id} has as many repositories as the quota allows")


class Owner(Row):
    """An owner; one that has no row has the default quota and no e-mail."""

    class Meta:
        short_name = "owners"

    deletable = False

    id = UnicodeAttribute(hash_key=True)
    email = UnicodeAttribute(null=True)
    repo_quota = NumberAttribute(null=True)
    repo_count = NumberAttribute(null=True)
    webhook_urls = UnicodeSetAttribute(null=True)


class PutOwner(Command):
    """What is to be known of an owner; it replaces what was known."""

    email: EmailAddress | None
    repo_quota: Annotated[int, Field(ge=0, le=MAX_REPO_QUOTA)]


def set_owner(owner_id: str, command: PutOwner, work: UnitOfWork) -> Owner:
    """Set an owner's e-mail and quota; how many repositories there are is none of its business."""
    email = Owner.email.remove() if command.email is None else Owner.email.set(command.email)
    work.update(Owner(owner_id), [email, Owner.repo_quota.set(command.repo_quota)])
    return Owner(owner_id, email=command.email, repo_quota=command.repo_quota)


def find_owner(owner_id: str, work: UnitOfWork) -> Owner:
    """Answer an owner: there is no id without one."""
    return work.get(Owner, owner_id) or Owner(owner_id)


def count_repo(owner_id: str, work: UnitOfWork) -> None:
    """Count one more repository of an owner; the commit raises `QuotaExceeded` if the quota is used up."""
    work.update(
        Owner(owner_id),
        [Owner.repo_count.add(1)],
        condition=_QUOTA_LEFT,
        refused=QuotaExceeded(owner_id),
    )


def uncount_repo(owner_id: str, work: UnitOfWork) -> None:
    """Count one repository less of an owner."""
    work.update(Owner(owner_id), [Owner.repo_count.add(-1)])


# DynamoDB takes a comparison with a missing attribute for false, so each way of missing has its own line:
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Expressions.OperatorsAndFunctions.html
_QUOTA_LEFT = (
    (Owner.repo_count < Owner.repo_quota)
    | (Owner.repo_quota.does_not_exist() & (Owner.repo_count < DEFAULT_REPO_QUOTA))
    | (Owner.repo_count.does_not_exist() & (Owner.repo_quota > 0))
    | (Owner.repo_count.does_not_exist() & Owner.repo_quota.does_not_exist())
)
