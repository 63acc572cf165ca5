"""Bodies: what is taken for a command, and what the answer says about the rest."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any

import pytest
from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEventV2

from mailroom.http.body import MAX_BODY, read_body
from mailroom.http.command import Command
from mailroom.http.kinds import INVALID_BODY, TOO_LARGE, UNSUPPORTED_MEDIA_TYPE
from mailroom.http.problem import MAX_REPORTED, Problem

JSON = {"content-type": "application/json"}
GOOD = '{"name": "ä", "count": 1}'


class Rename(Command):
    name: str
    count: int = 0
    at: datetime | None = None


def event(body: str | None = GOOD, headers: dict[str, str] | None = None, **more: Any) -> APIGatewayProxyEventV2:
    return APIGatewayProxyEventV2({"headers": JSON if headers is None else headers, "body": body, **more})


def refused(request: APIGatewayProxyEventV2) -> Problem:
    with pytest.raises(Problem) as caught:
        read_body(request, Rename)
    return caught.value


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        'application/json;charset="UTF-8"',
    ],
)
@pytest.mark.parametrize("header", ["content-type", "Content-Type", "CONTENT-TYPE"])
def test_json_is_taken__however_the_header_is_written(header: str, content_type: str) -> None:
    assert read_body(event(headers={header: content_type}), Rename).command == Rename(name="ä", count=1)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": ""},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/json-patch+json"},
        {"content-type": "application/json; charset=latin-1"},
        {"content-type": "application/json, text/plain"},
    ],
)
def test_another_media_type_is_refused__rather_than_guessed(headers: dict[str, str]) -> None:
    assert refused(event(headers=headers)).kind is UNSUPPORTED_MEDIA_TYPE


def test_a_body_in_base64_is_the_same_body__as_a_plain_one() -> None:
    encoded = base64.b64encode(GOOD.encode()).decode()

    assert read_body(event(encoded, isBase64Encoded=True), Rename) == read_body(event(), Rename)


@pytest.mark.parametrize(
    "body",
    [
        "%%%",
        "abc",
        "{}",
        "ä",
        "*" + base64.b64encode(b'{"name": "a"}').decode(),
        base64.b64encode(b'{"name": "\xff"}').decode(),
    ],
)
def test_a_body_is_refused__that_is_no_base64_or_no_utf_8_inside(body: str) -> None:
    assert refused(event(body, isBase64Encoded=True)).kind is INVALID_BODY


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (None, "body"),
        ("", "body"),
        (" \n", "body"),
        ("null", "body"),
        ("[]", "body"),
        ('"name"', "body"),
        ("1", "body"),
        ("{", "body"),
        ("\ud800", "body"),
        ("{}", "name"),
        ('{"name": 1}', "name"),
        ('{"name": null}', "name"),
        ('{"name": "a", "name": "b"}', "name"),
        ('{"name": "\\ud800"}', "name"),
        ('{"name": "a", "count": "1"}', "count"),
        ('{"name": "a", "count": 1.5}', "count"),
        ('{"name": "a", "count": true}', "count"),
        ('{"name": "a", "count": NaN}', "count"),
        ('{"name": "a", "count": 1e999}', "count"),
        ('{"name": "a", "surplus": 1}', "surplus"),
        ('{"name": "a", "__proto__": {}}', "__proto__"),
        ('{"Name": "a"}', "name"),
        ("[" * 50_000, "body"),
    ],
)
def test_a_body_is_refused_by_the_name_of_its_field__that_is_no_such_command(body: str | None, field: str) -> None:
    problem = refused(event(body))

    assert problem.kind is INVALID_BODY
    assert field in {error.field for error in problem.errors}


def test_a_body_is_taken__of_exactly_the_limit() -> None:
    body = '{"name": ""}'
    body = body.replace('""', f'"{"x" * (MAX_BODY - len(body))}"')

    assert len(read_body(event(body), Rename).command.name) == MAX_BODY - 12


@pytest.mark.parametrize("body", ["x" * (MAX_BODY + 1), "ä" * (MAX_BODY // 2 + 1), "x" * 1_000_000])
def test_a_body_is_too_large__by_its_bytes(body: str) -> None:
    assert refused(event(body)).kind is TOO_LARGE


def test_a_date_is_taken_from_its_text__since_json_has_no_dates() -> None:
    assert read_body(event('{"name": "a", "at": "2030-01-01T00:00:00Z"}'), Rename).command.at is not None


def test_the_answer_does_not_repeat_values__they_may_be_secrets() -> None:
    problem = refused(event('{"name": ["hush"], "count": "hush"}'))

    assert "hush" not in problem.answer().body  # type: ignore[operator]


def test_the_answer_stays_small__however_much_is_wrong() -> None:
    names = ",".join(f'"{"n" * 60}{number}": 0' for number in range(500))

    problem = refused(event('{"name": "a",' + names + "}"))

    assert len(problem.errors) == MAX_REPORTED
    assert "(and 499 more)" in problem.detail
