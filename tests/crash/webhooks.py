"""The scenario of webhooks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from app.consumers.webhook_deliveries import webhook_deliveries
from app.consumers.webhooks import webhooks
from app.deliveries import WebhookDelivery
from app.webhooks import Webhook
from mailroom.consumer import Consumer
from mailroom.consumer_edge import ConsumerEdge
from mailroom.outbound import Answer, Outbound
from mailroom.outbound_url import OutboundUrl
from mailroom.outbox.event import Envelope
from mailroom.peers import Peers
from mailroom.sources.sqs import SqsSource
from mailroom.testing import LambdaContext, ManualClock
from mailroom.timings import Timings

from .aws import QUEUE
from .harness import Scenario
from .ledger import Finding, Flaw, nothing_waits, records_completed
from .world import Process, World

EVENT = "01JDW3NDEKTSV4RRFFQ69G5FAV-03"
_IDS = {"there": 200, "gone": 410}
"""The webhooks, and what each receiver answers."""


class _Receivers(Outbound):
    """Receivers that note the ids of what they got."""

    def __init__(self) -> None:
        super().__init__(peers=Peers(), timings=Timings(), clock=ManualClock())
        self.got: dict[str, list[str]] = {webhook_id: [] for webhook_id in _IDS}

    def post(self, url: OutboundUrl, *, headers: Mapping[str, str], body: bytes) -> Answer:
        webhook_id = url.host.partition(".")[0]
        self.got[webhook_id].append(headers["webhook-id"])
        return Answer(_IDS[webhook_id])


class DeliverToWebhooks(Scenario):
    """An event comes twice, and is delivered to two webhooks, one of which is gone for good.

    Both consumers read one queue, each its own kind of message.
    """

    def __init__(self) -> None:
        self.receivers = _Receivers()
        self._edges: tuple[Process, dict[str, ConsumerEdge]] | None = None

    def prepare(self, world: World) -> None:
        world.aws.make_secret()
        for webhook_id in _IDS:
            url = f"https://{webhook_id}.example.com/"
            Webhook(
                webhook_id, owner_id="owner-1", url=url, events={"repo.created"}, created_at="2030", version=1
            ).save()
        payload = json.dumps({"repo_id": "1", "name": "tool", "owner_id": "owner-1"})
        event = Envelope(EVENT, "repo.created", "test.service", "repos/1", "2030-01-01T00:00:00.000Z", payload)
        for _ in range(2):
            world.aws.send(event.to_json())

    def step(self, world: World) -> bool:
        for record in world.aws.receive():
            self._deliver(record, world)
        return not world.messages

    def judge(self, world: World) -> Iterator[Finding]:
        yield from nothing_waits(world)
        yield from records_completed(world)
        for webhook_id, ids in self.receivers.got.items():
            if not ids:
                yield Finding(Flaw.LOST, f"{webhook_id} was told nothing")
            if set(ids) - {f"msg_{EVENT}_{webhook_id}"}:
                yield Finding(Flaw.DUPLICATED, f"{webhook_id} was told under more than one id: {ids}")
        for row in world.aws.items("webhooks"):
            if ("disabled_at" in row) != (_IDS[row["id"]] == 410):
                yield Finding(Flaw.STUCK, f"{row['id']} is disabled, or not, against what its receiver answered")

    def _deliver(self, record: dict[str, Any], world: World) -> None:
        consumer = webhook_deliveries if json.loads(record["body"])["type"] == WebhookDelivery.type else webhooks
        answer = self._edge(consumer, world).handle({"Records": [record]}, LambdaContext())
        if not answer["batchItemFailures"]:
            world.aws.delete(record["receiptHandle"])

    def _edge(self, consumer: Consumer, world: World) -> ConsumerEdge:
        process = world.process
        if self._edges is None or self._edges[0] is not process:
            process.runtime.provide(Outbound, self.receivers)
            queue = SqsSource(world.aws.queues[QUEUE])
            both = (webhooks, webhook_deliveries)
            edges = {each.name: ConsumerEdge(each, process.runtime, queue, parts=queue) for each in both}
            self._edges = (process, edges)
        return self._edges[1][consumer.name]
