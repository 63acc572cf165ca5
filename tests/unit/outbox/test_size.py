"""The size of an item, as DynamoDB counts it."""

from __future__ import annotations

import pytest

from mailroom.outbox.room import size_of
from mailroom.row import Item


@pytest.mark.parametrize(
    ("item", "size"),
    [
        ({}, 0),
        ({"a": {"S": "text"}}, 5),
        ({"é": {"S": "ü€"}}, 2 + 2 + 3),
        ({"a": {"N": "12"}}, 3),
        ({"a": {"BOOL": True}}, 2),
        ({"a": {"NULL": True}, "bc": {"S": "d"}}, 2 + 3),
    ],
)
def test_the_size_of_an_item_is_that_of_its_names_and_values_in_utf8(item: Item, size: int) -> None:
    assert size_of(item) == size
