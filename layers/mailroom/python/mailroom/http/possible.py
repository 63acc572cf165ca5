"""Which problems a route can answer, from what it declares and what the edge does with it."""

from __future__ import annotations

from collections.abc import Callable

from mailroom.http import kinds
from mailroom.http.api import Api
from mailroom.http.problem import ProblemKind
from mailroom.http.route import Route

_ALWAYS = (kinds.UNAUTHENTICATED, kinds.INTERNAL, kinds.UNAVAILABLE)
_WHERE: tuple[tuple[Callable[[Route], bool], tuple[ProblemKind, ...]], ...] = (
    (lambda route: bool(route.placeholders), (kinds.NOT_FOUND,)),
    (lambda route: route.query is not None, (kinds.INVALID_QUERY,)),
    (lambda route: route.body is not None, (kinds.INVALID_BODY, kinds.TOO_LARGE, kinds.UNSUPPORTED_MEDIA_TYPE)),
    (lambda route: route.takes_key, (kinds.INVALID_KEY, kinds.STILL_RUNNING, kinds.KEY_REUSED)),
    (lambda route: route.conditional, (kinds.INVALID_IF_MATCH, kinds.STALE)),
    (lambda route: route.commits, (kinds.CONFLICT, kinds.EVENT_REFUSED, kinds.TOO_LARGE)),
)


def possible_problems(route: Route, api: Api) -> list[ProblemKind]:
    """Answer the kinds of problem that a route can end with, by status."""
    found = {*_ALWAYS, *(api.problems[error] for error in route.raises)}
    for holds, those in _WHERE:
        found.update(those if holds(route) else ())
    if names_owner(route, api.owner):
        found.add(kinds.FORBIDDEN)
    return sorted(found, key=lambda kind: (kind.status, kind.name))


def names_owner(route: Route, owner: str | None) -> bool:
    """Answer whether a request of the route says whose things it is about."""
    models = [model for model in (route.body, route.query) if model is not None]
    return owner in route.placeholders or any(owner in model.model_fields for model in models)
