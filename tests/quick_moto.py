"""moto without the detours that took half of its time in these tests; what it answers stays the same."""

from __future__ import annotations

from collections import defaultdict, deque
from copy import deepcopy
from functools import cache
from typing import Any

import pytest
from moto.core import responses
from moto.core.serialize import BaseJSONSerializer
from moto.dynamodb.comparisons import ConditionExpressionParser
from moto.dynamodb.models import DynamoDBBackend
from moto.dynamodb.models.table import Table
from moto.dynamodb.parsing.ast_nodes import DepthFirstTraverser, Expression, Node, UpdateExpressionFunction
from moto.dynamodb.parsing.expressions import UpdateExpressionParser
from moto.dynamodb.parsing.validators import ActionCountValidator, OverlappingPathsValidator
from moto.dynamodb.responses import DynamoHandler


def make_quick(patch: pytest.MonkeyPatch) -> None:
    """Let moto take the short way until the patch is undone."""
    patch.setattr(BaseJSONSerializer, "_serialize_type_structure", _serialize)
    patch.setattr(DepthFirstTraverser, "traverse_node_recursively", _traverse)
    patch.setattr(Node, "__deepcopy__", _copy_node, raising=False)
    patch.setattr(Node, "find_clauses", _find_clauses)
    # Everybody who changes a tree of an expression copies it first, so that those of one text can share it.
    patch.setattr(UpdateExpressionParser, "make", cache(UpdateExpressionParser.make))
    patch.setattr(ConditionExpressionParser, "_lex_condition_expression", _lex)
    for validator in (ActionCountValidator, OverlappingPathsValidator):
        patch.setattr(validator, "traverse", _process_root)
    patch.setattr(DynamoDBBackend, "update_item", _update_copy)
    patch.setattr(Table, "__deepcopy__", _copy_table, raising=False)
    patch.setattr(DynamoHandler, "use_raw_body", True)  # it would read each JSON body as a query string first
    for name in ("camelcase_to_underscores", "method_names_from_class"):  # of the same few operations and classes
        patch.setattr(responses, name, cache(getattr(responses, name)))


_serialize_any = BaseJSONSerializer._serialize_type_structure


def _serialize(self: Any, serialized: Any, value: Any, shape: Any, key: str) -> None:
    # It would look for each of ten possible types of the attribute, under several names; the value is as it is sent.
    if shape.name == "AttributeValue" and type(value) is dict:
        serialized[key] = value
    else:
        _serialize_any(self, serialized, value, shape, key)


def _traverse(self: Any, node: Any, child_id: int = -1) -> Any:
    # It would ask of every node whether it is one of an abstract class, ten times for each update expression.
    if not _is_node(type(node)):
        return node
    parent = node.parent
    for position, child in enumerate(node.children or ()):
        self.pre_processing_of_child(node, position)
        self.traverse_node_recursively(child, position)
    if _is_processed(type(self), type(node)):
        node = self.process(node)
        node.parent = parent
        if parent:
            parent.children[child_id] = node
    return node


def _process_root(self: Any, root: Any) -> Any:
    # What it looks for at the root is all there is; it would look again at each clause and action below.
    return self.process(root)


_lex_anew = ConditionExpressionParser._lex_condition_expression


def _lex(self: Any) -> deque[Any]:
    # It would compile six patterns for each word. The words of a text never change.
    return deque(_words(self.condition_expression))


@cache
def _words(text: str) -> tuple[Any, ...]:
    return tuple(_lex_anew(ConditionExpressionParser(text, None, None)))


def _copy_node(self: Any, memo: dict[int, Any]) -> Any:
    # It would be taken apart and built anew as for pickling, for each node of each expression.
    memo[id(self)] = copied = object.__new__(type(self))
    vars(copied).update({name: deepcopy(value, memo) for name, value in vars(self).items()})
    return copied


_update_item = DynamoDBBackend.update_item


def _update_copy(self: Any, table_name: str, key: Any, *args: Any, **kwargs: Any) -> Any:
    # It would change the item in place. Since none ever changes, who keeps a table as it was need not copy its items.
    table = self.get_table(table_name)
    within, name = _place(table, *self.get_keys_value(table, key))
    if name in within:
        within[name] = deepcopy(within[name])
    return _update_item(self, table_name, key, *args, **kwargs)


def _place(table: Any, hash_value: Any, range_value: Any) -> tuple[Any, Any]:
    return (table.items.get(hash_value, {}), range_value) if table.has_range_key else (table.items, hash_value)


def _copy_table(self: Any, _memo: dict[int, Any]) -> Any:
    # Each transaction keeps a copy of its tables, to go back to: of all that is known of them, it changes the items.
    copied = object.__new__(type(self))
    vars(copied).update(vars(self), items=copy_items(self.items))
    return copied


def copy_items(items: Any) -> Any:
    """Return the items of a table as they are now, by key or by hash and range key: what is in them never changes."""
    if not isinstance(next(iter(items.values()), None), dict):
        return items.copy()
    return defaultdict(dict, {hash_value: dict(some) for hash_value, some in items.items()})


def _find_clauses(self: Any, kinds: Any) -> list[Any]:
    # It would ask of every node whether it is one of an abstract class.
    found: list[Any] = []
    for child in self.children or ():
        if type(child) in kinds:
            found.append(child)
        elif _has_clauses(type(child)):
            found.extend(_find_clauses(child, kinds))
    return found


@cache
def _has_clauses(kind: type) -> bool:
    return issubclass(kind, Expression | UpdateExpressionFunction)


@cache
def _is_node(kind: type) -> bool:
    return issubclass(kind, Node)


@cache
def _is_processed(by: type, kind: type) -> bool:
    classes = tuple(by._processing_map(by.__new__(by)))  # type: ignore[attr-defined]
    return issubclass(kind, classes)
