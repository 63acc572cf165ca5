"""JSON as strangers send it: what some reader along the way would misread or refuse is refused here.

Refused beyond what is no JSON (RFC 8259): a name twice in an object (section 4), NaN, Infinity and integers
beyond ±(2^53 - 1) (section 6), other numbers that no double or no DynamoDB number holds, lone surrogates
(section 8.2), control characters other than tab and line ends, and nesting beyond 32 levels.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from mailroom.outbox.event import MAX_DEPTH, MAX_INTEGER, first_unsendable

SMALLEST, LARGEST = Decimal("1e-130"), Decimal("9.99e125")
"""Magnitudes of a DynamoDB number.
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html"""


class JsonRefused(ValueError):
    """The text is not JSON that we take.

    Parameters
    ----------
    field
        Where, e.g. `tags[3].name`; empty if the text as a whole is refused.
    """

    def __init__(self, detail: str, field: str = "") -> None:
        super().__init__(detail)
        self.detail = detail
        self.field = field


def parse(text: str) -> Any:
    """Parse strict JSON.

    Raises
    ------
    JsonRefused
        If it is anything else.
    """
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer, parse_float=_float
        )
    except RecursionError:
        raise _too_deep("") from None
    except json.JSONDecodeError as error:
        raise JsonRefused(f"not JSON: {error}") from error
    _check(value, "", 1)
    return value


def canonical(value: Any) -> str:
    """Write a parsed value so that only what it says makes a difference.

    Equal are the order of names, white space, escapes and the spelling of a number, which is compared as a double
    (as in RFC 8785). Different are other strings and numbers, another order in a list, and null for a missing name.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True, slots=True)
class _Misfit:
    """Stands for a number that does not fit until `_check` comes by, who knows the path."""

    detail: str


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise JsonRefused("appears twice in one object", _shown(name))
        found[name] = value
    return found


def _constant(literal: str) -> _Misfit:
    return _Misfit(f"{literal} is no JSON number")


def _integer(literal: str) -> int | _Misfit:
    # The longest that fits has 17 characters; int() of many thousand is slow, or an error of its own.
    if len(literal) > 17 or abs(int(literal)) > MAX_INTEGER:
        return _Misfit(f"the integer {_shown(literal)} is beyond ±(2^53 - 1), where JSON readers disagree")
    return int(literal)


def _float(literal: str) -> float | _Misfit:
    if not _fits(literal):
        return _Misfit(f"the number {_shown(literal)} does not fit")
    number = float(literal)
    # JSON has one kind of number, and writers differ in how they spell it: 1.0 and 1e0 are the 1 that 1 is.
    return int(number) if number.is_integer() and abs(number) <= MAX_INTEGER else number


def _fits(literal: str) -> bool:
    try:
        number = Decimal(literal).copy_abs()
    except InvalidOperation:  # an exponent beyond even what Decimal holds
        return False
    return not number or SMALLEST <= number <= LARGEST


def _check(value: Any, path: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _too_deep(path)
    match value:
        case _Misfit():
            raise JsonRefused(value.detail, path)
        case str():
            _check_text(value, path)
        case list():
            for position, inner in enumerate(value):
                _check(inner, f"{path}[{position}]", depth + 1)
        case dict():
            for name, inner in value.items():
                _check_text(name, path)
                _check(inner, f"{path}.{_shown(name)}".lstrip("."), depth + 1)


def _check_text(text: str, path: str) -> None:
    if character := first_unsendable(text):
        raise JsonRefused(f"has the character U+{ord(character):04X}, which cannot be stored or sent", path)


def _too_deep(path: str) -> JsonRefused:
    return JsonRefused(f"nests deeper than {MAX_DEPTH} levels", path)


def _shown(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"
