"""The OpenAPI document: what routes declare and what the edge adds, and nothing that is neither."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from mailroom.declarations import DeclarationError
from mailroom.http.api import Api
from mailroom.http.call import Call
from mailroom.http.command import Command
from mailroom.http.openapi import About, document
from mailroom.http.problem import ProblemKind
from mailroom.http.query import Limit, Query
from mailroom.http.reply import Reply
from mailroom.http.route import Success
from mailroom.needs import Access

ABOUT = About(title="Books", version="7", description="All of them.")
EVERYWHERE = {"401", "500", "503"}


class ShelfFull(Exception):
    pass


class AddBook(Command):
    """What a book is made of."""

    title: Annotated[str, Field(max_length=9)]
    reader_id: str


class ListBooks(Query):
    limit: Limit = 7
    cursor: str | None = None


class Book(BaseModel):
    """A book."""

    id: str


class Shelf(BaseModel):
    """Books."""

    books: list[Book]


api = Api(access=Access(), problems={ShelfFull: ProblemKind(409, "shelf-full", "The shelf is full")}, owner="reader_id")


@api.post("/books", body=AddBook, success=Success(201, Book, headers=("Location",)), raises=[ShelfFull])
def add_book(command: AddBook, call: Call) -> Reply:
    """Add a book.

    It goes to the end.
    """
    raise NotImplementedError


@api.get("/books", query=ListBooks, success=Success(200, Shelf))
def list_books(query: ListBooks, call: Call) -> Reply:
    """List the books."""
    raise NotImplementedError


@api.post("/books/{book_id}/copy", body=AddBook, success=Success(201, Book), versioned=True)
def copy_book(command: AddBook, call: Call, book_id: str) -> Reply:
    """Copy a book."""
    raise NotImplementedError


@api.delete("/books/{book_id}", success=Success(204))
def drop_book(call: Call, book_id: str) -> Reply:
    """Drop a book."""
    raise NotImplementedError


@api.get("/readers/{reader_id}", success=Success(200, Book))
def show_reader(call: Call, reader_id: str) -> Reply:
    """Show a reader."""
    raise NotImplementedError


DOCUMENT = document(api, ABOUT)


def operation(method: str, path: str) -> dict[str, Any]:
    found: dict[str, Any] = DOCUMENT["paths"][path][method]
    return found


def kinds(method: str, path: str, status: str) -> list[str]:
    schema = operation(method, path)["responses"][status]["content"]["application/problem+json"]["schema"]
    return [kind.rpartition("/")[2] for kind in schema["allOf"][1]["properties"]["type"]["enum"]]


def test_a_document_says_what_the_api_is() -> None:
    assert DOCUMENT["openapi"] == "3.1.0"
    assert DOCUMENT["info"] == {"title": "Books", "version": "7", "description": "All of them."}


def test_an_operation_is_told_by_the_docstring_of_its_function() -> None:
    found = operation("post", "/books")

    assert (found["operationId"], found["summary"]) == ("add_book", "Add a book")
    assert found["description"] == "It goes to the end."


def test_models_are_written_once_and_referred_to() -> None:
    assert sorted(DOCUMENT["components"]["schemas"]) == [
        "AddBook", "Book", "FieldErrorDocument", "ProblemDocument", "Shelf",
    ]  # fmt: skip
    content = operation("post", "/books")["requestBody"]["content"]
    assert content == {"application/json": {"schema": {"$ref": "#/components/schemas/AddBook"}}}
    assert DOCUMENT["components"]["schemas"]["AddBook"]["additionalProperties"] is False


def test_a_query_is_parameters__which_are_never_null() -> None:
    limit, cursor = operation("get", "/books")["parameters"]

    assert limit["schema"] == {"type": "integer", "minimum": 1, "maximum": 100, "default": 7}
    assert cursor == {"name": "cursor", "in": "query", "required": False, "schema": {"type": "string"}}


def test_headers_are_parameters__where_the_edge_reads_them() -> None:
    def headers(method: str, path: str) -> dict[str, bool]:
        return {
            each["name"]: each["required"]
            for each in operation(method, path).get("parameters", [])
            if each["in"] == "header"
        }

    assert headers("post", "/books") == {"Idempotency-Key": True}
    assert headers("post", "/books/{book_id}/copy") == {"Idempotency-Key": True, "If-Match": False}
    assert headers("delete", "/books/{book_id}") == {"Idempotency-Key": False, "If-Match": False}
    assert headers("get", "/books") == {}


@pytest.mark.parametrize(
    ("method", "path", "statuses"),
    [
        ("post", "/books", {"201", "400", "403", "409", "413", "415", "422"}),
        ("get", "/books", {"200", "400"}),
        ("delete", "/books/{book_id}", {"204", "400", "404", "409", "412", "413", "422"}),
        ("get", "/readers/{reader_id}", {"200", "403", "404"}),
    ],
)
def test_an_operation_has_the_answers_that_can_come__and_no_others(method: str, path: str, statuses: set[str]) -> None:
    assert set(operation(method, path)["responses"]) == statuses | EVERYWHERE


def test_a_status_names_the_kinds_of_problem_behind_it() -> None:
    assert kinds("post", "/books", "409") == ["conflict", "request-in-progress", "shelf-full"]
    assert kinds("delete", "/books/{book_id}", "409") == ["conflict", "request-in-progress"]
    assert kinds("get", "/books", "400") == ["invalid-query"]


def test_an_answer_has_its_headers__those_that_it_always_has_as_required() -> None:
    responses = operation("post", "/books")["responses"]

    assert {name: each.get("required", False) for name, each in responses["201"]["headers"].items()} == {
        "Location": True,
        "Idempotent-Replayed": False,
    }
    assert "Retry-After" in responses["409"]["headers"]
    assert "headers" not in responses["422"]
    assert "content" not in operation("delete", "/books/{book_id}")["responses"]["204"]


def test_a_route_cannot_be_documented__that_does_not_say_what_it_answers() -> None:
    silent = Api(access=Access())
    silent.get("/books/{book_id}")(lambda call, book_id: Reply(200))

    with pytest.raises(DeclarationError, match=r"GET /books/\{book_id\} does not say"):
        document(silent, ABOUT)


def test_a_declaration_fails__that_raises_what_means_nothing_to_callers() -> None:
    with pytest.raises(DeclarationError, match="ShelfFull"):
        Api(access=Access()).get("/books", raises=[ShelfFull])
