"""Cursors as callers see them: each goes on with the list that it came from, for whom it was made."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mailroom.cursor import BadCursor, read_cursor, write_cursor
from mailroom.http import strict_json
from mailroom.http.caller import Caller
from mailroom.http.kinds import INVALID_QUERY
from mailroom.http.problem import FieldError, Problem
from mailroom.http.route import ID

_MARK = "of"


@dataclass(frozen=True, slots=True)
class Cursors:
    """Reads and writes the cursors of one list for one caller.

    A mark in each tells list and caller. It is no signature: whoever forges one starts elsewhere in a list that
    they may read from its beginning.
    """

    mark: str

    @classmethod
    def of(cls, route: str, caller: Caller) -> Cursors:
        """Answer the cursors of a route and a caller; a role has the same ones in each of its sessions."""
        whole = strict_json.canonical([route, caller.scope])
        return cls(hashlib.sha256(whole.encode()).hexdigest()[:32])

    def read(self, cursor: str | None, **expected: str | None) -> dict[str, Any] | None:
        """Answer the key that a page starts after.

        Parameters
        ----------
        expected
            The key's attributes, all of them ids, and the value that each must have; None is any.

        Raises
        ------
        Problem
            If no page of this list, for this caller, ended with the cursor; it names the parameter `cursor`.
        """
        try:
            key = read_cursor(cursor, **{_MARK: self.mark}, **expected)
        except BadCursor as error:
            raise _bad(str(error)) from error
        if key is None:
            return None
        del key[_MARK]
        if not all(ID.fullmatch(value["S"]) for value in key.values()):
            raise _bad("the cursor is malformed; start again without one")
        return key

    def write(self, key: Mapping[str, Any] | None) -> str | None:
        """Write the key that the next page starts after; None is the last page."""
        return None if key is None else write_cursor({**key, _MARK: {"S": self.mark}})


def _bad(detail: str) -> Problem:
    return Problem(INVALID_QUERY, f"cursor: {detail}", errors=[FieldError("cursor", detail)])
