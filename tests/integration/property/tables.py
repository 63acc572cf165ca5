"""DynamoDB in memory: as much of it as the machinery calls, a hundred times as fast as moto.

It keeps the same contract (see `test_tables.py`), and two of AWS's habits that moto lacks: a transaction's
`ClientRequestToken` counts, and a page that is exactly full has a cursor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from typing import Any

from botocore.exceptions import ClientError

Item = dict[str, Any]
Key = tuple[str, ...]
Watcher = Callable[[str, Item | None, Item | None], None]
"""Is told of each write: the table, the row before and after it."""

MAX_WRITES, MAX_READS = 25, 100


@dataclass
class Scope:
    """What an expression is evaluated against."""

    item: Mapping[str, Any]
    names: Mapping[str, str]
    values: Mapping[str, Any]

    def name(self, word: str) -> str:
        """Answer the attribute that a word names."""
        return self.names[word] if word.startswith("#") else word


Evaluate = Callable[[Scope], Any]


class Tables:
    """Tables by name, and the operations on them.

    Parameters
    ----------
    keys
        The key attributes of each table; all of them are strings.
    """

    def __init__(self, keys: Mapping[str, Key], watcher: Watcher = lambda table, old, new: None) -> None:
        self.rows: dict[str, dict[Key, Item]] = {table: {} for table in keys}
        self._keys = keys
        self._watcher = watcher
        self._tokens: set[str] = set()

    def perform(self, operation: str, asked: Mapping[str, Any]) -> Item:
        """Do what an AWS call asks for.

        Raises
        ------
        ClientError
            As DynamoDB's.
        """
        answer = _OPERATIONS[operation](self, asked)
        # One unit a call is not what DynamoDB counts: here it is enough that there is a count.
        return {**answer, "ConsumedCapacity": {"CapacityUnits": 1.0}} if "ReturnConsumedCapacity" in asked else answer

    def item(self, table: str, *key: str) -> Item | None:
        """Answer a row."""
        return self.rows[table].get(key)

    def get(self, asked: Mapping[str, Any]) -> Item:
        found = self.item(asked["TableName"], *self._key(asked["TableName"], asked["Key"]))
        return {} if found is None else {"Item": dict(found)}

    def query(self, asked: Mapping[str, Any]) -> Item:
        return self._page(asked, asked["KeyConditionExpression"])

    def scan(self, asked: Mapping[str, Any]) -> Item:
        return self._page(asked, None)

    def _page(self, asked: Mapping[str, Any], condition: str | None) -> Item:
        table = asked["TableName"]
        start = self._key(table, asked["ExclusiveStartKey"]) if "ExclusiveStartKey" in asked else ()
        rows = sorted((key, item) for key, item in self.rows[table].items() if key > start)
        if condition is not None:
            rows = [(key, item) for key, item in rows if _holds(condition, item, asked)]
        limit = asked.get("Limit", len(rows) + 1)
        page = [item for _, item in rows[:limit]]
        items = [dict(item) for item in page if _holds(asked.get("FilterExpression"), item, asked)]
        answer: Item = {"Items": items, "Count": len(items), "ScannedCount": len(page)}
        if page and len(page) == limit:
            answer["LastEvaluatedKey"] = {name: page[-1][name] for name in self._keys[table]}
        return answer

    def put(self, asked: Mapping[str, Any]) -> Item:
        return self._write_one(asked, lambda _: dict(asked["Item"]), asked["Item"])

    def delete(self, asked: Mapping[str, Any]) -> Item:
        return self._write_one(asked, lambda _: None, asked["Key"])

    def update(self, asked: Mapping[str, Any]) -> Item:
        return self._write_one(asked, lambda old: _updated(old, asked), asked["Key"])

    def _write_one(self, asked: Mapping[str, Any], change: Callable[[Item | None], Item | None], key: Item) -> Item:
        table = asked["TableName"]
        old = self.item(table, *self._key(table, key))
        if not _holds(asked.get("ConditionExpression"), old or {}, asked):
            shown: Item = {"Item": old} if old and asked.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD" else {}
            raise error("ConditionalCheckFailedException", "The conditional request failed", **shown)
        new = change(old)
        self._store(table, self._key(table, key), new)
        wanted = {"ALL_OLD": old, "ALL_NEW": new}.get(asked.get("ReturnValues", "NONE"))
        return {"Attributes": dict(wanted)} if wanted else {}

    def batch_get(self, asked: Mapping[str, Any]) -> Item:
        if sum(len(request["Keys"]) for request in asked["RequestItems"].values()) > MAX_READS:
            raise error("ValidationException", "Too many items requested for the BatchGetItem call")
        answers = {}
        for table, request in asked["RequestItems"].items():
            found = (self.item(table, *self._key(table, key)) for key in request["Keys"])
            answers[table] = [_projected(item, request) for item in found if item is not None]
        return {"Responses": answers, "UnprocessedKeys": {}}

    def batch_write(self, asked: Mapping[str, Any]) -> Item:
        if sum(map(len, asked["RequestItems"].values())) > MAX_WRITES:
            raise error("ValidationException", "Too many items requested for the BatchWriteItem call")
        for table, requests in asked["RequestItems"].items():
            for request in requests:
                if "PutRequest" in request:
                    self.put({"TableName": table, **request["PutRequest"]})
                else:
                    self.delete({"TableName": table, **request["DeleteRequest"]})
        return {"UnprocessedItems": {}}

    def transact_write(self, asked: Mapping[str, Any]) -> Item:
        token = asked.get("ClientRequestToken")
        if token in self._tokens:
            return {}
        operations = [next(iter(operation.items())) for operation in asked["TransactItems"]]
        reasons = [self._reason(request) for _, request in operations]
        if any(reason["Code"] != "None" for reason in reasons):
            raise canceled(reasons)
        for kind, request in operations:
            if kind != "ConditionCheck":
                _OPERATIONS[f"{kind}Item"](self, {**request, "ConditionExpression": None})
        if token is not None:
            self._tokens.add(token)
        return {}

    def _reason(self, request: Mapping[str, Any]) -> Item:
        table = request["TableName"]
        old = self.item(table, *self._key(table, request.get("Key") or request["Item"]))
        if _holds(request.get("ConditionExpression"), old or {}, request):
            return {"Code": "None"}
        return {"Code": "ConditionalCheckFailed", "Message": "The conditional request failed"}

    def _key(self, table: str, item: Mapping[str, Any]) -> Key:
        return tuple(item[name]["S"] for name in self._keys[table])

    def _store(self, table: str, key: Key, new: Item | None) -> None:
        old = self.rows[table].pop(key, None)
        if new is not None:
            self.rows[table][key] = new
        if old is not None or new is not None:
            self._watcher(table, old, new)


_OPERATIONS: dict[str, Callable[[Tables, Mapping[str, Any]], Item]] = {
    "GetItem": Tables.get,
    "Query": Tables.query,
    "Scan": Tables.scan,
    "PutItem": Tables.put,
    "DeleteItem": Tables.delete,
    "UpdateItem": Tables.update,
    "BatchGetItem": Tables.batch_get,
    "BatchWriteItem": Tables.batch_write,
    "TransactWriteItems": Tables.transact_write,
}


def error(code: str, message: str = "injected", operation: str = "DynamoDB", **more: Any) -> ClientError:
    """Make DynamoDB's error."""
    response: Any = {"Error": {"Code": code, "Message": message}, **more}
    return ClientError(response, operation)


