"""What functions of the application return: the wrong type is a mistake in the code, which no other attempt mends.

It is seen where a function is declared, as far as its annotation tells, and else when it returns.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from mailroom.failures import Permanent

T = TypeVar("T")

_NOT_CALLED: tuple[tuple[Callable[[Any], bool], str], ...] = (
    (inspect.iscoroutinefunction, "is a coroutine function (async def), whose call does nothing"),
    (inspect.isgeneratorfunction, "is a generator function (it has a yield), whose call does nothing"),
    (inspect.isasyncgenfunction, "is a generator function (async def with a yield), whose call does nothing"),
)


class WrongReturn(Permanent):
    """A function returned what its caller cannot use; nothing that it collected was written."""


def returned(value: T, *kinds: type, by: str) -> T:
    """Return a value that is of one of these kinds.

    Parameters
    ----------
    by
        What returned it.

    Raises
    ------
    WrongReturn
        If it is not. The message does not repeat the value.
    """
    if not isinstance(value, kinds):
        raise WrongReturn(f"{by} must return {_words(kinds)}, not {_words([type(value)])}")
    return value


def flaw_of(function: Callable[..., Any], *kinds: type) -> str | None:
    """Return why a function cannot return what it must, as far as its definition tells; None if it may."""
    name = getattr(function, "__name__", type(function).__name__)
    for is_that, why in _NOT_CALLED:
        if is_that(function):
            return f"{name} must return {_words(kinds)}, and {why}"
    # A more general type may still be the right one.
    wrong = [each for each in _declared(function) if not any(issubclass(each, k) or issubclass(k, each) for k in kinds)]
    if wrong:
        return f"{name} must return {_words(kinds)}, and is declared to return {_words(wrong)}"
    return None


def _declared(function: Callable[..., Any]) -> list[type]:
    """Return the types that a function is annotated to return, as far as they can be known here."""
    try:
        hint = SimpleNamespace(__annotations__={"return": function.__annotations__["return"]})
        found = get_type_hints(hint, getattr(inspect.unwrap(function), "__globals__", {}))["return"]
    except (AttributeError, KeyError, NameError, TypeError):
        return []  # without an annotation, or of a name that only a type checker imports
    parts = get_args(found) if get_origin(found) in (Union, UnionType) else (found,)
    return [kind for part in parts if isinstance(kind := get_origin(part) or part, type) and kind is not Any]


def _words(kinds: Any) -> str:
    return " or ".join("None" if kind is NoneType else kind.__name__ for kind in kinds)
