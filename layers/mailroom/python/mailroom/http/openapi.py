"""OpenAPI: the document of an API, from the declarations that serve it (https://spec.openapis.org/oas/v3.1.1.html)."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Any, Literal

from pydantic import BaseModel, RootModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from mailroom.declarations import DeclarationError
from mailroom.http import idempotency_key, precondition
from mailroom.http.api import Api
from mailroom.http.call import Call
from mailroom.http.edge import REPLAYED
from mailroom.http.possible import possible_problems
from mailroom.http.problem import CONTENT_TYPE, ProblemDocument, ProblemKind
from mailroom.http.problem_table import COME_BACK
from mailroom.http.query import Query
from mailroom.http.reply import Reply
from mailroom.http.route import ID, Route, Success

Json = dict[str, Any]
_Mode = Literal["validation", "serialization"]

_REFERENCE = "#/components/schemas/{model}"
_HEADERS: dict[str, Json] = {
    "Cache-Control": {"description": "No cache keeps it.", "schema": {"type": "string", "const": "no-store"}},
    "ETag": {"description": "The version, for If-Match.", "schema": {"type": "string", "pattern": '^"[0-9]+"$'}},
    "Location": {"description": "Where it is.", "schema": {"type": "string", "format": "uri-reference"}},
    "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}},
    REPLAYED: {
        "description": "The answer is the first one under this key: nothing was done again.",
        "schema": {"type": "string", "const": "true"},
    },
}
_SECURITY: dict[str, Json] = {
    "jwt": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "Its `sub` is the owner."},
    "iam": {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "x-amazon-apigateway-authtype": "awsSigv4",
        "description": "AWS credentials (Signature Version 4); they act for any owner.",
    },
}


class OpenApi(RootModel[Json]):
    """An OpenAPI document."""


@dataclass(frozen=True, slots=True)
class About:
    """What a document says of the API as a whole."""

    title: str
    version: str
    description: str


def document(api: Api, about: About) -> Json:
    """Answer the OpenAPI document of an API.

    Raises
    ------
    DeclarationError
        If a route does not say what it answers.
    """
    schemas = _Schemas(api)
    paths: dict[str, Json] = {}
    for route in api.routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, api, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": about.title, "version": about.version, "description": about.description},
        "paths": paths,
        "components": {"schemas": schemas.components, "securitySchemes": _SECURITY},
        # Which of them a stage asks for is the stage's affair; a laptop asks for none.
        "security": [*({name: []} for name in _SECURITY), {}],
    }


def serve_document(api: Api, path: str, about: About) -> None:
    """Declare a route that answers the API's own document, to whoever may call the API."""
    written = cache(lambda: OpenApi(document(api, about)))

    @api.get(path, success=Success(200, OpenApi))
    def get_openapi(call: Call) -> Reply:  # noqa: ARG001 - every route takes the call
        """Show this document."""
        return Reply(200, written())


class _Untitled(GenerateJsonSchema):
    """Without the titles that only repeat the names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


class _Schemas:
    """The schemas of all that an API takes and answers, each model once."""

    def __init__(self, api: Api) -> None:
        inputs = [("problem", "serialization", TypeAdapter[Any](ProblemDocument)), *_adapters(api.routes)]
        self._of, definitions = TypeAdapter.json_schemas(inputs, ref_template=_REFERENCE, schema_generator=_Untitled)
        self.components: Json = definitions["$defs"]
        self._queries = {route.query: self._taken_out(route.query) for route in api.routes if route.query}

    def of(self, model: type[BaseModel], mode: _Mode) -> Json:
        """Answer the reference to a model."""
        return self._of[model, mode]

    def of_problems(self, of_status: Iterable[ProblemKind]) -> Json:
        """Answer the schema of problems that share a status."""
        kinds = list(of_status)
        narrowed = {"type": {"enum": [kind.type for kind in kinds]}, "status": {"const": kinds[0].status}}
        return {"allOf": [self._of["problem", "serialization"], {"properties": narrowed}]}

    def parameters(self, model: type[Query]) -> list[Json]:
        """Answer a query's parameters."""
        schema = self._queries[model]
        required = schema.get("required", [])
        return [
            {"name": name, "in": "query", "required": name in required, "schema": _never_null(each)}
            for name, each in schema["properties"].items()
        ]

    def _taken_out(self, model: type[BaseModel]) -> Json:
        reference: str = self.of(model, "validation")["$ref"]
        schema: Json = self.components.pop(reference.rpartition("/")[2])
        return schema


