"""Webhooks on the deployed stack: delivered to real receivers on this machine, and verified as a receiver does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import uuid4

import pytest
from standardwebhooks import Webhook as Verifier
from standardwebhooks import WebhookVerificationError

from local.api import Api
from mailroom import clients
from mailroom.runtime import Runtime
from mailroom.sources.source import TENANT, Message
from mailroom.sources.sqs import SqsSource
from tests.receiver import Got, Receiver, Visit, listening

from .rotation import TIMINGS, Secret, rotate, secret  # noqa: F401 - fixtures

WEBHOOKS = "/api/v1/webhooks"
SOON = 90
"""Seconds: five functions in a row that start for the first time take many on a busy machine."""

Eventually = Callable[..., Any]


@pytest.fixture
def owner() -> str:
    return f"owner-{uuid4().hex[:12]}"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with listening() as receiver:
        yield receiver


Subscribe = Callable[[Receiver], str]


@pytest.fixture
def subscribe(api: Api, owner: str) -> Iterator[Subscribe]:
    """Subscribes a receiver for as long as the test runs: what is on its way to it then is dropped, not dead."""
    made: list[str] = []

    def subscribe(receiver: Receiver) -> str:
        order = {"owner_id": owner, "url": f"{receiver.url}/in", "events": ["repo.created"]}
        answer = api.post(WEBHOOKS, order, key=uuid4().hex)
        assert answer.status == 201, answer.text
        made.append(answer.json()["id"])
        return made[-1]

    yield subscribe
    for webhook_id in made:
        assert api.request("DELETE", f"{WEBHOOKS}/{webhook_id}").status == 204


def create(api: Api, owner_id: str, name: str = "tool") -> str:
    return str(api.post("/api/v1/repos", {"name": name, "owner_id": owner_id}, key=uuid4().hex).json()["id"])


def secrets_of(api: Api, webhook_id: str) -> dict[str, str | None]:
    secrets: dict[str, str | None] = api.get(f"{WEBHOOKS}/{webhook_id}/secret").json()
    return secrets


def verified(got: Got, secret: str | None) -> Any:
    return Verifier(str(secret)).verify(got.body, dict(got.headers))


def test_an_event_reaches_a_subscriber__who_verifies_it_with_the_secret_of_the_api(
    api: Api, owner: str, subscribe: Subscribe, receiver: Receiver, eventually: Eventually
) -> None:
    webhook_id = subscribe(receiver)
    secret = secrets_of(api, webhook_id)["current"]
    repo_id = create(api, owner, "caf\u00e9")

    eventually(lambda: receiver.got, within=SOON, what="the delivery arrives")

    (got,) = receiver.got
    payload = verified(got, secret)
    assert payload["type"] == "repo.created"
    assert payload["data"] == {"repo_id": repo_id, "name": "caf\u00e9", "owner_id": owner}
    assert got.headers["webhook-id"].endswith(f"_{webhook_id}")


def test_a_receiver_that_hangs_delays_no_other__and_gets_it_again_under_the_same_id(
    api: Api, owner: str, subscribe: Subscribe, receiver: Receiver, eventually: Eventually
) -> None:
    with listening(lambda visit: visit.wait()) as hanging:
        subscribe(hanging)
        subscribe(receiver)
        create(api, owner)

        eventually(lambda: receiver.got, within=SOON, what="the other one gets it")
        attempts = TIMINGS.consumer_backoff.attempts
        assert len(hanging.got) < attempts, "all attempts at the one that hangs came first"
        eventually(lambda: len(hanging.got) >= 2, within=SOON, what="the hanging one gets it again")

    assert len({got.headers["webhook-id"] for got in hanging.got}) == 1
    assert len(receiver.got) == 1


def test_a_receiver_that_is_gone_is_disabled__and_its_owner_sees_why(
    api: Api, owner: str, subscribe: Subscribe, receiver: Receiver, eventually: Eventually
) -> None:
    receiver.behave = lambda visit: visit.answer(410)
    webhook_id = subscribe(receiver)
    create(api, owner)

    def disabled() -> bool:
        return bool(api.get(f"{WEBHOOKS}/{webhook_id}").json()["status"] == "disabled")

    eventually(disabled, within=SOON, what="the webhook is disabled")
    (shown,) = api.get(f"{WEBHOOKS}?owner_id={owner}").json()["items"]
    assert shown["disabled_reason"] == "the receiver answered 410 Gone"
    assert len(receiver.got) == 1


def test_a_rotation_bothers_no_receiver__old_and_new_secret_verify__then_the_new_one_alone(
    api: Api,
    owner: str,
    subscribe: Subscribe,
    receiver: Receiver,
    secret: Secret,
    rotate: Callable[[], None],
    eventually: Eventually,
) -> None:
    webhook_id = subscribe(receiver)
    before = secrets_of(api, webhook_id)
    assert before["next"] is None
    secret.age(TIMINGS.signing_rotation)
    rotate()

    def both() -> bool:
        return secrets_of(api, webhook_id)["next"] is not None

    eventually(both, within=SOON, what="the API shows the next secret")
    during = secrets_of(api, webhook_id)
    assert during["current"] == before["current"]

    def delivered(signatures: int) -> Got:
        """Create repositories until a delivery of one of them has so many signatures."""
        earlier = len(receiver.got)

        def such() -> Got | None:
            create(api, owner)
            return next((each for each in receiver.got[earlier:] if signatures_of(each) == signatures), None)

        got: Got = eventually(such, within=SOON, every=2, what=f"a delivery has {signatures} signatures")
        return got

    got = delivered(signatures=2)
    assert verified(got, during["current"]) == verified(got, during["next"])

    secret.age(TIMINGS.signing_overlap)
    rotate()

    got = delivered(signatures=1)
    assert verified(got, during["next"])["type"] == "repo.created"
    with pytest.raises(WebhookVerificationError):
        verified(got, during["current"])


def signatures_of(got: Got) -> int:
    return len(got.headers["webhook-signature"].split(" "))


def test_a_delivery_that_dies_says_why__and_arrives_once_it_is_redriven(
    api: Api, owner: str, subscribe: Subscribe, receiver: Receiver, eventually: Eventually
) -> None:
    arrivals: list[float] = []

    def refuse(visit: Visit) -> None:
        arrivals.append(monotonic())
        visit.answer(503, b"under repair")

    receiver.behave = refuse
    webhook_id = subscribe(receiver)
    create(api, owner)

    def dead() -> Any:
        letters = mailroom("dead", "list", "--source", "webhook_deliveries")["letters"]
        return next((each for each in letters if each["id"].endswith(webhook_id)), None)

    letter = eventually(dead, within=120, every=2, what="the delivery is dead")
    host = receiver.url.removeprefix("http://")
    assert letter["failure"]["message"] == f"webhook {webhook_id} at {host} answered 503"
    assert letter["failure"]["excerpt"] == "under repair"
    backoff, gaps = TIMINGS.consumer_backoff, [later - earlier for earlier, later in pairwise(arrivals)]
    assert len(receiver.got) == backoff.attempts
    assert all(gap >= backoff.base * 2**number - 1 for number, gap in enumerate(gaps)), gaps
    shown = mailroom("dead", "show", letter["id"])
    assert shown["letters"][0]["failure"] == letter["failure"]

    receiver.behave = lambda visit: visit.answer(204)
    attempts = len(receiver.got)
    chosen = ("--source", "webhook_deliveries", "--fingerprint", letter["failure"]["fingerprint"])
    mailroom("dead", "redrive", *chosen, "--why", "it is repaired", "--yes")
    eventually(lambda: len(receiver.got) > attempts, within=SOON, what="it arrives")
    assert len({got.headers["webhook-id"] for got in receiver.got}) == 1
    eventually(lambda: dead() is None, within=SOON, every=2, what="no dead letter is left")


def mailroom(*arguments: str) -> Any:
    """Run the command as an operator does."""
    command = [str(Path(sys.executable).parent / "mailroom"), *arguments, "--stage", "local", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ), timeout=300)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout)


def test_a_url_that_leads_inside_is_refused(api: Api, owner: str) -> None:
    order = {"owner_id": owner, "url": "https://169.254.169.254/latest/", "events": ["repo.created"]}
    answer = api.post(WEBHOOKS, order, key=uuid4().hex)
    assert (answer.status, answer.json()["errors"][0]["field"]) == (400, "url")


def test_the_queues_of_the_stack_take_a_tenant_and_tell_it(runtime: Runtime) -> None:
    url = clients.sqs().create_queue(QueueName=f"tenants-{uuid4().hex[:8]}")["QueueUrl"]
    try:
        queue = SqsSource(url)
        assert queue.put([Message("a", "owner-1"), Message("b", "owner-1"), Message("c")]) == []
        records = queue.receive(10, wait=1, hidden=30)
        assert sorted((each["body"], each["attributes"].get(TENANT)) for each in records) == [
            ("a", "owner-1"),
            ("b", "owner-1"),
            ("c", None),
        ]
    finally:
        clients.sqs().delete_queue(QueueUrl=url)
