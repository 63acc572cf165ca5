"""The HTTP edge: from an event of API Gateway to an answer, with one commit in between."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEventV2
from pydantic import BaseModel

from mailroom import telemetry
from mailroom.failures import failure_of
from mailroom.http import kinds
from mailroom.http.body import Body, read_body
from mailroom.http.call import Call
from mailroom.http.caller import Caller, caller_of
from mailroom.http.command import Command
from mailroom.http.cursors import Cursors
from mailroom.http.idempotency_key import HEADER, fingerprint, read_key, scoped
from mailroom.http.precondition import ANY, IfMatch, read_if_match
from mailroom.http.precondition import HEADER as IF_MATCH
from mailroom.http.problem import FieldError, Problem, ProblemKind
from mailroom.http.problem_table import ProblemTable
from mailroom.http.query import Query, read_query
from mailroom.http.reply import Answer, Reply
from mailroom.http.route import Route
from mailroom.idempotency import Idempotency
from mailroom.needs import Access
from mailroom.returns import returned
from mailroom.runtime import Runtime
from mailroom.settings import Auth
from mailroom.telemetry import LogEvent, Metric
from mailroom.unit_of_work import RowChanged, UnitOfWork

REPLAYED = "Idempotent-Replayed"


class LambdaContext(Protocol):
    """What the edge asks of Lambda."""

    def get_remaining_time_in_millis(self) -> int:
        """Answer the milliseconds until the function is stopped."""
        ...


@dataclass(frozen=True, slots=True)
class _Request:
    """One request for a route that was found."""

    route: Route
    event: APIGatewayProxyEventV2
    context: LambdaContext
    arguments: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a request asks for, validated."""

    caller: Caller
    body: Body[Command] | None
    query: Query | None
    if_match: IfMatch

    @property
    def inputs(self) -> list[BaseModel]:
        """What the route's function takes before the call."""
        command = self.body.command if self.body else None
        return [each for each in (command, self.query) if each is not None]


