"""Queries: what a route declares, and nothing besides."""

from __future__ import annotations

from typing import Literal

import pytest
from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEventV2

from mailroom.declarations import DeclarationError
from mailroom.http.api import Api
from mailroom.http.call import Call
from mailroom.http.kinds import INVALID_QUERY
from mailroom.http.problem import Problem
from mailroom.http.query import Limit, Query, read_query
from mailroom.http.reply import Reply
from mailroom.needs import Access


class ListBooks(Query):
    shelf: Literal["new", "old"]
    limit: Limit = 20
    cursor: str | None = None


def read(**parameters: str) -> ListBooks:
    return read_query(APIGatewayProxyEventV2({"queryStringParameters": parameters}), ListBooks)


def test_what_is_not_sent_is_the_default() -> None:
    assert read(shelf="new") == ListBooks(shelf="new", limit=20, cursor=None)


def test_a_route_without_parameters_takes_an_event_without_any() -> None:
    assert read_query(APIGatewayProxyEventV2({}), Query) == Query()


@pytest.mark.parametrize("limit", ["1", "99", "100"])
def test_a_limit_is_1_to_100(limit: str) -> None:
    assert read(shelf="new", limit=limit).limit == int(limit)


@pytest.mark.parametrize(
    "limit",
    ["0", "101", "-1", "+1", "05", "1.0", "1e1", "1_0", " 1", "1\n", "", "ten", "5,6", "\u0665", "9" * 5_000],
    ids=lambda limit: limit[:8],
)
def test_a_limit_is_refused__that_is_no_plain_number_within(limit: str) -> None:
    with pytest.raises(Problem) as caught:
        read(shelf="new", limit=limit)
    assert caught.value.kind == INVALID_QUERY
    assert [error.field for error in caught.value.errors] == ["limit"]


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({}, "shelf"),
        ({"shelf": "any"}, "shelf"),
        ({"shelf": "new,old"}, "shelf"),
        ({"shelf": "new", "lmit": "5"}, "lmit"),
    ],
    ids=str,
)
def test_a_problem_names_the_parameter(parameters: dict[str, str], field: str) -> None:
    with pytest.raises(Problem) as caught:
        read(**parameters)
    assert [error.field for error in caught.value.errors] == [field]


def test_a_declaration_fails__whose_function_forgets_the_query() -> None:
    def list_books(call: Call) -> Reply:
        raise NotImplementedError

    with pytest.raises(DeclarationError):
        Api(access=Access()).get("/books/{book_id}", query=ListBooks)(list_books)  # type: ignore[arg-type]
