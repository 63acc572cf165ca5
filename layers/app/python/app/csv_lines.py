"""CSV that a spreadsheet reads as what it is: RFC 4180 in UTF-8, with nothing in it that is taken for a formula."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from io import StringIO

BYTE_ORDER_MARK = "\ufeff"
"""Begins a file: by it spreadsheets know that it is UTF-8. Programs read such a file as `utf-8-sig`."""
CONTENT_TYPE = "text/csv; charset=utf-8"

_FORMULA = re.compile(
    r"""
    (?: ^ | (?<=[;\t\r\n]) )     # where a cell begins, also for a spreadsheet that splits at semicolons or tabs
    (?=
        [\s"\x00-\x1f\x7f-\x9f\u200b-\u200f\u2060\ufeff]*  # what it may pass over
        [=+\-@\uff1d\uff0b\uff0d\uff20]                    # what a formula begins with, in full width too
      | [\t\r\n]                                          # and what some take away before they look
    )
    """,
    re.VERBOSE,
)
"""https://owasp.org/www-community/attacks/CSV_Injection"""
_MARK = "'"
"""Makes text of what comes after it."""


def csv_lines(rows: Iterable[Sequence[object]]) -> str:
    """Write rows as lines of CSV, with CRLF after each: https://www.rfc-editor.org/rfc/rfc4180."""
    written = StringIO(newline="")
    csv.writer(written, lineterminator="\r\n").writerows([_cell(value) for value in row] for row in rows)
    return written.getvalue()


def _cell(value: object) -> object:
    return harmless(value) if isinstance(value, str) else value


def harmless(text: str) -> str:
    """Answer a text that no spreadsheet takes for a formula: an apostrophe before what would begin one.

    A NUL, at which many programs take a text to end, becomes the replacement character.
    """
    return _FORMULA.sub(_MARK, text.replace("\x00", "\ufffd"))
