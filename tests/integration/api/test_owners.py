"""Owners over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mailroom.http.testing import ApiClient
from tests.integration.api.conftest import ORDER, REPOS, Rows
from tests.integration.conftest import CallCounter

OWNER = "/api/v1/owners/owner-1"
GOOD = {"email": "owner@example.com", "repo_quota": 7}


def test_an_owner_has_the_defaults__whom_nobody_ever_set(client: ApiClient) -> None:
    answer = client.get(OWNER)

    assert (answer.status, answer.json) == (
        200,
        {"id": "owner-1", "email": None, "email_confirmed": False, "repo_quota": 100},
    )


def test_an_owner_is_shown__as_it_was_set(client: ApiClient, calls: CallCounter) -> None:
    put = client.put(OWNER, GOOD)

    assert calls.counts == {"GetItem": 1, "TransactWriteItems": 1}
    assert (put.status, put.json) == (200, {"id": "owner-1", "email_confirmed": False, **GOOD})
    assert client.get(OWNER).text == put.text


def test_an_e_mail_is_gone__once_set_to_null(client: ApiClient, rows: Rows) -> None:
    client.put(OWNER, GOOD)

    client.put(OWNER, {**GOOD, "email": None})

    assert client.get(OWNER).json["email"] is None
    assert "email" not in rows("owners")[0]


def test_the_count_of_repositories_stays__when_an_owner_is_set(client: ApiClient, rows: Rows) -> None:
    client.post(REPOS, ORDER, key="k")

    client.put(OWNER, GOOD)

    (row,) = rows("owners")
    known = {name: value for name, value in row.items() if name not in ("email_change", "email_asked_at")}
    assert known == {"id": "owner-1", "repo_count": "1", "repo_quota": "7", "email": "owner@example.com"}


@pytest.mark.parametrize("quota", [0, 1_000_000])
def test_a_quota_is_taken__at_its_ends(client: ApiClient, quota: int) -> None:
    assert client.put(OWNER, {**GOOD, "repo_quota": quota}).status == 200


@pytest.mark.parametrize("quota", [-1, 1_000_001, 2**53, 10**40, 1.5, 1e300, "7", None, True, [7]])
def test_a_quota_is_refused__that_is_no_number_in_range(client: ApiClient, calls: CallCounter, quota: Any) -> None:
    answer = client.put(OWNER, {**GOOD, "repo_quota": quota})

    assert (answer.status, answer.json["errors"][0]["field"]) == (400, "repo_quota")
    assert not calls.calls


@pytest.mark.parametrize(
    "email",
    [
        "a@b.example",
        "first.last+tag@sub.example.com",
        "o'neil_=-@example.com",
        "x" * 64 + "@example.com",
        "a@xn--bcher-kva.xn--p1ai",
        "a@1.example",
        "x" * 63 + "@" + ".".join(["d" * 60] * 3) + ".example",
    ],
)
def test_an_e_mail_is_taken__that_mail_can_be_sent_to(client: ApiClient, email: str) -> None:
    assert client.put(OWNER, {**GOOD, "email": email}).status == 200


@pytest.mark.parametrize(
    "email",
    [
        "",
        "owner",
        "@example.com",
        "owner@",
        "owner@localhost",
        "owner@@example.com",
        "owner@example..com",
        "owner@-example.com",
        "owner@example.com\n",
        "owner@example.com\r\nBcc: other@example.com",
        "a@example.com,b@example.com",
        "<owner@example.com>",
        "owner name@example.com",
        "öwner@example.com",
        "x" * 65 + "@example.com",
        "a..b@example.com",
        ".a@example.com",
        "a.@example.com",
        "a@192.0.2.1",
        "a@[192.0.2.1]",
        '"a b"@example.com',
        "x@" + ".".join(["d" * 60] * 5) + ".example",
        7,
        [],
    ],
)
def test_an_e_mail_is_refused__that_is_none_or_more_than_one(client: ApiClient, email: Any) -> None:
    answer = client.put(OWNER, {**GOOD, "email": email})

    assert (answer.status, answer.json["errors"][0]["field"]) == (400, "email")


@pytest.mark.parametrize("missing", ["email", "repo_quota"])
def test_an_owner_is_set_as_a_whole__so_no_field_may_be_missing(client: ApiClient, missing: str) -> None:
    answer = client.put(OWNER, {name: value for name, value in GOOD.items() if name != missing})

    assert (answer.status, answer.json["errors"][0]["field"]) == (400, missing)


def test_a_put_needs_no_key__since_it_may_be_repeated(client: ApiClient) -> None:
    bodies = [client.put(OWNER, GOOD).text for _ in range(2)]

    assert json.loads(bodies[0]) == json.loads(bodies[1])
