"""Rows as somebody may leave them who writes into a table by hand."""

from __future__ import annotations

from typing import Any

from mailroom import clients
from mailroom.row import Row

Typed = dict[str, Any]


def item_at(model: type[Row], *keys: str) -> Typed:
    """Return the row of a key as DynamoDB has it; empty if there is none."""
    key: Any = {name: {"S": value} for name, value in zip(model.key_names(), keys, strict=True)}
    answer = clients.dynamodb().get_item(TableName=model.table_name(), Key=key, ConsistentRead=True)
    return answer.get("Item", {})


def spoil_row(model: type[Row], *keys: str, **changes: Typed | None) -> Typed:
    """Write over attributes of a row, or take them out where None is given; return the row as it is then."""
    item = {name: typed for name, typed in item_at(model, *keys).items() if name not in changes}
    item |= {name: typed for name, typed in changes.items() if typed is not None}
    clients.dynamodb().put_item(TableName=model.table_name(), Item=item)
    return item