def _adapters(routes: Iterable[Route]) -> Iterable[tuple[Any, _Mode, TypeAdapter[Any]]]:
    for route in routes:
        for model in (route.body, route.query):
            if model is not None:
                yield model, "validation", TypeAdapter(model)
        shown = _success(route).body
        if shown is not None:
            yield shown, "serialization", TypeAdapter(shown)


def _success(route: Route) -> Success:
    if route.success is None:
        raise DeclarationError(f"{route.name} does not say what it answers: add success=Success(…)")
    return route.success


def _never_null(schema: Json) -> Json:
    """Answer the schema of a parameter that may be left out: a query has no null."""
    if "anyOf" not in schema:
        return schema
    rest = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
    (only,) = (each for each in schema["anyOf"] if each != {"type": "null"})
    return {**only, **rest}


def _operation(route: Route, api: Api, schemas: _Schemas) -> Json:
    summary, _, description = (inspect.getdoc(route.function) or "").partition("\n")
    operation: Json = {
        "operationId": route.function.__name__,
        "summary": summary.rstrip("."),
        "description": description.strip(),
        "parameters": _parameters(route, schemas),
        "responses": {
            str(_success(route).status): _answer(route, schemas),
            **_problems(possible_problems(route, api), schemas),
        },
    }
    if route.body is not None:
        content = {"application/json": {"schema": schemas.of(route.body, "validation")}}
        operation["requestBody"] = {"required": True, "content": content}
    return {name: value for name, value in operation.items() if value not in ("", [])}


def _parameters(route: Route, schemas: _Schemas) -> list[Json]:
    schema = {"type": "string", "pattern": f"^{ID.pattern}$"}
    found = [{"name": name, "in": "path", "required": True, "schema": schema} for name in route.placeholders]
    if route.query is not None:
        found += schemas.parameters(route.query)
    if route.takes_key:
        found.append(_idempotency_key(required=route.needs_key))
    if route.conditional:
        found.append(_if_match())
    return found


def _idempotency_key(*, required: bool) -> Json:
    return {
        "name": idempotency_key.HEADER,
        "in": "header",
        "required": required,
        "description": "One for each new request, and the same one to repeat it: the first answer comes back.",
        "schema": {"type": "string", "maxLength": idempotency_key.MAX_LENGTH, "pattern": idempotency_key.PATTERN},
    }


def _if_match() -> Json:
    return {
        "name": precondition.HEADER,
        "in": "header",
        "required": False,
        "description": "The ETag that the request is for; another version is 412.",
        "schema": {"type": "string", "pattern": precondition.PATTERN},
    }


def _answer(route: Route, schemas: _Schemas) -> Json:
    success = _success(route)
    headers = {name: {**_HEADERS[name], "required": True} for name in success.headers}
    if route.takes_key:
        headers[REPLAYED] = _HEADERS[REPLAYED]
    answer: Json = {"description": "It is done." if route.commits else "It is here."}
    if headers:
        answer["headers"] = headers
    if success.body is not None:
        answer["content"] = {"application/json": {"schema": schemas.of(success.body, "serialization")}}
    return answer


def _problems(kinds: list[ProblemKind], schemas: _Schemas) -> dict[str, Json]:
    by_status = groupby(kinds, key=lambda kind: kind.status)
    return {str(status): _problem(list(those), schemas) for status, those in by_status}


def _problem(kinds: list[ProblemKind], schemas: _Schemas) -> Json:
    answer: Json = {
        "description": "\n".join(f"- `{kind.type}`: {kind.title}." for kind in kinds),
        "content": {CONTENT_TYPE: {"schema": schemas.of_problems(kinds)}},
    }
    if COME_BACK.intersection(kinds):
        answer["headers"] = {"Retry-After": _HEADERS["Retry-After"]}
    return answer
