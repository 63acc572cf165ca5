"""Webhooks: owners' subscriptions to what happens to their repositories."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field, StringConstraints
from pynamodb.attributes import NumberSetAttribute, UnicodeAttribute, UnicodeSetAttribute
from pynamodb.expressions.condition import size
from pynamodb.indexes import AllProjection, GlobalSecondaryIndex

from app.events import RepoCreated, RepoDeleted, RepoRenamed, RepoTransferred
from app.owners import Owner, OwnerId, find_owner
from mailroom.clock import timestamp
from mailroom.http.command import Command
from mailroom.outbound import Outbound
from mailroom.outbound_url import MAX_URL, OutboundUrl
from mailroom.outbox.event import Event
from mailroom.reading import Unreadable
from mailroom.row import SubjectRow
from mailroom.unit_of_work import UnitOfWork

MAX_WEBHOOKS = 10
"""Subscriptions of one owner: each of its events becomes as many deliveries at most."""

RepoEvent = RepoCreated | RepoRenamed | RepoTransferred | RepoDeleted
"""What can be subscribed to."""
EVENTS: tuple[type[Event], ...] = get_args(RepoEvent)
EVENT_TYPES = tuple(event.type for event in EVENTS)

NEVER_PERMANENT = (408, 410, 425, 429)
"""Too slow, too early and too often pass; 410 disables the webhook."""

Status = Literal["active", "disabled"]


def _normal(url: str) -> str:
    return str(OutboundUrl.parse(url))


def _known(event_type: str) -> str:
    if event_type not in EVENT_TYPES:
        raise ValueError(f"there is no such event; there are: {', '.join(EVENT_TYPES)}")
    return event_type


def _distinct(entries: list[Any]) -> list[Any]:
    if len(set(entries)) < len(entries):
        raise ValueError("an entry is named twice")
    return entries


def _may_be_permanent(status: int) -> int:
    if status in NEVER_PERMANENT:
        raise ValueError(f"{', '.join(map(str, NEVER_PERMANENT))} have a meaning of their own")
    return status


WebhookUrl = Annotated[str, StringConstraints(min_length=1, max_length=MAX_URL), AfterValidator(_normal)]
"""A URL in its normal form."""
EventType = Annotated[str, AfterValidator(_known), Field(json_schema_extra={"enum": list(EVENT_TYPES)})]
EventTypes = Annotated[
    list[EventType],
    Field(min_length=1, max_length=len(EVENTS), json_schema_extra={"uniqueItems": True}),
    AfterValidator(_distinct),
]

PermanentStatus = Annotated[
    int,
    Field(ge=400, le=499, json_schema_extra={"not": {"enum": list(NEVER_PERMANENT)}}),
    AfterValidator(_may_be_permanent),
]
PermanentStatuses = Annotated[
    list[PermanentStatus], Field(max_length=20, json_schema_extra={"uniqueItems": True}), AfterValidator(_distinct)
]
"""Statuses of its receiver after which a delivery is not tried again."""


class NoSuchWebhook(Exception):
    """There is no webhook with this id."""

    def __init__(self, webhook_id: str) -> None:
        super().__init__(f"there is no webhook {webhook_id}")


class TooManyWebhooks(Exception):
    """The owner has as many webhooks as an owner may have."""

    def __init__(self, owner_id: str) -> None:
        super().__init__(f"owner {owner_id} has {MAX_WEBHOOKS} webhooks, and may have no more: delete one")


class DuplicateWebhook(Exception):
    """The owner has a webhook to this URL: two would tell one receiver everything twice."""

    def __init__(self, owner_id: str) -> None:
        super().__init__(f"owner {owner_id} has a webhook to this URL: delete it first, or change nothing")


class WebhooksOfOwner(GlobalSecondaryIndex["Webhook"]):  # type: ignore[no-untyped-call]
    """The webhooks of each owner, oldest first; it follows the table within moments."""

    class Meta:
        index_name = "of_owner"
        projection = AllProjection()

    owner_id = UnicodeAttribute(hash_key=True)
    id = UnicodeAttribute(range_key=True)


class Webhook(SubjectRow):
    """A subscription: where to send what. Its secret is in no row: it is derived from the stage's keys."""

    class Meta:
        short_name = "webhooks"

    id = UnicodeAttribute(hash_key=True)
    owner_id = UnicodeAttribute()
    url = UnicodeAttribute()
    events = UnicodeSetAttribute()
    permanent_statuses = NumberSetAttribute(null=True)
    created_at = UnicodeAttribute()
    disabled_at = UnicodeAttribute(null=True)
    disabled_reason = UnicodeAttribute(null=True)
    of_owner = WebhooksOfOwner()

    @property
    def status(self) -> Status:
        """Whether anything is sent to it."""
        return "active" if self.disabled_at is None else "disabled"

    def is_permanent(self, status: int) -> bool:
        """Whether a delivery that was answered so is not to be tried again."""
        return status in (self.permanent_statuses or ())


