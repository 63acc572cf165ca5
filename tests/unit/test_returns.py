"""Returns: a function that returns what nobody can use is refused where it is declared, as far as that tells."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from pydantic import BaseModel

from app.events import RepoCreated
from mailroom.consumer import consumer
from mailroom.declarations import DeclarationError
from mailroom.failures import Permanent
from mailroom.http.call import Call
from mailroom.http.reply import Reply
from mailroom.http.route import Route
from mailroom.job import job
from mailroom.returns import WrongReturn, returned
from mailroom.saga import Step, saga
from mailroom.schedule import Every

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]


class Data(BaseModel):
    """What a saga works on."""


class Other(BaseModel):
    """Something else."""


async def coroutine(*_: Any) -> None: ...


def generator(*_: Any) -> Iterator[None]:
    yield


async def stream(*_: Any) -> AsyncIterator[None]:
    yield


def true(*_: Any) -> bool:
    return True


def other(*_: Any) -> Other:
    return Other()


def data_or_bool(*_: Any) -> Data | bool:
    return True


def listed(*_: Any) -> list[Data]:
    return []


def nothing(*_: Any) -> None: ...


def data(*_: Any) -> Data:
    return Data()


def data_or_nothing(*_: Any) -> Data | None:
    return None


def never(*_: Any) -> NoReturn:
    raise Permanent("never")


def anything(*_: Any) -> Any: ...


def unknown(*_: Any) -> Unknown: ...


def untold(*_):  # type: ignore[no-untyped-def]
    ...


NOT_CALLED = [coroutine, generator, stream]


def consume(function: Callable[..., Any]) -> None:
    consumer(on=RepoCreated)(function)


def schedule(function: Callable[..., Any]) -> None:
    job(schedule=Every(hours=1))(function)


def step(function: Callable[..., Any]) -> None:
    saga("trip", data=Data, steps=[Step(function)])


def undo(function: Callable[..., Any]) -> None:
    saga("trip", data=Data, steps=[Step(nothing, function)])


def give_up(function: Callable[..., Any]) -> None:
    @consumer(on=RepoCreated, gives_up=function)
    def giving_up(event: RepoCreated, work: object) -> None: ...


def route(function: Callable[..., Any]) -> None:
    def routed(call: Call) -> None: ...

    routed.__annotations__ = dict(function.__annotations__)
    Route("GET", "/things", function if function in NOT_CALLED else routed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("declare", "function", "wanted"),
    [
        *((consume, each, "None") for each in (*NOT_CALLED, true, data)),
        *((schedule, each, "None") for each in (*NOT_CALLED, true)),
        *((step, each, "None or Data") for each in (*NOT_CALLED, true, other, data_or_bool, listed)),
        *((undo, each, "None or Data") for each in (*NOT_CALLED, true, other)),
        *((give_up, each, "bool") for each in (*NOT_CALLED, nothing, data)),
        *((route, each, "Reply") for each in (nothing, other)),
    ],
)
def test_a_function_whose_annotation_is_wrong_is_refused_where_it_is_declared(
    declare: Callable[[Callable[..., Any]], None], function: Callable[..., Any], wanted: str
) -> None:
    with pytest.raises(DeclarationError, match=rf"must return {wanted}\b"):
        declare(function)


@pytest.mark.parametrize("declare", [consume, schedule, step, undo])
@pytest.mark.parametrize("function", [nothing, never, anything, unknown, untold])
def test_what_may_be_right_is_declared(
    declare: Callable[[Callable[..., Any]], None], function: Callable[..., Any]
) -> None:
    declare(function)


@pytest.mark.parametrize("function", [data, data_or_nothing])
def test_a_step_may_return_the_sagas_data(function: Callable[..., Any]) -> None:
    step(function)


def test_the_refusal_names_the_saga_the_step_and_what_it_returns() -> None:
    with pytest.raises(DeclarationError) as refused:
        step(true)
    assert str(refused.value) == "the saga trip: true must return None or Data, and is declared to return bool"


def test_what_is_returned_after_all_is_a_permanent_failure__that_says_what_was_wanted() -> None:
    assert returned(None, type(None), Data, by="it") is None
    with pytest.raises(WrongReturn, match=r"^it must return None or Data, not bool$"):
        returned(True, type(None), Data, by="it")
    assert issubclass(WrongReturn, Permanent)


@pytest.mark.parametrize("declare", [consume, schedule])
def test_a_declaration_that_is_called_returns_nothing__or_says_so(declare: Callable[..., None]) -> None:
    made = consumer(on=RepoCreated)(untold) if declare is consume else job(schedule=Every(hours=1))(untold)
    made()

    def wrong(*_):  # type: ignore[no-untyped-def]
        return False

    of_wrong = consumer(on=RepoCreated)(wrong) if declare is consume else job(schedule=Every(hours=1))(wrong)
    with pytest.raises(WrongReturn, match="wrong must return None, not bool"):
        of_wrong()


def test_the_body_of_a_reply_is_a_model() -> None:
    with pytest.raises(WrongReturn, match="the body of a Reply must be a pydantic model or None, not dict"):
        Reply(200, {"id": "1"}).answer()  # type: ignore[arg-type]
