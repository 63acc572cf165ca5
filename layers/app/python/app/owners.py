"""Owners of repositories: where to write to them, and how many repositories they may have."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints
from pynamodb.attributes import BooleanAttribute, NumberAttribute, UnicodeAttribute, UnicodeSetAttribute
from pynamodb.expressions.condition import Condition
from pynamodb.expressions.update import Action

from app.events import OwnerEmailChanged
from mailroom.clock import moment, timestamp
from mailroom.failures import Permanent
from mailroom.http.command import Command
from mailroom.row import Row
from mailroom.timings import MINUTE
from mailroom.unit_of_work import UnitOfWork

DEFAULT_REPO_QUOTA = 100
MAX_REPO_QUOTA = 1_000_000
CONFIRMATION_EVERY = 5 * MINUTE
"""Seconds between two e-mails that ask for an owner's confirmation, whatever the address: whoever may set an owner's
address can have no more sent to addresses that nobody confirmed."""
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


class EmailChangedTooSoon(Exception):
    """The owner was asked to confirm another address moments ago."""

    def __init__(self, owner_id: str, again_at: str) -> None:
        super().__init__(
            f"owner {owner_id} was asked to confirm an address less than {CONFIRMATION_EVERY // MINUTE} minutes ago;"
            f" nothing was changed: set another address from {again_at} on"
        )


class Owner(Row):
    """An owner; one that has no row has the default quota and no e-mail.

    `email_change` names the request that set the address or asked for its confirmation again, and guards all that is
    known of the address. The confirmation's token is kept as its SHA-256, with the moment when it expires.
    """

    class Meta:
        short_name = "owners"

    deletable = False

    id = UnicodeAttribute(hash_key=True)
    email = UnicodeAttribute(null=True)
    email_confirmed = BooleanAttribute(null=True)
    email_change = UnicodeAttribute(null=True)
    email_asked_at = UnicodeAttribute(null=True)
    email_token_hash = UnicodeAttribute(null=True)
    email_token_expires_at = UnicodeAttribute(null=True)
    repo_quota = NumberAttribute(null=True)
    repo_count = NumberAttribute(null=True)
    webhook_urls = UnicodeSetAttribute(null=True)


class PutOwner(Command):
    """What is to be known of an owner; it replaces what was known."""

    email: EmailAddress | None
    repo_quota: Annotated[int, Field(ge=0, le=MAX_REPO_QUOTA)]


def set_owner(owner_id: str, command: PutOwner, work: UnitOfWork) -> Owner:
    """Set an owner's e-mail and quota; how many repositories there are is none of its business.

    Another address is unconfirmed, and its confirmation is asked for by an e-mail; the same one that is unconfirmed
    yet is asked again, if the last time is long enough ago.

    Raises
    ------
    EmailChangedTooSoon
        If it is another address and the last e-mail that asks for confirmation is not long enough ago.
    """
    known = find_owner(owner_id, work)
    owner = Owner(owner_id, email=command.email, repo_quota=command.repo_quota)
    actions: list[Action] = [Owner.repo_quota.set(command.repo_quota)]
    if command.email is None:
        actions += [each.remove() for each in (Owner.email, Owner.email_change, *_OF_ONE_CHANGE)]
    elif _asks(command.email, known, work):
        change = work.new_id()
        actions += [Owner.email.set(command.email), Owner.email_change.set(change)]
        actions += [Owner.email_asked_at.set(timestamp(work.now())), *(each.remove() for each in _OF_ONE_CHANGE)]
        work.publish(OwnerEmailChanged(owner_id=owner_id, change_id=change))
    else:
        owner.email_confirmed = known.email_confirmed
    work.update(Owner(owner_id), actions, condition=of_change(known.email_change))
    return owner


def of_change(change_id: str | None) -> Condition:
    """Return the condition that an owner's address is the one of this change; None if it has none."""
    return Owner.email_change.does_not_exist() if change_id is None else Owner.email_change == change_id


def _asks(email: str, known: Owner, work: UnitOfWork) -> bool:
    """Return whether setting the address asks for its confirmation; an e-mail that would come too soon is not sent."""
    if email == known.email and known.email_confirmed:
        return False
    if known.email_asked_at is None:
        return True
    again = moment(known.email_asked_at) + timedelta(seconds=CONFIRMATION_EVERY)
    if work.now() >= again:
        return True
    if email != known.email:
        raise EmailChangedTooSoon(known.id, timestamp(again))
    return False


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

_OF_ONE_CHANGE = (Owner.email_confirmed, Owner.email_token_hash, Owner.email_token_expires_at)
"""What is known of an address, and of no other one."""