class Subscribe(Command):
    """What a new webhook is made of."""

    owner_id: OwnerId
    url: WebhookUrl
    events: EventTypes
    permanent_statuses: PermanentStatuses = Field(default_factory=list)


def subscribe(command: Subscribe, work: UnitOfWork) -> Webhook:
    """Make a webhook.

    Raises
    ------
    UrlRefused
        If no request may be sent to its URL on this stage.
    DuplicateWebhook, TooManyWebhooks
        If its owner has one to this URL, or may have no more.
    """
    work.use(Outbound).check(OutboundUrl.parse(command.url))
    _take_place(command, work)
    webhook = Webhook(
        work.new_id(),
        owner_id=command.owner_id,
        url=command.url,
        events=set(command.events),
        permanent_statuses=set(command.permanent_statuses) or None,  # DynamoDB has no empty set
        created_at=timestamp(work.now()),
    )
    work.save(webhook)
    return webhook


def find_webhook(webhook_id: str, work: UnitOfWork) -> Webhook:
    """Answer a webhook.

    Raises
    ------
    NoSuchWebhook
        If there is none.
    """
    webhook = work.get(Webhook, webhook_id)
    if webhook is None:
        raise NoSuchWebhook(webhook_id)
    return webhook


def list_webhooks(
    owner_id: str, work: UnitOfWork, *, after: Mapping[str, Any] | None, limit: int
) -> tuple[list[Webhook], dict[str, Any] | None]:
    """Answer some webhooks of an owner, oldest first, and the key that the next ones come after."""
    return work.page(Webhook, Webhook.of_owner, owner_id, after=after, limit=limit)


def subscribed(owner_id: str, event_type: str, work: UnitOfWork) -> Iterator[Webhook]:
    """Answer the active webhooks of an owner that want events of a type.

    One whose row cannot be read is told, and among them if it is known to want them: its delivery fails by itself.
    """
    after: dict[str, Any] | None = None
    while True:
        spoilt: list[Unreadable[Webhook]] = []
        page, after = work.page(
            Webhook, Webhook.of_owner, owner_id, after=after, limit=MAX_WEBHOOKS, unreadable=spoilt.append
        )
        for each in spoilt:
            each.tell()
        known = [each.row for each in spoilt if not each.flaws & {"events", "disabled_at"}]
        yield from (each for each in (*page, *known) if each.status == "active" and event_type in each.events)
        if after is None:
            return


def disable(webhook: Webhook, reason: str, work: UnitOfWork) -> None:
    """Send nothing more to a webhook, and say why."""
    webhook.disabled_at, webhook.disabled_reason = timestamp(work.now()), reason
    work.save(webhook)


def unsubscribe(webhook: Webhook, work: UnitOfWork) -> None:
    """Remove a webhook; what is on its way to it is dropped."""
    work.delete(webhook)
    work.update(Owner(webhook.owner_id), [Owner.webhook_urls.delete({_mark(webhook.url)})])


def _take_place(command: Subscribe, work: UnitOfWork) -> None:
    """Note the URL with the owner, whose row keeps two requests at once from making one webhook too many."""
    mark = _mark(command.url)
    held = find_owner(command.owner_id, work).webhook_urls or set()
    if mark in held:
        raise DuplicateWebhook(command.owner_id)
    if len(held) >= MAX_WEBHOOKS:
        raise TooManyWebhooks(command.owner_id)
    count = size(Owner.webhook_urls)  # type: ignore[no-untyped-call]
    free = (count < MAX_WEBHOOKS) & ~Owner.webhook_urls.contains(mark)
    work.update(
        Owner(command.owner_id),
        [Owner.webhook_urls.add({mark})],
        condition=Owner.webhook_urls.does_not_exist() | free,
    )


def _mark(url: str) -> str:
    """Tell a URL from others in a few bytes: every change of an owner's row is paid by its size."""
    return hashlib.sha256(url.encode()).hexdigest()[:32]
