"""Rows are read one by one: what of one can be read, and what is said of the rest."""

from __future__ import annotations

from typing import Any

import pytest
from pynamodb.attributes import BooleanAttribute, NumberAttribute, UnicodeAttribute

from mailroom.attributes import TTLAttribute
from mailroom.checked_attributes import (
    CountAttribute,
    FailureAttribute,
    JsonAttribute,
    MomentAttribute,
    ObjectAttribute,
)
from mailroom.failures import Failure, FailureKind
from mailroom.history import HistoryAttribute
from mailroom.reading import UNREADABLE, Unreadable, flaw_of, names_of, read, row_of
from mailroom.row import Row
from tests.log_lines import Lines


class Shelf(Row):
    """A model with an attribute of each kind."""

    class Meta:
        short_name = "shelves-of-test-reading"

    id = UnicodeAttribute(hash_key=True)
    name = UnicodeAttribute()
    size = NumberAttribute(null=True)
    level = NumberAttribute(default=0)
    full = BooleanAttribute(null=True)
    times = CountAttribute(null=True)
    at = MomentAttribute(null=True)
    said = JsonAttribute(null=True)
    about = ObjectAttribute(null=True)
    failure = FailureAttribute(null=True)
    history = HistoryAttribute(null=True)
    expires_at = TTLAttribute(null=True)
    renamed = UnicodeAttribute(attr_name="r", null=True)


del Row.tables["shelves-of-test-reading"]
FAILURE = Failure(FailureKind.PERMANENT, "Refused", "no")
DEED = '[{"action":"edit","at":"2030","by":"who","why":"so"}]'
GOOD: dict[str, Any] = {
    "id": {"S": "1"},
    "name": {"S": "top"},
    "size": {"N": "1.5"},
    "level": {"N": "2"},
    "full": {"BOOL": True},
    "times": {"N": "3"},
    "at": {"S": "2030-01-01T00:00:00.000Z"},
    "said": {"S": "[1]"},
    "about": {"S": "{}"},
    "failure": {"S": FAILURE.to_json()},
    "history": {"S": DEED},
    "expires_at": {"N": "1893456000"},
}


def test_a_good_row_is_read__and_knows_what_it_was_read_from() -> None:
    row = read(Shelf, GOOD)
    assert isinstance(row, Shelf)
    assert (row.name, row.size, row.times, row.at) == ("top", 1.5, 3, "2030-01-01T00:00:00.000Z")
    assert row.read_from == GOOD


@pytest.mark.parametrize("absent", [name for name in GOOD if name not in {"id", "name"}])
def test_a_row_needs_no_attribute_that_may_be_absent_or_has_a_default(absent: str) -> None:
    assert isinstance(read(Shelf, {**GOOD, absent: {"NULL": True}}), Shelf)
    assert isinstance(read(Shelf, {name: typed for name, typed in GOOD.items() if name != absent}), Shelf)


@pytest.mark.parametrize(
    ("name", "typed", "said"),
    [
        ("name", {"NULL": True}, "name is missing"),
        ("name", {"M": {}}, "name is a map (M) and must be a text (S)"),
        ("size", {"S": "1"}, "size is a text (S) and must be a number (N)"),
        ("full", {"S": "yes"}, "full is a text (S) and must be a boolean (BOOL)"),
        ("times", {"N": "1.5"}, "times is no count"),
        ("times", {"N": "-1"}, "times is no count"),
        ("times", {"N": "1E+30"}, "times is no count"),
        ("at", {"S": "secret"}, "at is no moment"),
        ("at", {"S": "2030-01-01"}, "at is a moment without an offset from UTC"),
        ("said", {"S": "secret"}, "said is no JSON"),
        ("said", {"S": "NaN"}, "said is no JSON"),
        ("said", {"S": "[" * 100_000}, "said is no JSON"),
        ("about", {"S": "[]"}, "about is no JSON object"),
        ("failure", {"S": "{}"}, "failure is no failure"),
        ("failure", {"S": "[]"}, "failure is no failure"),
        ("failure", {"S": '{"kind":"new","type":"a","message":"b"}'}, "failure is no failure"),
        ("history", {"S": "{}"}, "history is no list of deeds"),
        ("history", {"S": "[1]"}, "history is no list of deeds"),
        ("history", {"S": '[{"action":"edit"}]'}, "history is no list of deeds"),
        ("expires_at", {"N": "1e300"}, "expires_at cannot be read"),
    ],
)
def test_what_is_wrong_is_said_without_what_it_holds(name: str, typed: dict[str, Any], said: str) -> None:
    found = read(Shelf, {**GOOD, name: typed})
    assert isinstance(found, Unreadable)
    assert (found.failure.type, found.failure.message, found.flaws) == (UNREADABLE, said, {name})
    assert getattr(found.row, name) is None
    assert found.row.id == "1"
    assert found.item[name] == typed


def test_what_was_not_asked_for_is_not_missing() -> None:
    assert isinstance(read(Shelf, {"id": {"S": "1"}}, without=("name",)), Shelf)
    assert isinstance(read(Shelf, {"id": {"S": "1"}}, without=names_of(Shelf)), Shelf)


def test_attributes_go_by_the_names_that_the_table_has() -> None:
    assert {"name", "r"} <= names_of(Shelf)
    found = read(Shelf, {**GOOD, "r": {"N": "1"}})
    assert isinstance(found, Unreadable)
    assert found.failure.message == "r is a number (N) and must be a text (S)"


def test_a_failure_of_another_version_is_read() -> None:
    newer = FAILURE.to_json()[:-1] + ',"newer":1}'
    assert isinstance(read(Shelf, {**GOOD, "failure": {"S": newer}}), Shelf)
    assert Failure.from_json(newer) == FAILURE


def test_one_that_is_passed_over_is_told(logs: Lines) -> None:
    good, bad = read(Shelf, GOOD), read(Shelf, {**GOOD, "id": {"S": "2"}, "times": {"S": "3"}})
    assert isinstance(bad, Unreadable)
    bad.tell()
    (line,) = logs()
    assert (line["message"], line["table"], line["row"].split()[-1]) == ("row unreadable", Shelf.Meta.short_name, "2")
    assert (flaw_of(good), flaw_of(bad), row_of(bad).id) == (None, bad.failure, "2")


def test_a_row_is_shown_with_dynamodbs_types__as_json_values() -> None:
    found = read(Shelf, {**GOOD, "name": {"B": b"\x00"}, "tags": {"SS": ["a"]}})
    assert isinstance(found, Unreadable)
    shown = found.document()
    assert (shown["name"], shown["tags"], shown["times"]) == ({"B": "AA=="}, {"SS": ["a"]}, {"N": "3"})


def test_a_row_is_written_as_it_is() -> None:
    item = {**GOOD, "times": {"S": "3"}, "newer": {"N": "1"}}
    assert Shelf.as_it_is(item).serialize() == item