def canceled(reasons: Sequence[Item]) -> ClientError:
    """Make the error of a transaction that was not written."""
    codes = ", ".join(reason["Code"] for reason in reasons)
    message = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]"
    return error("TransactionCanceledException", message, CancellationReasons=list(reasons))


def _projected(item: Item, request: Mapping[str, Any]) -> Item:
    if "ProjectionExpression" not in request:
        return dict(item)
    scope = Scope(item, request.get("ExpressionAttributeNames", {}), {})
    names = [scope.name(word.strip()) for word in request["ProjectionExpression"].split(",")]
    return {name: item[name] for name in names if name in item}


def _holds(condition: str | None, item: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    return condition is None or bool(_condition(condition)(_scope(item, asked)))


def _scope(item: Mapping[str, Any], asked: Mapping[str, Any]) -> Scope:
    return Scope(item, asked.get("ExpressionAttributeNames") or {}, asked.get("ExpressionAttributeValues") or {})


def _updated(old: Item | None, asked: Mapping[str, Any]) -> Item:
    scope, changed = _scope(old or {}, asked), dict(old or asked["Key"])
    for name, evaluate in _update(asked["UpdateExpression"]):
        value = evaluate(scope)
        if value is None:
            changed.pop(scope.name(name), None)
        else:
            changed[scope.name(name)] = value
    return changed


# Expressions: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Expressions.html

_TOKEN = re.compile(r"[#:]?[A-Za-z0-9_]+|<=|>=|<>|[=<>(),+-]")
_CLAUSES = ("SET", "REMOVE", "ADD")
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda left, right: left == right,
    "<>": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


@dataclass
class Words:
    """The words of an expression, read one after the other."""

    words: list[str]
    at: int = field(default=0)

    def peek(self) -> str:
        """Answer the next word, empty at the end."""
        return self.words[self.at] if self.at < len(self.words) else ""

    def take(self, expected: str | None = None) -> str:
        """Answer the next word and go on."""
        word = self.peek()
        if not word or expected not in (None, word):
            raise error("ValidationException", f"expected {expected or 'more'} at {word!r} in {' '.join(self.words)}")
        self.at += 1
        return word


@cache
def _condition(text: str) -> Evaluate:
    words = Words(_TOKEN.findall(text))
    condition = _any(words)
    if words.peek():
        raise error("ValidationException", f"{words.peek()!r} is left over in {text}")
    return condition


def _any(words: Words) -> Evaluate:
    parts = [_all(words)]
    while words.peek() == "OR":
        words.take()
        parts.append(_all(words))
    return parts[0] if len(parts) == 1 else lambda scope: any(part(scope) for part in parts)


def _all(words: Words) -> Evaluate:
    parts = [_one(words)]
    while words.peek() == "AND":
        words.take()
        parts.append(_one(words))
    return parts[0] if len(parts) == 1 else lambda scope: all(part(scope) for part in parts)


def _one(words: Words) -> Evaluate:
    if words.peek() == "(":
        words.take()
        inner = _any(words)
        words.take(")")
        return inner
    if words.peek() in ("attribute_exists", "attribute_not_exists"):
        return _existence(words)
    left, compare, right = _operand(words), _COMPARISONS[words.take()], _operand(words)
    return lambda scope: _compared(left(scope), compare, right(scope))


def _existence(words: Words) -> Evaluate:
    wanted = words.take() == "attribute_exists"
    words.take("(")
    name = words.take()
    words.take(")")
    return lambda scope: (scope.name(name) in scope.item) is wanted


def _compared(left: Any, compare: Callable[[Any, Any], bool], right: Any) -> bool:
    if left is None or right is None or left.keys() != right.keys():
        return False
    return compare(_plain(left), _plain(right))


def _plain(value: Mapping[str, Any]) -> Any:
    return Decimal(value["N"]) if "N" in value else next(iter(value.values()))


def _operand(words: Words) -> Evaluate:
    word = words.take()
    if word.startswith(":"):
        return lambda scope: scope.values[word]
    if word == "if_not_exists":
        words.take("(")
        name = words.take()
        words.take(",")
        default = _operand(words)
        words.take(")")
        return lambda scope: scope.item.get(scope.name(name)) or default(scope)
    return lambda scope: scope.item.get(scope.name(word))


@cache
def _update(text: str) -> list[tuple[str, Evaluate]]:
    words, changes, clause = Words(_TOKEN.findall(text)), [], ""
    while words.peek():
        clause = words.take() if words.peek() in _CLAUSES else clause
        changes.append(_change(clause, words))
        if words.peek() == ",":
            words.take()
    return changes


def _change(clause: str, words: Words) -> tuple[str, Evaluate]:
    name = words.take()
    if clause == "REMOVE":
        return name, lambda scope: None
    if clause == "ADD":
        added = _operand(words)
        return name, lambda scope: _sum(scope.item.get(scope.name(name), {"N": "0"}), added(scope), 1)
    words.take("=")
    value = _operand(words)
    if words.peek() in ("+", "-"):
        sign, other = (1 if words.take() == "+" else -1), _operand(words)
        return name, lambda scope: _sum(value(scope), other(scope), sign)
    return name, value


def _sum(left: Any, right: Any, sign: int) -> Item:
    return {"N": str(Decimal(left["N"]) + sign * Decimal(right["N"]))}
