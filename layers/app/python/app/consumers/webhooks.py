"""Tell owners' webhooks what happens to their repositories: each event becomes a delivery for each of them."""

from __future__ import annotations

from app.deliveries import WebhookDelivery, delivery_of
from app.events import RepoTransferred
from app.webhooks import EVENTS, RepoEvent, Webhook, subscribed
from mailroom.consumer import consumer
from mailroom.unit_of_work import UnitOfWork


@consumer(on=EVENTS, reads=[Webhook], splits_into=[WebhookDelivery])
def webhooks(event: RepoEvent, work: UnitOfWork) -> None:
    """Make a delivery for each webhook of the event's owner, and of the one before, that wants it.

    Each is its owner's: ten receivers that hang hold up their own owner's deliveries first.
    """
    owners = [event.owner_id, *([event.former_owner_id] if isinstance(event, RepoTransferred) else [])]
    for owner_id in dict.fromkeys(owners):
        for webhook in subscribed(owner_id, event.type, work):
            work.split(delivery_of(work.consumed, webhook), key=webhook.id, tenant=owner_id)
