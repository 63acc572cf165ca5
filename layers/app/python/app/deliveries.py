"""Deliveries: one event on its way to one webhook, by Standard Webhooks 1.0.0.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from app.webhooks import Webhook
from mailroom.clock import epoch_seconds
from mailroom.failures import Failure, FailureKind, failure_of
from mailroom.outbound import Answer, NoAnswer, Outbound, PeerRefused
from mailroom.outbound_url import OutboundUrl
from mailroom.outbox.event import Envelope, Part
from mailroom.signing import signature_header
from mailroom.signing_keys import SigningKeys
from mailroom.telemetry import LogEvent, Metric, count, log
from mailroom.unit_of_work import UnitOfWork


class WebhookDelivery(Part, type="webhook.delivery"):
    """What one webhook is to be told of one event.

    Parameters
    ----------
    body
        What is sent, to the byte: the same at every attempt.
    """

    webhook_id: str
    event_id: str
    body: str


class NotAccepted(Exception):
    """The receiver answered that it did not take the event."""

    def __init__(self, webhook: Webhook, url: OutboundUrl, answer: Answer, retry_after: float | None) -> None:
        super().__init__(f"webhook {webhook.id} at {url.place} answered {answer.status}")
        kind = FailureKind.PERMANENT if webhook.is_permanent(answer.status) else FailureKind.TRANSIENT
        self.failure = Failure(
            kind, f"HTTP {answer.status}", str(self), retry_after=retry_after, excerpt=answer.excerpt
        )


def delivery_of(event: Envelope, webhook: Webhook) -> WebhookDelivery:
    """Make the delivery of an event: `{"type": …, "timestamp": …, "data": …}`, its payload as it is."""
    head = json.dumps({"type": event.type, "timestamp": event.time}, separators=(",", ":"))
    body = f'{head[:-1]},"data":{event.payload}}}'
    return WebhookDelivery(webhook_id=webhook.id, event_id=event.id, body=body)


def deliver(delivery: WebhookDelivery, webhook: Webhook, work: UnitOfWork) -> bool:
    """Send it once; answer whether the receiver wants any more.

    Raises
    ------
    NotAccepted
        If the receiver answered anything but a success, or that it is gone for good.
    NoAnswer, PeerRefused
        If it did not answer, or may not be reached.
    """
    url, clock = OutboundUrl.parse(webhook.url), work.runtime.clock
    about: dict[str, Any] = {"event_id": delivery.event_id, "webhook_id": webhook.id, "host": url.place}
    started = clock.monotonic()

    def tell(event: LogEvent, metric: Metric, failure: Failure | None = None) -> None:
        log(event, failure=failure, ms=round((clock.monotonic() - started) * 1000), **about)
        count(metric)

    try:
        answer = _post(delivery, url, work)
        about["status"] = answer.status
        _check(answer, webhook, url, work)
    except (NotAccepted, NoAnswer, PeerRefused) as error:
        tell(LogEvent.WEBHOOK_FAILED, Metric.WEBHOOKS_FAILED, failure_of(error))
        raise
    if not answer.accepted:
        return False
    tell(LogEvent.WEBHOOK_DELIVERED, Metric.WEBHOOKS_DELIVERED)
    return True


def message_id(work: UnitOfWork) -> str:
    """Answer the `webhook-id` of the delivery that is being made: the same at every attempt, and without a dot."""
    return f"msg_{work.cause_id.replace('/', '_')}"


def _post(delivery: WebhookDelivery, url: OutboundUrl, work: UnitOfWork) -> Answer:
    body = delivery.body.encode()
    keys = work.use(SigningKeys).keys_of(delivery.webhook_id)
    sent_at = epoch_seconds(work.now())
    headers = {
        "Content-Type": "application/json",
        "webhook-id": message_id(work),
        "webhook-timestamp": str(sent_at),
        "webhook-signature": signature_header(keys, message_id=message_id(work), timestamp=sent_at, body=body),
    }
    return work.use(Outbound).post(url, headers=headers, body=body)


def _check(answer: Answer, webhook: Webhook, url: OutboundUrl, work: UnitOfWork) -> None:
    if answer.accepted or answer.status == HTTPStatus.GONE:
        return
    asked = answer.wait(work.now())
    wait = None if asked is None else min(asked, work.runtime.timings.longest_retry_after)
    raise NotAccepted(webhook, url, answer, wait)
