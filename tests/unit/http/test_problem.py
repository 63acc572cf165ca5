"""Problems: the document of RFC 9457, and which error becomes which."""

from __future__ import annotations

import json
from random import SystemRandom

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError, ReadTimeoutError

from mailroom import telemetry
from mailroom.failures import RetryAfter
from mailroom.http import kinds
from mailroom.http.problem import FieldError, Problem, ProblemKind
from mailroom.http.problem_table import ProblemTable
from mailroom.idempotency import KeyReused, StillRunning, Superseded
from mailroom.outbox.event import EventRefused
from mailroom.outbox.limits import EventTooLarge
from mailroom.transaction import CommitConflict, TooManyItems
from mailroom.unit_of_work import RowChanged

FULL = ProblemKind(409, "shelf-full", "The shelf is full")


class ShelfFull(Exception):
    pass


class TopShelfFull(ShelfFull):
    pass


def problem_of(error: Exception) -> Problem:
    return ProblemTable({ShelfFull: FULL}).problem_of(error)


def test_a_problem_is_written_as_rfc_9457_says__with_its_fields() -> None:
    problem = Problem(FULL, "no room for b", errors=[FieldError("book", "one too many")], headers={"Allow": "GET"})

    answer = problem.answer()

    assert answer.status == 409
    assert answer.headers == {"Content-Type": "application/problem+json", "Allow": "GET"}
    assert json.loads(answer.body or "") == {
        "type": "/problems/shelf-full",
        "title": "The shelf is full",
        "status": 409,
        "detail": "no room for b",
        "errors": [{"field": "book", "detail": "one too many"}],
    }


def test_a_problem_names_its_trace__inside_one() -> None:
    with telemetry.traced(f"00-{'a' * 32}-{'b' * 16}-01", SystemRandom()):
        document = json.loads(Problem(FULL, "no room").answer().body or "")

    assert document["trace_id"] == "a" * 32


def test_every_kind_has_a_name_of_its_own__since_the_type_is_what_clients_compare() -> None:
    names = [kind.name for kind in vars(kinds).values() if isinstance(kind, ProblemKind)]

    assert len(names) == len(set(names)) > 10


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (KeyReused("x"), kinds.KEY_REUSED),
        (StillRunning("x", 2.4), kinds.STILL_RUNNING),
        (Superseded("x"), kinds.STILL_RUNNING),
        (RowChanged("x"), kinds.CONFLICT),
        (EventRefused("x"), kinds.EVENT_REFUSED),
        (EventTooLarge("x"), kinds.TOO_LARGE),
        (CommitConflict("x"), kinds.UNAVAILABLE),
        (RetryAfter(7), kinds.UNAVAILABLE),
        (ClientError({"Error": {"Code": "ThrottlingException"}}, "UpdateItem"), kinds.UNAVAILABLE),
        (ClientError({"Error": {"Code": "AccessDeniedException"}}, "UpdateItem"), kinds.UNAVAILABLE),
        (ClientError({"Error": {"Code": "ValidationException"}}, "UpdateItem"), kinds.INTERNAL),
        (ReadTimeoutError(endpoint_url="x"), kinds.UNAVAILABLE),
        (ConnectTimeoutError(endpoint_url="x"), kinds.UNAVAILABLE),
        (TooManyItems("x"), kinds.INTERNAL),
        (KeyError("x"), kinds.INTERNAL),
        (ShelfFull("x"), FULL),
        (TopShelfFull("x"), FULL),
        (Problem(FULL, "x"), FULL),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value.name,
)
def test_an_error_becomes_one_kind_of_problem__by_the_table(error: Exception, kind: ProblemKind) -> None:
    assert problem_of(error).kind is kind


@pytest.mark.parametrize(
    ("error", "seconds"),
    [(StillRunning("x", 2.4), "3"), (StillRunning("x", 0), "1"), (Superseded("x"), "1"), (RetryAfter(7), "7"),
     (CommitConflict("x"), "1")],
)  # fmt: skip
def test_the_answer_says_when_to_come_back__if_the_problem_goes_away_by_itself(error: Exception, seconds: str) -> None:
    assert problem_of(error).headers["Retry-After"] == seconds


def test_nobody_is_asked_to_come_back__if_the_same_request_can_never_succeed() -> None:
    assert "Retry-After" not in problem_of(KeyReused("x")).headers


@pytest.mark.parametrize(
    "error", [KeyError("hush"), ClientError({"Error": {"Code": "Throttling", "Message": "hush"}}, "hush")]
)
def test_the_answer_shows_no_internals__of_what_went_wrong_on_our_side(error: Exception) -> None:
    assert "hush" not in (problem_of(error).answer().body or "")


@pytest.mark.parametrize("error", [Superseded, RowChanged], ids=lambda kind: kind.__name__)
def test_callers_read_words_of_their_own__where_an_error_names_keys_and_tables(error: type[Exception]) -> None:
    class MoreSpecial(error):  # type: ignore[valid-type, misc]
        pass

    told = [problem_of(kind("outbox pending#04 01JDW")).detail for kind in (error, MoreSpecial)]

    assert told[0] == told[1]
    assert "pending" not in told[0]
