"""Deliver an event to one webhook. Each delivery is a message of its own: a receiver that is slow delays no other."""

from __future__ import annotations

from typing import Any

from app.deliveries import WebhookDelivery, deliver
from app.webhooks import Webhook, disable
from mailroom.consumer import consumer
from mailroom.outbound import Outbound
from mailroom.signing_keys import SigningKeys
from mailroom.telemetry import LogEvent, Metric, count, log
from mailroom.unit_of_work import UnitOfWork


@consumer(on=WebhookDelivery, writes=[Webhook], uses=[Outbound, SigningKeys], batch_size=1, max_concurrency=50)
def webhook_deliveries(event: WebhookDelivery, work: UnitOfWork) -> None:
    """Send the event; a receiver that answers 410 Gone is sent nothing more."""
    webhook = work.get(Webhook, event.webhook_id)
    about: dict[str, Any] = {"event_id": event.event_id, "webhook_id": event.webhook_id}
    if webhook is None or webhook.status == "disabled":
        log(LogEvent.WEBHOOK_SKIPPED, reason="it is disabled" if webhook else "it was deleted", **about)
        return
    if not deliver(event, webhook, work):
        disable(webhook, "the receiver answered 410 Gone", work)
        work.once_written(lambda: log(LogEvent.WEBHOOK_DISABLED, reason=webhook.disabled_reason, **about))
        work.once_written(lambda: count(Metric.WEBHOOKS_DISABLED))
