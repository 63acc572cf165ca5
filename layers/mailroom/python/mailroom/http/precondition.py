"""Preconditions: the entity tags that answers carry and `If-Match` names (RFC 9110, sections 8.8.3 and 13.1.1)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mailroom.http.kinds import INVALID_IF_MATCH
from mailroom.http.problem import FieldError, Problem

HEADER = "If-Match"

_TAG = r'(?:W/)?"[!#-~\x80-\xff]*"'
_TAGS = re.compile(rf"{_TAG}(?:[ \t]*,[ \t]*{_TAG})*")
_ONE_TAG = re.compile(_TAG)
PATTERN = rf"^(?:\*|{_TAGS.pattern})$"
"""What the header is, as JSON Schema writes it."""


class Stale(Exception):
    """The thing is not, or no longer, in the version that the request is for; nothing was written."""


def etag(version: float) -> str:
    """Write a row's version as a strong entity tag: `"3"`."""
    return f'"{int(version)}"'


@dataclass(frozen=True, slots=True)
class IfMatch:
    """Which versions a request is for.

    Parameters
    ----------
    tags
        Entity tags, one of which must be the thing's own; `*` is any. None at all is no precondition.
        A weak tag (`W/"3"`) is never the thing's own: it does not promise that nothing changed.
    """

    tags: tuple[str, ...] = ()

    def check(self, version: float) -> None:
        """Go on if the thing has a version that the request is for.

        Raises
        ------
        Stale
            If it has another one.
        """
        tag = etag(version)
        if self.tags and self.tags != ("*",) and tag not in self.tags:
            raise Stale(f"it has the version {tag} by now: read it again")

    def refine(self, error: Exception) -> Exception:
        """Answer what it means that somebody else was faster: the version that was asked for is gone, if one was."""
        return Stale("it was changed at this very moment: read it again") if self.tags else error


ANY = IfMatch()
"""No precondition."""


def read_if_match(header: str | None) -> IfMatch:
    """Read the header; without it any version will do.

    Raises
    ------
    Problem
        If it is neither `*` nor a list of entity tags.
    """
    if header is None:
        return ANY
    value = header.strip(" \t")
    if value == "*":
        return IfMatch(("*",))
    if not _TAGS.fullmatch(value):
        detail = 'is an entity tag as ETag shows it, in quotes: "3"'
        raise Problem(INVALID_IF_MATCH, f"{HEADER} {detail}", errors=[FieldError(HEADER, detail)])
    return IfMatch(tuple(_ONE_TAG.findall(value)))
