"""Attributes that know what they hold: a text that is none of it is found when the row is read, and named."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any

from pynamodb.attributes import NumberAttribute, UnicodeAttribute

from mailroom.clock import NaiveMoment, moment
from mailroom.failures import Failure


class Flaw(ValueError):
    """What is wrong with a value, said without repeating it: it may be a payload."""


class MomentAttribute(UnicodeAttribute):
    """A moment as `timestamp` writes it."""

    def deserialize(self, value: str) -> str:
        """Return the text.

        Raises
        ------
        Flaw
            If it is no moment, or says no offset from UTC.
        """
        try:
            moment(value)
        except NaiveMoment:
            raise Flaw("is a moment without an offset from UTC") from None
        except ValueError:
            raise Flaw("is no moment") from None
        return value


class CountAttribute(NumberAttribute):
    """A number of times: 0 or more, and whole."""

    def deserialize(self, value: str) -> int:
        """Return the number.

        Raises
        ------
        Flaw
            If it is negative, or not whole.
        """
        if not value.isdecimal():
            raise Flaw("is no count")
        return int(value)


class JsonAttribute(UnicodeAttribute):
    """A text in JSON."""

    def deserialize(self, value: str) -> str:
        """Return the text.

        Raises
        ------
        Flaw
            If it is no JSON.
        """
        read_json(value)
        return value


class ObjectAttribute(UnicodeAttribute):
    """A JSON object."""

    def deserialize(self, value: str) -> str:
        """Return the text.

        Raises
        ------
        Flaw
            If it is no JSON, or another value.
        """
        if not isinstance(read_json(value), dict):
            raise Flaw("is no JSON object")
        return value


class ChoiceAttribute(UnicodeAttribute):
    """One of an enumeration's values."""

    def __init__(self, kind: type[StrEnum], *, null: bool = False) -> None:
        super().__init__(null=null)
        self._kind = kind

    def deserialize(self, value: str) -> str:
        """Return the text.

        Raises
        ------
        Flaw
            If it is none of the values.
        """
        if value not in set(self._kind):
            raise Flaw(f"is none of {', '.join(self._kind)}")
        return value


class FailureAttribute(UnicodeAttribute):
    """A failure as `Failure.to_json` writes it."""

    def deserialize(self, value: str) -> str:
        """Return the text.

        Raises
        ------
        Flaw
            If no failure can be read from it.
        """
        try:
            Failure.from_json(value)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            raise Flaw("is no failure") from None
        return value


def read_json(value: str) -> Any:
    """Return what a JSON text says.

    Raises
    ------
    Flaw
        If it is no JSON.
    """
    try:
        return json.loads(value, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise Flaw("is no JSON") from None


def _refuse(constant: str) -> None:
    raise ValueError(constant)
