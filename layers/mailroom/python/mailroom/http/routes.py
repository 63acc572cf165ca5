"""Routes: what a part of the domain answers over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from mailroom.declarations import DeclarationError
from mailroom.http.call import Call
from mailroom.http.command import Command
from mailroom.http.problem import ProblemKind
from mailroom.http.query import Query
from mailroom.http.reply import Reply
from mailroom.http.route import Method, Route, Success
from mailroom.needs import Access

C = TypeVar("C", bound=Command)
Q = TypeVar("Q", bound=Query)
P = ParamSpec("P")
Commanded = Callable[Concatenate[C, Call, P], Reply]
Asked = Callable[Concatenate[Call, P], Reply]
Queried = Callable[Concatenate[Q, Call, P], Reply]


class Routes:
    """Some routes, with what they touch and what their domain's errors mean.

    Parameters
    ----------
    access
        What they touch, all together.
    problems
        What the domain's errors mean to callers; the detail is the error's own text.

    Examples
    --------
    ```python
    routes = Routes(access=Access(writes=(Repo,)), problems={NoSuchRepo: ProblemKind(404, "no-such-repo", "…")})


    @routes.post("/api/v1/repos", body=CreateRepo)
    def post_repo(command: CreateRepo, call: Call) -> Reply:
        repo = create_repo(command, call.work)
        return Reply(201, RepoView.of(repo), location=f"/api/v1/repos/{repo.id}")


    @routes.get("/api/v1/repos/{repo_id}")
    def get_repo(call: Call, repo_id: str) -> Reply:
        return Reply(200, RepoView.of(find_repo(repo_id, call.work)))
    ```
    """

    def __init__(
        self, *, access: Access | None = None, problems: Mapping[type[Exception], ProblemKind] | None = None
    ) -> None:
        self.access = access or Access()
        self.problems = dict(problems or {})
        self.routes: list[Route] = []

    @overload
    def get(
        self, path: str, *, success: Success | None = None, raises: Sequence[type[Exception]] = ()
    ) -> Callable[[Asked[P]], Asked[P]]: ...

    @overload
    def get(
        self,
        path: str,
        *,
        query: type[Q],
        success: Success | None = None,
        raises: Sequence[type[Exception]] = (),
    ) -> Callable[[Queried[Q, P]], Queried[Q, P]]: ...

    def get(
        self,
        path: str,
        *,
        query: type[Query] | None = None,
        success: Success | None = None,
        raises: Sequence[type[Exception]] = (),
    ) -> Callable[[Any], Any]:
        """Declare a route that only reads: nothing is committed.

        Parameters
        ----------
        query
            What the query parameters are: the function takes them before the call.
        success
            What the document says that it answers.
        raises
            Which of the `problems` it may end with.
        """
        return self._declare("GET", path, query=query, success=success, raises=raises)

    def post(
        self,
        path: str,
        *,
        body: type[C],
        success: Success | None = None,
        raises: Sequence[type[Exception]] = (),
        versioned: bool = False,
    ) -> Callable[[Commanded[C, P]], Commanded[C, P]]:
        """Declare a command that happens once per `Idempotency-Key`, which callers must send.

        What the route collects in `call.work`, its reply and the key's record are written in one transaction.

        Parameters
        ----------
        versioned
            It is about a version of something, and honours `If-Match` where it is sent: the function must hold what
            it finds against `call.if_match`.
        """
        return self._declare("POST", path, body=body, success=success, raises=raises, versioned=versioned)

    def put(
        self,
        path: str,
        *,
        body: type[C],
        success: Success | None = None,
        raises: Sequence[type[Exception]] = (),
    ) -> Callable[[Commanded[C, P]], Commanded[C, P]]:
        """Declare a command that may be repeated: what it collects is written in one transaction."""
        return self._declare("PUT", path, body=body, success=success, raises=raises)

    def patch(
        self,
        path: str,
        *,
        body: type[C],
        success: Success | None = None,
        raises: Sequence[type[Exception]] = (),
    ) -> Callable[[Commanded[C, P]], Commanded[C, P]]:
        """Declare a change of what is there, which honours `Idempotency-Key` and `If-Match` where they are sent.

        The function must hold what it finds against `call.if_match`.
        """
        return self._declare("PATCH", path, body=body, success=success, raises=raises)

    def delete(
        self, path: str, *, success: Success | None = None, raises: Sequence[type[Exception]] = ()
    ) -> Callable[[Asked[P]], Asked[P]]:
        """Declare a removal, which honours `Idempotency-Key` and `If-Match` where they are sent.

        The function must hold what it finds against `call.if_match`.
        """
        return self._declare("DELETE", path, success=success, raises=raises)

    def _declare(
        self, method: Method, path: str, *, raises: Sequence[type[Exception]], **more: Any
    ) -> Callable[[Any], Any]:
        if unknown := [error.__name__ for error in raises if error not in self.problems]:
            raise DeclarationError(f"{method} {path} raises {unknown}, which its problems say nothing of")

        def declare(function: Callable[..., Reply]) -> Callable[..., Reply]:
            self.routes.append(Route(method, path, function, raises=tuple(raises), **more))
            return function

        return declare