class Edge:
    """Serves the routes of one API in one process; requests may come side by side.

    Parameters
    ----------
    owner
        The input that says whose things a request is about.
    strict
        Refuse query parameters also where a route declares none.
    auth
        How callers are known.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        access: Access,
        routes: Sequence[Route],
        problems: Mapping[type[Exception], ProblemKind],
        owner: str | None = None,
        strict: bool = False,
        auth: Auth | None = None,
    ) -> None:
        self._runtime = runtime
        self._auth = auth or runtime.settings.auth
        self._access = access
        self._owner = owner
        self._strict = strict
        self._routes = routes
        self._problems = ProblemTable(problems)
        life = runtime.timings.idempotency_key_life
        keyed = [route for route in routes if route.takes_key]
        self._records = {route: Idempotency(runtime, prefix=route.name, life=life) for route in keyed}

    def serve(self, event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
        """Answer an event of an HTTP API, payload format 2.0, in the form that API Gateway expects."""
        request = APIGatewayProxyEventV2(event)
        traceparent = request.headers.get("traceparent")
        with telemetry.flushed_metrics(), telemetry.traced(traceparent, self._runtime.random):
            return self._resolver(request, context).resolve(event, cast(Any, context))

    def _resolver(self, event: APIGatewayProxyEventV2, context: LambdaContext) -> APIGatewayHttpResolver:
        # Powertools' resolver keeps the request in itself, and the event on its class unless the instance
        # has one: with a resolver for each request, requests can be served side by side.
        resolver = APIGatewayHttpResolver(debug=False)
        resolver.current_event = event

        def serving(route: Route) -> Callable[..., Response[str]]:
            def serve(**arguments: str) -> Response[str]:
                return self._respond(route.name, lambda: self._run(_Request(route, event, context, arguments)))

            return serve

        for route in self._at(event.path):
            resolver.route(route.rule, method=route.method)(serving(route))
        resolver.not_found(lambda _: self._respond("none", lambda: self._missing(event)))
        return resolver

    def _run(self, request: _Request) -> Answer:
        asked = self._read(request)
        self._check_owner(request, asked)
        key = _key_of(request)
        return self._act(request, asked) if key is None else self._once(request, asked, key)

    def _read(self, request: _Request) -> _Asked:
        route, event = request.route, request.event
        caller = caller_of(event, self._auth)
        route.check(request.arguments)
        query = self._query_of(request)
        body = read_body(event, route.body) if route.body else None
        if_match = read_if_match(event.headers.get(IF_MATCH)) if route.conditional else ANY
        return _Asked(caller, body, query, if_match)

    def _check_owner(self, request: _Request, asked: _Asked) -> None:
        if self._owner is None:
            return
        named = [getattr(each, self._owner, None) for each in asked.inputs]
        for owner_id in (request.arguments.get(self._owner), *named):
            if owner_id is not None and not asked.caller.may_act_for(owner_id):
                detail = "names somebody else than the caller"
                raise Problem(kinds.FORBIDDEN, f"{self._owner} {detail}", errors=[FieldError(self._owner, detail)])

    def _query_of(self, request: _Request) -> Query | None:
        if request.route.query is not None:
            return read_query(request.event, request.route.query)
        if self._strict:
            read_query(request.event, Query)
        return None

    def _once(self, request: _Request, asked: _Asked, key: str) -> Answer:
        event = request.event
        outcome = self._records[request.route].run(
            key=scoped(key, caller=asked.caller, method=event.http_method, path=event.path),
            fingerprint=fingerprint(
                body=asked.body.canonical if asked.body else "",
                query=event.query_string_parameters,
                if_match=event.headers.get(IF_MATCH),
            ),
            remaining_ms=request.context.get_remaining_time_in_millis(),
            act=lambda: self._act(request, asked).stored(),
        )
        answer = Answer.of_stored(outcome.value)
        return _replayed(answer) if outcome.replayed else answer

    def _act(self, request: _Request, asked: _Asked) -> Answer:
        route = request.route
        work = UnitOfWork(self._runtime, self._access if route.commits else _reading(self._access))
        call = Call(
            work,
            asked.caller,
            deadline=self._runtime.deadline(request.context),
            cursors=Cursors.of(route.name, asked.caller),
            if_match=asked.if_match,
        )
        answer = returned(route.function(*asked.inputs, call, **request.arguments), Reply, by=route.name).answer()
        if route.commits:
            _commit(work, answer, asked.if_match)
        return answer

    def _missing(self, event: APIGatewayProxyEventV2) -> Answer:
        allowed = sorted({route.method for route in self._at(event.path)})
        if not allowed or event.http_method in allowed:  # the latter with characters that no path of ours has
            raise Problem(kinds.NOT_FOUND, "no route has this path")
        allow = ", ".join(allowed)
        raise Problem(kinds.METHOD_NOT_ALLOWED, f"this path takes {allow}", headers={"Allow": allow})

    def _at(self, path: str) -> list[Route]:
        return [route for route in self._routes if route.matches(path)]

    def _respond(self, route: str, act: Callable[[], Answer]) -> Response[str]:
        try:
            answer = act()
        except Exception as error:
            problem = self._problems.problem_of(error)
            _log(problem, error, route)
            answer = problem.answer()
        # An empty text and no null: whoever stands in for API Gateway may not know what to send for that.
        return Response(answer.status, headers=dict(answer.headers), body=answer.body or "")


def _key_of(request: _Request) -> str | None:
    header = request.event.headers.get(HEADER)
    if not request.route.takes_key or (header is None and not request.route.needs_key):
        return None
    return read_key(header)


def _commit(work: UnitOfWork, answer: Answer, if_match: IfMatch) -> None:
    try:
        work.commit(answer.stored())
    except RowChanged as error:
        raise if_match.refine(error) from error


def _replayed(answer: Answer) -> Answer:
    telemetry.count(Metric.REPLAYED_REQUESTS)
    return replace(answer, headers={**answer.headers, REPLAYED: "true"})


def _reading(access: Access) -> Access:
    """Answer the same access without the right to write: what a GET collects would never be committed."""
    return Access(reads=access.reads + access.writes, uses=access.uses)


def _log(problem: Problem, error: Exception, route: str) -> None:
    facts: dict[str, Any] = {"route": route, "status": problem.kind.status, "problem": problem.kind.name}
    if problem.kind == kinds.INTERNAL:
        telemetry.log_error(LogEvent.REQUEST_FAILED, error, **facts)
    elif problem.kind == kinds.UNAVAILABLE:
        telemetry.log(LogEvent.REQUEST_FAILED, failure=failure_of(error), **facts)
    else:
        telemetry.log(LogEvent.REQUEST_REFUSED, **facts)
