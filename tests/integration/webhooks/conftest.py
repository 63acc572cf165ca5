"""Webhooks in process: the API to subscribe by, both consumers with their queues, and a receiver on this machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import time_machine
from standardwebhooks import Webhook as Verifier

from app.api import api
from app.consumers.webhook_deliveries import webhook_deliveries
from app.consumers.webhooks import webhooks
from app.settings import AppSettings
from mailroom import clients
from mailroom.consumer import Consumer
from mailroom.consumer_edge import ConsumerEdge
from mailroom.http.testing import ApiAnswer, ApiClient
from mailroom.master_keys import MasterKey, MasterKeys
from mailroom.outbox.event import Envelope
from mailroom.runtime import Runtime
from mailroom.sources.memory import InMemorySource
from mailroom.testing import LambdaContext, ManualClock
from tests.integration.api.conftest import DocumentedClient
from tests.receiver import Got, Receiver, listening

from ..lagging import lagging_tables  # noqa: F401 - for every test here

EVENT = "01JDW3NDEKTSV4RRFFQ69G5FAV-03"
WEBHOOKS = "/api/v1/webhooks"
TYPES = ["repo.created", "repo.renamed", "repo.transferred", "repo.deleted"]
LONGER_THAN_ANY_WAIT = 6_000


@pytest.fixture
def runtime(runtime: Runtime, clock: ManualClock) -> Runtime:
    """The surroundings of a process on a laptop: its receivers may be there too. The signing secret has one key."""
    settings = runtime.settings.model_copy(update={"outbound_networks": "127.0.0.0/8"})
    clients.secretsmanager().create_secret(Name=settings.signing_secret, SecretString=keys_of(clock, b"1"))
    return Runtime(settings, runtime.of(AppSettings), clock=clock, random=runtime.random)


def keys_of(clock: ManualClock, *keys: bytes) -> str:
    """Answer what the secret holds when these keys are live."""
    return MasterKeys(keys=tuple(MasterKey.of(f"key-{key.decode()}", key * 32, clock.now()) for key in keys)).to_json()


@pytest.fixture
def rotate(runtime: Runtime, clock: ManualClock) -> Callable[..., None]:
    """Makes these keys live, for a process too that keeps a copy."""

    def rotate(*keys: bytes) -> None:
        name = runtime.settings.signing_secret
        clients.secretsmanager().put_secret_value(SecretId=name, SecretString=keys_of(clock, *keys))
        clock.advance(runtime.timings.signing_key_cache + 1)

    return rotate


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver that takes everything, unless it is told to behave otherwise."""
    with listening() as receiver:
        yield receiver


@pytest.fixture
def client(runtime: Runtime) -> ApiClient:
    return DocumentedClient(api, runtime)


class Subscriber:
    """An owner who subscribes over HTTP."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._keys = iter(range(1_000))

    def post(
        self, url: str, *events: str, owner_id: str = "owner-1", key: str | None = None, **others: Any
    ) -> ApiAnswer:
        """Subscribe, to everything unless events are named."""
        return self.send({"owner_id": owner_id, "url": url, "events": list(events or TYPES), **others}, key=key)

    def send(self, body: dict[str, Any], key: str | None = None) -> ApiAnswer:
        """Send this for a subscription."""
        return self._client.post(WEBHOOKS, body, key=key or f"key-{next(self._keys)}")

    def to(self, receiver: Receiver, *events: str, path: str = "/in", owner_id: str = "owner-1", **others: Any) -> str:
        """Subscribe a receiver; return the webhook's id."""
        answer = self.post(receiver.url + path, *events, owner_id=owner_id, **others)
        assert answer.status == 201, answer.text
        return str(answer.json["id"])

    def show(self, webhook_id: str) -> dict[str, Any]:
        """Answer a webhook as its owner sees it."""
        shown: dict[str, Any] = self._client.get(f"{WEBHOOKS}/{webhook_id}").json
        return shown

    def secrets(self, webhook_id: str) -> dict[str, str | None]:
        """Answer a webhook's secrets."""
        secrets: dict[str, str | None] = self._client.get(f"{WEBHOOKS}/{webhook_id}/secret").json
        return secrets


@pytest.fixture
def subscriber(client: ApiClient) -> Subscriber:
    return Subscriber(client)


class Line:
    """Both consumers, each with its queue."""

    def __init__(self, runtime: Runtime, clock: ManualClock) -> None:
        self.clock = clock
        self.events, self.deliveries = InMemorySource(clock), InMemorySource(clock)
        self._splitting = ConsumerEdge(webhooks, runtime, self.events, parts=self.deliveries)
        self._delivering = ConsumerEdge(webhook_deliveries, runtime, self.deliveries)

    def happen(self, type_: str = "repo.created", *, event_id: str = EVENT, **payload: Any) -> None:
        """Let an event of an owner come."""
        data = {"repo_id": "1", "name": "tool", "owner_id": "owner-1", "former_name": "old", **payload}
        envelope = Envelope(event_id, type_, "test.service", "repos/1", "2030-01-01T00:00:00.000Z", json.dumps(data))
        self.events.send(envelope.to_json())

    def deliver(self) -> int:
        """Deliver what is visible; answer how many deliveries failed."""
        failed = _deliver(self.events, self._splitting)
        while self.deliveries.visible:
            failed += _deliver(self.deliveries, self._delivering)
        return failed

    def deliver_for_good(self) -> int:
        """Deliver until nothing comes any more; answer how many deliveries failed."""
        failed = 0
        for _ in range(12):
            failed += self.deliver()
            self.clock.advance(LONGER_THAN_ANY_WAIT)
        return failed

    def wait_of_the_next(self) -> float:
        """Answer the seconds until the one message that waits comes again, give or take one."""
        waited = 0
        while not self.deliveries.visible:
            assert self.deliveries.hidden, "nothing waits"
            self.clock.advance(1)
            waited += 1
        return waited


def _deliver(source: InMemorySource, edge: ConsumerEdge) -> int:
    consumer: Consumer = edge._declaration
    records = source.receive(consumer.batch_size, wait=0, hidden=180)
    if not records:
        return 0
    answer = edge.handle({"Records": records}, LambdaContext())
    failed = {each["itemIdentifier"] for each in answer["batchItemFailures"]}
    source.delete([record["receiptHandle"] for record in records if record["messageId"] not in failed])
    return len(failed)


@pytest.fixture
def line(runtime: Runtime, clock: ManualClock) -> Line:
    return Line(runtime, clock)


Verify = Callable[[Got, str | None], Any]


@pytest.fixture
def verify(clock: ManualClock) -> Verify:
    """Verifies what a receiver got as its own code would, by `standardwebhooks`; answers the payload."""

    def verify(got: Got, secret: str | None) -> Any:
        headers: Mapping[str, str] = got.headers
        with time_machine.travel(clock.now(), tick=False):
            return Verifier(str(secret)).verify(got.body, dict(headers))

    return verify
