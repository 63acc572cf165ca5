"""Webhooks over HTTP: made, shown, listed, deleted, each by its owner; and secrets at a path of their own."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from app.api import api
from app.owners import Owner
from app.settings import AppSettings
from app.webhooks import MAX_WEBHOOKS, Webhook
from mailroom.clients import Call, observed
from mailroom.http.testing import ApiAnswer, ApiClient
from mailroom.idempotency import IdempotencyRow
from mailroom.row import Row
from mailroom.runtime import Runtime
from tests.faults import failing, refused, throttled
from tests.integration.conftest import CallCounter
from tests.log_lines import Lines

from .conftest import TYPES, WEBHOOKS, Subscriber

URL = "https://hooks.example.com/in"


def fields(answer: ApiAnswer) -> list[str]:
    return [each["field"] for each in answer.json["errors"]]


def held() -> set[str]:
    return next((set(owner.webhook_urls or ()) for owner in Owner.scan(consistent_read=True)), set())


@pytest.fixture
def production(runtime: Runtime) -> Subscriber:
    """A subscriber where nothing but the public internet may be reached."""
    settings = runtime.settings.model_copy(update={"outbound_networks": "none"})
    return Subscriber(ApiClient(api, Runtime(settings, runtime.of(AppSettings), clock=runtime.clock)))


def test_a_webhook_is_made_and_shown(subscriber: Subscriber, client: ApiClient) -> None:
    answer = subscriber.post("https://Hooks.Example.com:443", "repo.renamed", "repo.created")

    assert answer.status == 201
    made = answer.json
    assert made == {
        "id": made["id"],
        "owner_id": "owner-1",
        "url": "https://hooks.example.com/",
        "events": ["repo.created", "repo.renamed"],
        "permanent_statuses": [],
        "status": "active",
        "disabled_reason": None,
        "disabled_at": None,
        "version": 1,
        "created_at": "2030-01-01T00:00:00.000Z",
    }
    assert answer.headers["Location"] == f"{WEBHOOKS}/{made['id']}"
    shown = client.get(answer.headers["Location"])
    assert (shown.json, shown.headers["ETag"]) == (made, '"1"')


def test_the_statuses_that_are_permanent_are_shown(subscriber: Subscriber) -> None:
    answer = subscriber.post(URL, permanent_statuses=[404, 400])

    assert (answer.status, answer.json["permanent_statuses"]) == (201, [400, 404])


def test_one_that_is_made_twice_under_one_key_is_one(subscriber: Subscriber) -> None:
    first, second = subscriber.post(URL, key="k"), subscriber.post(URL, key="k")

    assert (first.status, second.status, first.text) == (201, 201, second.text)
    assert len(list(Webhook.scan(consistent_read=True))) == 1


# What is no webhook


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"url": 7}, "url"),
        ({"url": None}, "url"),
        ({"url": ""}, "url"),
        ({"url": "hooks.example.com"}, "url"),
        ({"url": "ftp://hooks.example.com/"}, "url"),
        ({"url": "http://hooks.example.com/"}, "url"),
        ({"url": "http://169.254.169.254/latest/meta-data/"}, "url"),
        ({"url": "https://user:password@hooks.example.com/"}, "url"),
        ({"url": "https://hooks.example.com:22/"}, "url"),
        ({"url": "https://b\u00fccher.example/"}, "url"),
        ({"url": "https://hooks.example.com/#top"}, "url"),
        ({"url": "https://169.254.169.254/latest/meta-data/"}, "url"),
        ({"url": "https://127.0.0.1/"}, "url"),
        ({"url": "https://[::1]/"}, "url"),
        ({"url": "https://2130706433/"}, "url"),
        ({"url": "https://0x7f.1/"}, "url"),
        ({"url": "https://127.1/"}, "url"),
        ({"url": "https://[64:ff9b::7f00:1]/"}, "url"),
        ({"url": "https://[2002:7f00:1::]/"}, "url"),
        ({"url": "https://[::ffff:127.0.0.1]/"}, "url"),
        ({"url": "https://hooks.example.com./"}, "url"),
        ({"url": "https:///in"}, "url"),
        ({"url": "https://localhost/"}, "url"),
        ({"url": "https://hooks.example.com/" + "a" * 2_000}, "url"),
        ({"url": "https://hooks.example.com/\r\nX: y"}, "url"),
        ({"url": "https://hooks.example.com/\x00"}, "url"),
        ({"events": []}, "events"),
        ({"events": ["repo.created"] * 2}, "events"),
        ({"events": ["repo.created"] * 99}, "events"),
        ({"events": "repo.created"}, "events"),
        ({"events": None}, "events"),
        ({"events": ["repo.starred"]}, "events.0"),
        ({"events": ["repo.created", "*"]}, "events.1"),
        ({"events": [7]}, "events.0"),
        ({"events": ["webhook.delivery"]}, "events.0"),
        *(({"permanent_statuses": [status]}, "permanent_statuses.0") for status in (200, 399, 500, 408, 410, 425, 429)),
        ({"permanent_statuses": [404, 404]}, "permanent_statuses"),
        ({"permanent_statuses": ["404"]}, "permanent_statuses.0"),
        ({"permanent_statuses": 404}, "permanent_statuses"),
        ({"owner_id": "a b"}, "owner_id"),
        ({"secret": "whsec_mine"}, "secret"),
    ],
    ids=str,
)
def test_bad_input_is_refused_by_the_name_of_its_field__and_nothing_is_written(
    production: Subscriber, body: dict[str, Any], field: str
) -> None:
    answer = production.send({"owner_id": "owner-1", "url": URL, "events": ["repo.created"], **body})

    assert (answer.status, answer.json["type"], fields(answer)) == (400, "/problems/invalid-body", [field])
    assert [*Webhook.scan(consistent_read=True), *Owner.scan(consistent_read=True)] == []


def test_an_unknown_event_is_told_which_there_are(subscriber: Subscriber) -> None:
    detail = subscriber.post(URL, "repo.starred").json["errors"][0]["detail"]

    assert all(each in detail for each in TYPES)


def test_what_is_refused_for_its_url_says_why__and_may_be_sent_again_under_its_key(production: Subscriber) -> None:
    answer = production.post("https://127.0.0.1/in", key="k")

    assert answer.json["errors"] == [{"field": "url", "detail": "its address may not be reached: loopback"}]
    assert production.post(URL, key="k").status == 201


# How many, and which


def test_an_owner_has_one_webhook_for_a_url__until_it_is_deleted(subscriber: Subscriber, client: ApiClient) -> None:
    made = subscriber.post(URL)

    answer = subscriber.post("https://HOOKS.example.com:443/in", "repo.created")
    assert (answer.status, answer.json["type"]) == (409, "/problems/duplicate-webhook")
    assert subscriber.post(URL, owner_id="owner-2").status == 201

    assert client.delete(made.headers["Location"]).status == 204
    again = subscriber.post(URL)
    assert again.status == 201
    assert subscriber.secrets(again.json["id"]) != subscriber.secrets(made.json["id"])


def test_an_owner_has_ten_webhooks_at_most(subscriber: Subscriber, client: ApiClient) -> None:
    made = [subscriber.post(f"{URL}/{number}") for number in range(MAX_WEBHOOKS)]
    assert {answer.status for answer in made} == {201}

    answer = subscriber.post(f"{URL}/more")
    assert (answer.status, answer.json["type"]) == (409, "/problems/too-many-webhooks")
    assert len(list(Webhook.scan(consistent_read=True))) == len(held()) == MAX_WEBHOOKS

    client.delete(made[0].headers["Location"])
    assert subscriber.post(f"{URL}/more").status == 201


class Meanwhile:
    """Lets somebody else subscribe just before a commit. It is a `CallObserver`."""

    def __init__(self, act: Callable[[], ApiAnswer]) -> None:
        self.answer: list[int] = []
        self._acts = iter([act])

    def before(self, call: Call) -> None:
        if call.operation == "TransactWriteItems":
            self.answer += [act().status for act in self._acts]

    def after(self, call: Call, answer: dict[str, Any]) -> None: ...


@pytest.mark.parametrize("full", [MAX_WEBHOOKS, 1], ids=["the last place", "the same url"])
def test_of_two_at_once_for_one_place_one_gets_it(subscriber: Subscriber, full: int) -> None:
    for number in range(full - 1):
        subscriber.post(f"{URL}/{number}")

    first = Meanwhile(lambda: subscriber.post(f"{URL}/new"))
    with observed(first):
        second = subscriber.post(f"{URL}/new" if full == 1 else f"{URL}/other")

    assert (first.answer, second.status) == ([201], 409)
    assert len(list(Webhook.scan(consistent_read=True))) == len(held()) == full


def test_a_delete_is_for_a_version__where_it_says_so(subscriber: Subscriber, client: ApiClient) -> None:
    path = subscriber.post(URL).headers["Location"]

    assert client.delete(path, if_match='"2"').status == 412
    assert client.delete(path, if_match='"1"').status == 204
    assert client.delete(path).status == 404
    assert held() == set()


def test_webhooks_are_listed_page_by_page__oldest_first(subscriber: Subscriber, client: ApiClient) -> None:
    made = sorted(subscriber.post(f"{URL}/{number}").json["id"] for number in range(3))
    subscriber.post(URL, owner_id="owner-2")

    first = client.get(WEBHOOKS, query={"owner_id": "owner-1", "limit": "2"}).json
    rest = client.get(WEBHOOKS, query={"owner_id": "owner-1", "cursor": first["next_cursor"]}).json

    assert [each["id"] for each in (*first["items"], *rest["items"])] == made
    assert rest["next_cursor"] is None


@pytest.mark.parametrize("query", [{}, {"owner_id": "a b"}, {"owner_id": "owner-1", "limit": "0"}], ids=str)
def test_a_list_takes_what_lists_take(client: ApiClient, query: dict[str, str]) -> None:
    assert client.get(WEBHOOKS, query=query).status == 400


# Whose


def with_token(runtime: Runtime, owner_id: str) -> ApiClient:
    settings = runtime.settings.model_copy(update={"auth": "jwt"})
    stage = Runtime(settings, runtime.of(AppSettings), clock=runtime.clock, random=runtime.random)
    return ApiClient(api, stage, claims={"iss": "https://issuer.example", "sub": owner_id})


def test_a_webhook_is_its_owners_alone(runtime: Runtime) -> None:
    mine, other = with_token(runtime, "owner-1"), with_token(runtime, "owner-2")
    path = Subscriber(mine).post(URL).headers["Location"]

    for answer in (other.get(path), other.get(f"{path}/secret"), other.delete(path)):
        assert (answer.status, answer.json["type"]) == (404, "/problems/no-such-webhook")
    assert Subscriber(other).post(URL).status == 403
    assert other.get(WEBHOOKS, query={"owner_id": "owner-1"}).status == 403
    assert mine.get(f"{path}/secret").status == 200


@pytest.mark.parametrize("path", ["", "/secret"])
def test_what_is_not_there_is_told_apart_from_nothing(client: ApiClient, path: str) -> None:
    answer = client.get(f"{WEBHOOKS}/01JDW3NDEKTSV4RRFFQ69G5FAV{path}")

    assert (answer.status, answer.json["type"]) == (404, "/problems/no-such-webhook")


# Secrets


def test_a_secret_is_shown_at_its_path__and_kept_by_nobody(subscriber: Subscriber, client: ApiClient) -> None:
    answer = client.get(f"{WEBHOOKS}/{subscriber.post(URL).json['id']}/secret")

    assert answer.json["current"].startswith("whsec_")
    assert answer.json["next"] is None
    assert answer.headers["Cache-Control"] == "no-store"


def test_a_secret_is_in_no_row_no_log_line_and_no_other_answer(
    subscriber: Subscriber, client: ApiClient, logs: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    made = subscriber.post(URL)
    secret = str(subscriber.secrets(made.json["id"])["current"]).removeprefix("whsec_")
    shown = client.get(made.headers["Location"]).text + client.get(WEBHOOKS, query={"owner_id": "owner-1"}).text
    client.delete(made.headers["Location"])

    rows = [
        row.attribute_values for model in (IdempotencyRow, Webhook, Owner) for row in model.scan(consistent_read=True)
    ]
    written = f"{json.dumps(logs())} {rows} {shown} {made.text} {capsys.readouterr().out}"
    assert made.json["id"] in written
    assert secret not in written


def test_the_caller_is_asked_to_come_back__while_the_keys_cannot_be_read(
    subscriber: Subscriber, client: ApiClient
) -> None:
    webhook_id = subscriber.post(URL).json["id"]
    with failing("GetSecretValue", refused("AccessDeniedException"), times=9):
        answer = client.get(f"{WEBHOOKS}/{webhook_id}/secret")

    assert (answer.status, answer.headers["Retry-After"]) == (503, "1")


def test_nothing_is_written__when_the_commit_is_refused(subscriber: Subscriber) -> None:
    with failing("TransactWriteItems", throttled, times=99):
        assert subscriber.post(URL).status == 503
    assert [*Webhook.scan(consistent_read=True), *Owner.scan(consistent_read=True)] == []


def test_a_subscription_is_one_transaction__of_webhook_owner_and_record(
    subscriber: Subscriber, calls: CallCounter
) -> None:
    subscriber.post(URL)

    (commit,) = [call for call in calls.calls if call.operation == "TransactWriteItems"]
    tables = [next(iter(each.values()))["TableName"] for each in commit.parameters["TransactItems"]]
    assert sorted(tables) == sorted(Row.tables[name].table_name() for name in ("webhooks", "owners", "idempotency"))
