"""moto without the detours that took half of its time in these tests; what it answers stays the same."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from moto.core import responses
from moto.core.serialize import BaseJSONSerializer
from moto.dynamodb.parsing.ast_nodes import DepthFirstTraverser, Node


def make_quick(patch: pytest.MonkeyPatch) -> None:
    """Let moto take the short way until the patch is undone."""
    patch.setattr(BaseJSONSerializer, "_serialize_type_structure", _serialize)
    patch.setattr(DepthFirstTraverser, "traverse_node_recursively", _traverse)
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


@cache
def _is_node(kind: type) -> bool:
    return issubclass(kind, Node)


@cache
def _is_processed(by: type, kind: type) -> bool:
    classes = tuple(by._processing_map(by.__new__(by)))  # type: ignore[attr-defined]
    return issubclass(kind, classes)
