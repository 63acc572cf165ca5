"""Input that is taken as it was sent."""

from __future__ import annotations

import base64
import json

import pytest

from mailroom.http.testing import ApiClient
from tests.integration.api.conftest import ORDER
from tests.unit.api.test_refusals import post, with_name


@pytest.mark.parametrize(
    "name", ["a", "a" * 100, "名前", "👩‍💻 ünïcode", "'; DROP TABLE --", "{{7*7}}", "<b>", "\u05d0\u200f!"]
)
def test_a_name_is_taken_and_shown__as_it_was_sent(client: ApiClient, name: str) -> None:
    answer = post(client, with_name(name))

    assert (answer.status, answer.json["name"]) == (201, name)


def test_a_body_in_base64_is_the_same_request__as_a_plain_one(client: ApiClient) -> None:
    plain = post(client, json.dumps(ORDER))

    encoded = base64.b64encode(json.dumps(ORDER).encode()).decode()

    assert post(client, encoded, base64_encoded=True).text == plain.text
