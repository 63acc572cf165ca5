"""Preconditions: which versions a request is for, as RFC 9110 writes them."""

from __future__ import annotations

import pytest

from mailroom.http.kinds import INVALID_IF_MATCH
from mailroom.http.precondition import ANY, IfMatch, Stale, etag, read_if_match
from mailroom.http.problem import Problem
from mailroom.unit_of_work import RowChanged


def test_a_version_is_written_as_a_strong_tag__whatever_number_the_table_gave() -> None:
    assert etag(3) == etag(3.0) == '"3"'


@pytest.mark.parametrize("header", [None, "*", '"3"', ' "3" ', '"2", "3"', '"2","3"', '"2"\t,\t"3"', '"a,b", "3"'])
def test_a_thing_fits__that_has_one_of_the_versions(header: str | None) -> None:
    read_if_match(header).check(3)


@pytest.mark.parametrize("header", ['"2"', '"2", "4"', 'W/"3"', '""', '"*"', '"03"', '"a,b"', '"\xe9"', '"3.0"'])
def test_a_thing_is_stale__that_has_none_of_the_versions(header: str) -> None:
    with pytest.raises(Stale, match='"3"'):
        read_if_match(header).check(3)


@pytest.mark.parametrize(
    "header",
    [
        "",
        " ",
        "3",
        "'3'",
        '"3',
        '3"',
        '"3" "4"',
        '"3",',
        ',"3"',
        'w/"3"',
        "W/3",
        '*, "3"',
        '"a b"',
        '"3\n"',
        '"\u0142"',
    ],
)
def test_a_header_is_refused__that_names_no_version(header: str) -> None:
    with pytest.raises(Problem) as refused:
        read_if_match(header)

    assert (refused.value.kind, refused.value.errors[0].field) == (INVALID_IF_MATCH, "If-Match")


def test_a_race_lost_means_that_the_version_is_gone__if_one_was_asked_for() -> None:
    error = RowChanged("x")

    assert isinstance(IfMatch(('"3"',)).refine(error), Stale)
    assert isinstance(IfMatch(("*",)).refine(error), Stale)
    assert ANY.refine(error) is error
