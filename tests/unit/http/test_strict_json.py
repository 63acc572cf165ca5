"""JSON that any reader along the way would misread is refused, and says where."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailroom.http.strict_json import MAX_DEPTH, JsonRefused, canonical, parse


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", ""),
        ("nonsense", ""),
        ('{"a": 1', ""),
        ("{'a': 1}", ""),
        ('{"a": 1} {"b": 2}', ""),
        ('\ufeff{"a": 1}', ""),
        ('{"a": 01}', ""),
        ('{"a": NaN}', "a"),
        ('{"a": {"b": [0, Infinity]}}', "a.b[1]"),
        ('{"a": -Infinity}', "a"),
        ('{"a": 1, "b": {"a": 2, "a": 3}}', "a"),
        ('{"a": 9007199254740992}', "a"),
        ('{"a": -9007199254740992}', "a"),
        ('{"a": ' + "9" * 5_000 + "}", "a"),
        ('{"a": 1e400}', "a"),
        ('{"a": 1e200}', "a"),
        ('{"a": 1e-400}', "a"),
        ('{"a": 1e' + "9" * 400 + "}", "a"),
        ('{"a": "\\ud800"}', "a"),
        ('{"a": ["\\udfff"]}', "a[0]"),
        ('{"a": "\\u0000"}', "a"),
        ('{"a": "\\u001b"}', "a"),
        ('{"a": "\\ufffe"}', "a"),
        ('{"a": {"\\ud800": 1}}', "a"),
        ("[" * 60_000, ""),
        ('{"a":' * 10_000, ""),
    ],
    ids=lambda value: value[:30] or "empty",
)
def test_text_is_refused_and_says_where__that_some_reader_would_misread(text: str, field: str) -> None:
    with pytest.raises(JsonRefused) as refused:
        parse(text)

    assert refused.value.field == field


def test_nesting_is_taken__up_to_the_limit() -> None:
    assert parse("[" * MAX_DEPTH + "]" * MAX_DEPTH)


def test_nesting_is_refused__beyond_the_limit() -> None:
    with pytest.raises(JsonRefused, match="deeper than 32"):
        parse("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))


@pytest.mark.parametrize("text", ["9007199254740991", "-9007199254740991", "0.0", "-1.5e-7", "9.99e125", "1E2"])
def test_a_number_keeps_its_value__that_fits(text: str) -> None:
    assert parse(text) == float(text)


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.text(st.characters(codec="ascii", min_codepoint=32)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(value=_JSON, indent=st.sampled_from([None, 1, 4]))
def test_the_canonical_form_is_the_same__for_any_white_space(value: Any, indent: int | None) -> None:
    assert canonical(parse(json.dumps(value, indent=indent))) == canonical(value)


def test_the_canonical_form_is_the_same__for_any_order_of_names() -> None:
    assert canonical(parse('{"b": {"d": 1, "c": 2}, "a": 3}')) == canonical(parse('{"a": 3, "b": {"c": 2, "d": 1}}'))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", "1.0"),
        ("1", "1e0"),
        ("100", "1E2"),
        ("100", "1000e-1"),
        ("0", "-0.0"),
        ("-7", "-7.000"),
        ("1.5", "15e-1"),
        ("1e100", "10e99"),
        ("9007199254740991", "9007199254740991.0"),
    ],
)
def test_the_canonical_form_is_the_same__for_any_spelling_of_a_number(one: str, other: str) -> None:
    assert canonical(parse(f'{{"a": [{one}]}}')) == canonical(parse(f'{{"a": [{other}]}}'))


@pytest.mark.parametrize(
    ("one", "other"), [("1", "1.1"), ("1", "-1"), ("1", '"1"'), ("1", "true"), ("0", "false"), ("0", "null")]
)
def test_the_canonical_form_differs__for_another_number_or_none(one: str, other: str) -> None:
    assert canonical(parse(f'{{"a": {one}}}')) != canonical(parse(f'{{"a": {other}}}'))


@pytest.mark.parametrize("other", ['{"a": [2, 1]}', '{"a": ["1", 2]}', '{"a": [1, 2], "b": null}', '{"A": [1, 2]}'])
def test_the_canonical_form_differs__for_other_content(other: str) -> None:
    assert canonical(parse(other)) != canonical(parse('{"a": [1, 2]}'))
