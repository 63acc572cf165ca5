"""Idempotency keys: what is one, and whose it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailroom.http.caller import Caller
from mailroom.http.idempotency_key import fingerprint, read_key, scoped
from mailroom.http.kinds import INVALID_KEY
from mailroom.http.problem import Problem

CALLER = Caller(("iam", "000000000000", "AROAEXAMPLE"))


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "   ",
        '""',
        '"  "',
        "k" * 256,
        '"' + "k" * 256 + '"',
        "schlüssel",
        "a\tb",
        "a\x7fb",
        "first,second",
        "first, second",
        '"first,second"',
        '"unfinished',
        '"',
        '"a"b"',
        '"a";p=1',
    ],
)
def test_a_header_is_refused__that_is_no_single_key(header: str | None) -> None:
    with pytest.raises(Problem) as refused:
        read_key(header)

    assert (refused.value.kind, refused.value.errors[0].field) == (INVALID_KEY, "Idempotency-Key")


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ("abc", "abc"),
        (" abc ", "abc"),
        ('"abc"', "abc"),
        (r'"a\"b\\c"', r"a\b".replace("\\", '"') + r"\c"),
        ("a b", "a b"),
        ("k" * 255, "k" * 255),
        ('"' + "k" * 255 + '"', "k" * 255),
        ("8e03978e-40d5-43dd-bc93-6894a57f9324", "8e03978e-40d5-43dd-bc93-6894a57f9324"),
    ],
)
def test_a_key_is_read__bare_or_quoted(header: str, key: str) -> None:
    assert read_key(header) == key


_PART = st.text('ab#/|"[],:\\', max_size=6)


@given(one=st.tuples(_PART, _PART, _PART, _PART, _PART), other=st.tuples(_PART, _PART, _PART, _PART, _PART))
def test_scopes_are_the_same__only_if_every_part_is(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert (_scoped(*one) == _scoped(*other)) == (one == other)


def _scoped(account: str, principal: str, method: str, path: str, key: str) -> str:
    return scoped(key, caller=Caller(("iam", account, principal)), method=method, path=path)


def test_scopes_differ__where_a_separator_in_the_path_would_make_them_equal() -> None:
    assert _scoped("1", "r", "POST", "/a#b", "c") != _scoped("1", "r", "POST", "/a", "b#c")


def test_scopes_differ__for_another_kind_of_caller_with_the_same_names() -> None:
    other = Caller(("jwt", *CALLER.scope[1:]))

    assert _key(CALLER) != _key(other)


def _key(caller: Caller) -> str:
    return scoped("k", caller=caller, method="POST", path="/a")


@pytest.mark.parametrize(
    "other",
    [
        {"body": '{"a":2}', "query": {}, "if_match": None},
        {"body": '{"a":1}', "query": {"dry": "1"}, "if_match": None},
        {"body": '{"a":1}', "query": {}, "if_match": '"3"'},
    ],
)
def test_fingerprints_differ__if_body_query_or_if_match_do(other: dict[str, object]) -> None:
    assert fingerprint(**other) != fingerprint(body='{"a":1}', query={}, if_match=None)  # type: ignore[arg-type]


def test_fingerprints_are_the_same__for_any_order_of_the_query() -> None:
    one = fingerprint(body="{}", query={"a": "1", "b": "2"}, if_match=None)

    assert one == fingerprint(body="{}", query={"b": "2", "a": "1"}, if_match=None)
