"""Routes: declared wrongly, they fail at import and not at the first request."""

from __future__ import annotations

import pytest

from mailroom.declarations import DeclarationError
from mailroom.http.api import Api
from mailroom.http.call import Call
from mailroom.http.command import Command
from mailroom.http.kinds import NOT_FOUND
from mailroom.http.problem import Problem
from mailroom.http.reply import Answer, Reply
from mailroom.http.route import Route
from mailroom.needs import Access


class Nothing(Command):
    pass


def one(call: Call, book_id: str) -> Reply:
    raise NotImplementedError


BOOK = Route("GET", "/books/{book_id}", one)


def test_a_declaration_fails__whose_function_lacks_a_placeholder() -> None:
    api = Api(access=Access())

    with pytest.raises(DeclarationError, match=r"\['page', 'book_id'\], not \['book_id'\]"):
        api.get("/pages/{page}/{book_id}")(one)


def test_a_declaration_fails__whose_function_forgets_the_command() -> None:
    def put(call: Call, book_id: str) -> Reply:
        raise NotImplementedError

    with pytest.raises(DeclarationError):
        Api(access=Access()).put("/books/{book_id}", body=Nothing)(put)  # type: ignore[arg-type]


def test_a_declared_function_is_left_as_it_is__for_its_own_tests() -> None:
    assert Api(access=Access()).get("/books/{book_id}")(one) is one


@pytest.mark.parametrize("path", ["/books/1", "/books/a%20b", "/books/" + "x" * 5_000])
def test_a_path_matches__with_anything_in_the_place_of_the_id(path: str) -> None:
    assert BOOK.matches(path)


@pytest.mark.parametrize(
    "path", ["/books", "/books/", "/books/1/", "/books/1/2", "/books/1\n/", "/Books/1", "x/books/1"]
)
def test_a_path_does_not_match__that_is_shorter_longer_or_other(path: str) -> None:
    assert not BOOK.matches(path)


@pytest.mark.parametrize("book_id", ["", "a b", "a%2Fb", "..", "a#b", "ä", "x" * 65, "1\n", "\x00"])
def test_an_id_does_not_exist__that_no_id_of_ours_looks_like(book_id: str) -> None:
    with pytest.raises(Problem) as refused:
        BOOK.check({"book_id": book_id})

    assert (refused.value.kind, refused.value.errors[0].field) == (NOT_FOUND, "book_id")


def test_an_answer_is_the_same__read_back_from_its_record() -> None:
    answer = Reply(201, Nothing(), location="/books/1", headers={"ETag": '"1"'}).answer()

    assert Answer.of_stored(answer.stored()) == answer
    assert answer.headers == {"Content-Type": "application/json", "ETag": '"1"', "Location": "/books/1"}


def test_a_reply_without_a_body_has_no_content_type__as_in_204() -> None:
    assert Reply(204).answer() == Answer(204, {}, None)
