"""Bad input: always a problem that names the field, never a 500, and refused before anything is asked of AWS."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from mailroom.http.testing import ApiAnswer, ApiClient
from tests.integration.api.conftest import ORDER, REPOS


def with_name(name: Any) -> str:
    return json.dumps({**ORDER, "name": name})


def with_owner(owner_id: Any) -> str:
    return json.dumps({**ORDER, "owner_id": owner_id})


def post(client: ApiClient, body: str | None, **more: Any) -> ApiAnswer:
    return client.send("POST", REPOS, body, {"content-type": "application/json", "idempotency-key": "k"}, **more)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (None, "body"),
        ("", "body"),
        ("{", "body"),
        ("name=a&owner_id=owner-1", "body"),
        ("null", "body"),
        ("[]", "body"),
        (json.dumps([ORDER]), "body"),
        (json.dumps(json.dumps(ORDER)), "body"),
        ("{}", "name"),
        ('{"name": "a"}', "owner_id"),
        ('{"name": "a", "owner_id": "owner-1", "id": "1"}', "id"),
        ('{"name": "a", "name": "b", "owner_id": "owner-1"}', "name"),
        ('{"name": NaN, "owner_id": "owner-1"}', "name"),
        ('{"name": Infinity, "owner_id": "owner-1"}', "name"),
        ('{"name": 1e999, "owner_id": "owner-1"}', "name"),
        ('{"name": ' + "9" * 10_000 + ', "owner_id": "owner-1"}', "name"),
        ('{"name": "\\ud800", "owner_id": "owner-1"}', "name"),
        ("[" * 60_000, "body"),
        ('{"name":' * 8_000, "body"),
        (with_name(1), "name"),
        (with_name(None), "name"),
        (with_name(["a"]), "name"),
        (with_name({"$gt": ""}), "name"),
        (with_name(""), "name"),
        (with_name("   "), "name"),
        (with_name("a" * 101), "name"),
        (with_name("a" * 10_000), "name"),
        (with_name("\u200b\u2060"), "name"),
        (with_name("\u3164"), "name"),
        (with_name("\u0301\u200d"), "name"),
        (with_name("\u200f"), "name"),
        (with_name("docs\u202egpj"), "name"),
        (with_name("\u2066docs\u2069"), "name"),
        (with_name("two\nlines"), "name"),
        (with_name("a\tb"), "name"),
        (with_name("a\x00b"), "name"),
        (with_name("a\x1bb"), "name"),
        (with_name("a\x7fb"), "name"),
        (with_name("a\x9bb"), "name"),
        (with_name("a\u2028b"), "name"),
        (with_name("a\ufffeb"), "name"),
        (with_owner(""), "owner_id"),
        (with_owner("a b"), "owner_id"),
        (with_owner("owner#1"), "owner_id"),
        (with_owner("owner/1"), "owner_id"),
        (with_owner("owner-1\n"), "owner_id"),
        (with_owner("öwner"), "owner_id"),
        (with_owner("o" * 65), "owner_id"),
        (with_owner(7), "owner_id"),
    ],
)
def test_bad_input_is_refused_by_the_name_of_its_field__without_asking_aws(
    client: ApiClient, body: str | None, field: str
) -> None:
    answer = post(client, body)

    assert (answer.status, answer.json["type"]) == (400, "/problems/invalid-body")
    assert field in {error["field"] for error in answer.json["errors"]}
    assert answer.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("body", [with_name("a" * 1_000_000), " " * 65_537, "[" * 1_000_000])
def test_a_body_is_refused__that_is_larger_than_any_command(client: ApiClient, body: str) -> None:
    answer = post(client, body)

    assert (answer.status, answer.json["type"]) == (413, "/problems/too-large")


@pytest.mark.parametrize("body", ["{", "é", "%%%%", base64.b64encode(b"\xff\xfe{}").decode()])
def test_a_body_is_refused__that_says_base64_and_is_not(client: ApiClient, body: str) -> None:
    assert post(client, body, base64_encoded=True).status == 400


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/x-www-form-urlencoded", "application/xml"])
def test_another_media_type_is_refused__even_if_the_body_is_json(client: ApiClient, content_type: str) -> None:
    headers = {"content-type": content_type, "idempotency-key": "k"}

    assert client.send("POST", REPOS, json.dumps(ORDER), headers).status == 415


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate, identity"])
def test_a_compressed_body_is_refused__and_the_answer_says_what_is_taken(client: ApiClient, encoding: str) -> None:
    headers = {"content-type": "application/json", "idempotency-key": "k", "content-encoding": encoding}
    answer = client.send("POST", REPOS, json.dumps(ORDER), headers)

    assert (answer.status, answer.headers["Accept-Encoding"]) == (415, "identity")


def test_what_is_wrong_is_said_in_our_own_words(client: ApiClient) -> None:
    answer = post(client, with_name("\u200b"))

    assert answer.json["detail"] == "name: nothing in it can be seen"
    assert answer.json["errors"] == [{"field": "name", "detail": "nothing in it can be seen"}]


@pytest.mark.parametrize("owner_id", ["a b", "x" * 65, "a%23b", "ä", "..", "a#b"])
def test_an_owner_is_not_set__under_an_id_that_none_can_have(client: ApiClient, owner_id: str) -> None:
    answer = client.put(f"/api/v1/owners/{owner_id}", {"email": None, "repo_quota": 1})

    assert answer.status == 404
