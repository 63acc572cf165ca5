"""Attributes of rows for moments: PynamoDB's own take a naive one for UTC, or refuse it without naming it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from pynamodb import attributes

from mailroom.clock import aware


class TTLAttribute(attributes.TTLAttribute):
    """The moment at which DynamoDB may delete a row, in whole seconds.

    Raises
    ------
    NaiveMoment
        When it is given a moment without a time zone.
    """

    def _normalize(self, value: datetime | timedelta | None) -> Any:
        checked = aware(value, f"the expiry {self.attr_name!r}") if isinstance(value, datetime) else value
        return super()._normalize(checked)  # type: ignore[no-untyped-call]


class UTCDateTimeAttribute(attributes.UTCDateTimeAttribute):
    """A moment, in microseconds.

    Raises
    ------
    NaiveMoment
        When one without a time zone is written.
    """

    def serialize(self, value: datetime) -> Any:
        """Write a moment as DynamoDB stores it."""
        return super().serialize(aware(value, f"the moment {self.attr_name!r}"))  # type: ignore[no-untyped-call]


_INSTEAD = {attributes.TTLAttribute: TTLAttribute, attributes.UTCDateTimeAttribute: UTCDateTimeAttribute}


def check_moments(model: type[object]) -> None:
    """Refuse a model with attributes that would take moments without a time zone.

    Raises
    ------
    TypeError
        If it has one; the message says what to write.
    """
    for name, attribute in vars(model).items():
        if type(attribute) in _INSTEAD:
            kind = type(attribute).__name__
            raise TypeError(f"{model.__name__}.{name}: take {kind} from mailroom.attributes: it refuses naive moments")
