"""Routes: what an API declares, and how a path is taken apart."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from pydantic import BaseModel

from mailroom.declarations import DeclarationError
from mailroom.http.command import Command
from mailroom.http.kinds import NOT_FOUND
from mailroom.http.problem import FieldError, Problem
from mailroom.http.query import Query
from mailroom.http.reply import Reply
from mailroom.returns import flaw_of

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_SEGMENT = r"[^/]+"
ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What a placeholder stands for: every id of ours, and nothing that has to be escaped in a path or a key."""


@dataclass(frozen=True, slots=True)
class Success:
    """What a route answers when all goes well.

    Parameters
    ----------
    body
        What the answer shows; None is an empty body.
    headers
        Those that it always has.
    """

    status: int
    body: type[BaseModel] | None = None
    headers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Route:
    """A method and a path, and the function behind it.

    Parameters
    ----------
    path
        With placeholders in braces, as API Gateway writes it: `/api/v1/repos/{repo_id}`.
    body
        The command that the body is; None if the route takes none.
    query
        What the query parameters are; None if the route does not look at them.
    success
        What it answers; None if it is in no document.
    raises
        The domain's errors that it may end with.
    versioned
        Whether it is about a version of something, though its method does not say so: see `conditional`.

    Raises
    ------
    DeclarationError
        If the function does not take exactly the command and the query (if there are any), the call, and the
        placeholders, or cannot return a reply.
    """

    method: Method
    path: str
    function: Callable[..., Reply] = field(repr=False)
    body: type[Command] | None = None
    query: type[Query] | None = None
    success: Success | None = None
    raises: tuple[type[Exception], ...] = ()
    versioned: bool = False

    def __post_init__(self) -> None:
        if flaw := flaw_of(self.function, Reply):
            raise DeclarationError(f"{self.name}: {flaw}")
        wanted = [*self.placeholders]
        found = list(inspect.signature(self.function).parameters)[self._leading :]
        if sorted(found) != sorted(wanted):
            raise DeclarationError(
                f"{self.name}: after command, query and call the function must take {wanted}, not {found}"
            )

    @property
    def name(self) -> str:
        """Names the route in logs and idempotency records."""
        return f"{self.method} {self.path}"

    @property
    def placeholders(self) -> list[str]:
        """The names in the path."""
        return _PLACEHOLDER.findall(self.path)

    @property
    def takes_key(self) -> bool:
        """Whether an Idempotency-Key counts: a PUT is one request however often it comes, and a GET none."""
        return self.method in ("POST", "PATCH", "DELETE")

    @property
    def needs_key(self) -> bool:
        """Whether a request must have one: nothing else tells a second POST from a repeated one."""
        return self.method == "POST"

    @property
    def conditional(self) -> bool:
        """Whether a request may say by If-Match which version it is for."""
        return self.versioned or self.method in ("PATCH", "DELETE")

    @property
    def commits(self) -> bool:
        """Whether the request may change something."""
        return self.method != "GET"

    @property
    def rule(self) -> str:
        """The path as Powertools writes it: `/api/v1/repos/<repo_id>`."""
        return _PLACEHOLDER.sub(r"<\1>", self.path)

    def matches(self, path: str) -> bool:
        """Answer whether a concrete path is one of this route, whatever the method."""
        return self._pattern.fullmatch(path) is not None

    def check(self, arguments: Mapping[str, str]) -> None:
        """Refuse what no id of ours looks like, before it gets near a table.

        Raises
        ------
        Problem
            404: such a thing cannot exist.
        """
        for name, value in arguments.items():
            if not ID.fullmatch(value):
                detail = "an id has 1 to 64 characters of A-Z, a-z, 0-9, _ and -"
                raise Problem(NOT_FOUND, f"{name}: {detail}", errors=[FieldError(name, detail)])

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        parts = [re.escape(part) for part in _PLACEHOLDER.split(self.path)[::2]]
        return re.compile(_SEGMENT.join(parts))

    @property
    def _leading(self) -> int:
        return 1 + sum(each is not None for each in (self.body, self.query))
