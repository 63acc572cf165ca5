"""Webhooks over HTTP."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel

from app.owners import Owner, OwnerId
from app.webhooks import (
    DuplicateWebhook,
    NoSuchWebhook,
    Status,
    Subscribe,
    TooManyWebhooks,
    Webhook,
    find_webhook,
    list_webhooks,
    subscribe,
    unsubscribe,
)
from mailroom.http.call import Call
from mailroom.http.kinds import INVALID_BODY
from mailroom.http.precondition import etag
from mailroom.http.problem import FieldError, Problem, ProblemKind
from mailroom.http.query import Limit, Query
from mailroom.http.reply import Reply
from mailroom.http.route import Success
from mailroom.http.routes import Routes
from mailroom.needs import Access
from mailroom.outbound import Outbound
from mailroom.outbound_url import UrlRefused
from mailroom.signing_keys import SigningKeys

routes = Routes(
    access=Access(writes=(Webhook, Owner), uses=(Outbound, SigningKeys)),
    problems={
        NoSuchWebhook: ProblemKind(404, "no-such-webhook", "There is no such webhook"),
        DuplicateWebhook: ProblemKind(409, "duplicate-webhook", "The owner has a webhook to this URL"),
        TooManyWebhooks: ProblemKind(409, "too-many-webhooks", "The owner may have no more webhooks"),
    },
)


class WebhookView(BaseModel):
    """A webhook as callers see it; its secret has a path of its own."""

    id: str
    owner_id: str
    url: str
    events: list[str]
    permanent_statuses: list[int]
    status: Status
    disabled_reason: str | None
    disabled_at: str | None
    version: int
    created_at: str

    @classmethod
    def of(cls, webhook: Webhook) -> Self:
        """Show a webhook."""
        return cls(
            id=webhook.id,
            owner_id=webhook.owner_id,
            url=webhook.url,
            events=sorted(webhook.events),
            permanent_statuses=sorted(map(int, webhook.permanent_statuses or ())),
            status=webhook.status,
            disabled_reason=webhook.disabled_reason,
            disabled_at=webhook.disabled_at,
            version=int(webhook.version),
            created_at=webhook.created_at,
        )


class WebhookPage(BaseModel):
    """Some webhooks of an owner, oldest first; the last page has no `next_cursor`."""

    items: list[WebhookView]
    next_cursor: str | None


class SecretView(BaseModel):
    """What a webhook's deliveries are signed with: while keys change, under both."""

    current: str
    next: str | None


class ListWebhooks(Query):
    """Whose webhooks to list, and from where on."""

    owner_id: OwnerId
    limit: Limit = 25
    cursor: str | None = None


@routes.post(
    "/api/v1/webhooks",
    body=Subscribe,
    success=Success(201, WebhookView, headers=("Location", "ETag")),
    raises=[DuplicateWebhook, TooManyWebhooks],
)
def post_webhook(command: Subscribe, call: Call) -> Reply:
    """Subscribe to events. The secret is not in the answer, since answers are kept: ask for it at its own path."""
    try:
        webhook = subscribe(command, call.work)
    except UrlRefused as error:
        raise Problem(INVALID_BODY, f"url: {error}", errors=[FieldError("url", str(error))]) from error
    tag = etag(webhook.version)
    return Reply(201, WebhookView.of(webhook), location=f"/api/v1/webhooks/{webhook.id}", etag=tag)


@routes.get("/api/v1/webhooks", query=ListWebhooks, success=Success(200, WebhookPage))
def get_webhooks(query: ListWebhooks, call: Call) -> Reply:
    """List an owner's webhooks. The list follows what happens within moments."""
    after = call.cursors.read(query.cursor, owner_id=query.owner_id, id=None)
    webhooks, last = list_webhooks(query.owner_id, call.work, after=after, limit=query.limit)
    items = [WebhookView.of(webhook) for webhook in webhooks]
    return Reply(200, WebhookPage(items=items, next_cursor=call.cursors.write(last)))


@routes.get(
    "/api/v1/webhooks/{webhook_id}", success=Success(200, WebhookView, headers=("ETag",)), raises=[NoSuchWebhook]
)
def get_webhook(call: Call, webhook_id: str) -> Reply:
    """Show a webhook."""
    webhook = _named(webhook_id, call)
    return Reply(200, WebhookView.of(webhook), etag=etag(webhook.version))


@routes.get(
    "/api/v1/webhooks/{webhook_id}/secret",
    success=Success(200, SecretView, headers=("Cache-Control",)),
    raises=[NoSuchWebhook],
)
def get_secret(call: Call, webhook_id: str) -> Reply:
    """Show what a webhook's deliveries are signed with; `next` is there while keys change."""
    current, *rest = (key.secret for key in call.work.use(SigningKeys).keys_of(_named(webhook_id, call).id))
    view = SecretView(current=current, next=rest[0] if rest else None)
    return Reply(200, view, headers={"Cache-Control": "no-store"})


@routes.delete("/api/v1/webhooks/{webhook_id}", success=Success(204), raises=[NoSuchWebhook])
def remove_webhook(call: Call, webhook_id: str) -> Reply:
    """Unsubscribe. What is on its way is dropped."""
    unsubscribe(_named(webhook_id, call), call.work)
    return Reply(204)


def _named(webhook_id: str, call: Call) -> Webhook:
    webhook = find_webhook(webhook_id, call.work)
    if not call.caller.may_act_for(webhook.owner_id):
        raise NoSuchWebhook(webhook_id)  # not 403: it would tell that there is one
    call.if_match.check(webhook.version)
    return webhook
