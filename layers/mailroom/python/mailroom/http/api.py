"""APIs: routes put together, and the Lambda handler that comes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Self

from mailroom.http.edge import Edge
from mailroom.http.problem import ProblemKind
from mailroom.http.routes import Routes
from mailroom.needs import Access
from mailroom.runtime import Runtime
from mailroom.settings import Auth

LambdaHandler = Callable[[dict[str, Any], Any], dict[str, Any]]


class Api(Routes):
    """The HTTP face of a service: routes of its own, and those that it includes.

    Parameters
    ----------
    access
        What its own routes touch: all routes run in one function under one role.
    owner
        The name of the input, in path, query or body, that says whose things a request is about: callers who are
        owners themselves may name nobody else there. What is found by another id, the route holds against
        `call.caller.may_act_for`.
    for_operators
        Callers sign their requests whatever the stage asks of the public, unless it knows no callers at all; and a
        query parameter that a route does not know is refused, since what it was to prevent would happen.
    """

    def __init__(
        self,
        *,
        access: Access | None = None,
        problems: Mapping[type[Exception], ProblemKind] | None = None,
        owner: str | None = None,
        for_operators: bool = False,
    ) -> None:
        super().__init__(access=access, problems=problems)
        self.owner = owner
        self.for_operators = for_operators

    def include(self, *others: Routes) -> Self:
        """Answer for these routes too."""
        for other in others:
            self.access |= other.access
            self.problems |= other.problems
            self.routes += other.routes
        return self

    def handler(self, make_runtime: Callable[[], Runtime]) -> LambdaHandler:
        """Answer the Lambda handler for events of an HTTP API (payload format 2.0).

        The runtime is made by the first request, so that importing the handler needs nothing of AWS.
        """

        @cache
        def edge() -> Edge:
            runtime = make_runtime()
            return Edge(
                runtime,
                access=self.access,
                routes=self.routes,
                problems=self.problems,
                owner=self.owner,
                strict=self.for_operators,
                auth=self._auth(runtime.settings.auth),
            )

        def handle(event: dict[str, Any], context: Any) -> dict[str, Any]:
            return edge().serve(event, context)

        return handle

    def _auth(self, auth: Auth) -> Auth:
        return "iam" if self.for_operators and auth != "none" else auth
