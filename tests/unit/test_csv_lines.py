"""CSV: what is written reads back, and no cell of it begins as a formula does."""

from __future__ import annotations

import csv
from io import StringIO

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.csv_lines import csv_lines, harmless

FORMULAS = "=+-@\uff1d\uff0b\uff0d\uff20"
PASSED_OVER = ' \t\r\n\v\f\x1c\x85\xa0\u2003\u200b\u2028\u3000\ufeff"'
texts = st.text(st.sampled_from([*FORMULAS, *PASSED_OVER, *";,'|a1\x00\x7f"]) | st.characters(codec="utf-8"))


def read(text: str, delimiter: str = ",") -> list[list[str]]:
    return list(csv.reader(StringIO(text, newline=""), delimiter=delimiter))


def begins_a_formula(cell: str) -> bool:
    return cell.lstrip(PASSED_OVER)[:1] in tuple(FORMULAS)


@given(st.lists(st.lists(texts, min_size=1), min_size=1))
@example([['=HYPERLINK("https://example.com","x")', "plain"]])
def test_what_is_written_reads_back(rows: list[list[str]]) -> None:
    assert read(csv_lines(rows)) == [[harmless(cell) for cell in row] for row in rows]


@given(st.lists(st.lists(texts, min_size=1), min_size=1), st.sampled_from([",", ";", "\t"]))
@example([["a;=1+1"]], ";")
@example([['a;"=1+1']], ";")
@example([["a\t=1+1"]], "\t")
@example([["a\n@x"]], ",")
def test_no_cell_begins_a_formula__whatever_the_spreadsheet_splits_at(rows: list[list[str]], delimiter: str) -> None:
    for row in read(csv_lines(rows), delimiter):
        assert not any(begins_a_formula(cell) for cell in row)


@pytest.mark.parametrize("begin", FORMULAS)
@pytest.mark.parametrize("before", ["", " ", "\t", "\r", "\n", "\xa0", "\u3000", "\ufeff", '"'])
def test_an_apostrophe_makes_text_of_what_would_be_a_formula(before: str, begin: str) -> None:
    assert harmless(f"{before}{begin}1+1").startswith("'")


@pytest.mark.parametrize("text", ["", "tool", "a-b", "a=b", "a@b.example", "1+1", "it's", "'=1", "a;b", "Ünïcødé 本"])
def test_other_text_is_left_as_it_is(text: str) -> None:
    assert harmless(text) == text


@given(texts)
def test_what_is_harmless_stays_as_it_is(text: str) -> None:
    assert harmless(harmless(text)) == harmless(text)


def test_lines_end_as_the_rfc_says__and_quotes_are_doubled() -> None:
    assert csv_lines([["a", 'say "hi"', "x,y", "l\nb", 7]]) == 'a,"say ""hi""","x,y","l\nb",7\r\n'


def test_a_nul_ends_no_text() -> None:
    assert csv_lines([["a\x00b"]]) == "a\ufffdb\r\n"
