"""The tables in memory keep DynamoDB's contract: moto answers the calls of whole plays alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import pytest
from botocore.exceptions import ClientError

from mailroom import clients
from mailroom.runtime import Runtime
from tests import generated

from .play import KEYS, Play, staged
from .tables import MAX_READS, MAX_WRITES, Item, Tables

Told = tuple[str, Any]
"""What a call came to: an error's code, and the answer or why it was refused."""


class Recorded(Tables):
    """Remembers each call and what it came to."""

    def __init__(self, play: Play) -> None:
        super().__init__(KEYS, play.watch.sees)
        self.log: list[tuple[str, dict[str, Any], Told]] = []

    def perform(self, operation: str, asked: Mapping[str, Any]) -> Item:
        perform = super().perform
        told = _told(lambda: perform(operation, asked))
        self.log.append((operation, deepcopy(dict(asked)), told))
        if isinstance(told[1], ClientError):
            raise told[1]
        return dict(told[1])


def _told(call: Callable[[], Any]) -> Told:
    try:
        return "", call()
    except ClientError as error:
        return error.response["Error"]["Code"], error


def _comparable(told: Told) -> Any:
    code, content = told
    if isinstance(content, ClientError):
        reasons = content.response.get("CancellationReasons", [])
        return code, content.response.get("Item"), [reason["Code"] for reason in reasons]
    responses = {table: sorted(map(str, items)) for table, items in content.get("Responses", {}).items()}
    return code, content.get("Item"), content.get("Items"), content.get("Attributes"), responses


def _calls_of(seed: int, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any], Told]]:
    play = Play(seed)
    play.tables = play.watch.tables = recorded = Recorded(play)
    with staged(monkeypatch) as run:
        run(play)
    return recorded.log


@pytest.mark.parametrize("seed", generated.examples(few=[3], all=[3, 4]))
def test_moto_answers_the_calls_of_a_play_alike(runtime: Runtime, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    tokens: set[str] = set()
    for operation, asked, told in _calls_of(seed, monkeypatch):
        token = asked.get("ClientRequestToken", "")
        if token in tokens:
            continue  # moto would write it twice
        tokens |= {token} if token and not told[0] else set()
        answer = _told(lambda: clients.dynamodb()._make_api_call(operation, asked))  # type: ignore[attr-defined]  # noqa: B023
        assert _comparable(answer) == _comparable(told), (operation, asked)


@pytest.mark.parametrize("seed", [3])
def test_a_play_makes_every_call_that_the_tables_answer(monkeypatch: pytest.MonkeyPatch, aws: None, seed: int) -> None:
    made = {operation for operation, _, _ in _calls_of(seed, monkeypatch)}
    assert made >= {"GetItem", "Query", "UpdateItem", "BatchGetItem", "BatchWriteItem", "TransactWriteItems"}


def test_a_transaction_takes_effect_once__under_one_token() -> None:
    tables = Tables({"t": ("id",)})
    add = {
        "TableName": "t",
        "Key": {"id": {"S": "1"}},
        "UpdateExpression": "ADD n :one",
        "ExpressionAttributeValues": {":one": {"N": "1"}},
    }
    for _ in range(2):
        tables.perform("TransactWriteItems", {"TransactItems": [{"Update": add}], "ClientRequestToken": "token"})
    assert tables.item("t", "1") == {"id": {"S": "1"}, "n": {"N": "1"}}


def test_a_page_that_is_exactly_full_has_a_cursor() -> None:
    tables = Tables({"t": ("id",)})
    tables.perform("PutItem", {"TableName": "t", "Item": {"id": {"S": "1"}}})
    page = tables.perform("Scan", {"TableName": "t", "Limit": 1})
    assert page["LastEvaluatedKey"] == {"id": {"S": "1"}}
    rest = tables.perform("Scan", {"TableName": "t", "Limit": 1, "ExclusiveStartKey": page["LastEvaluatedKey"]})
    assert rest["Items"] == []
    assert "LastEvaluatedKey" not in rest


def test_a_batch_that_is_too_large_is_refused() -> None:
    tables = Tables({"t": ("id",)})
    keys = [{"id": {"S": str(number)}} for number in range(MAX_READS + 1)]
    writes = [{"PutRequest": {"Item": key}} for key in keys[: MAX_WRITES + 1]]
    with pytest.raises(ClientError, match="ValidationException"):
        tables.perform("BatchGetItem", {"RequestItems": {"t": {"Keys": keys}}})
    with pytest.raises(ClientError, match="ValidationException"):
        tables.perform("BatchWriteItem", {"RequestItems": {"t": writes}})
