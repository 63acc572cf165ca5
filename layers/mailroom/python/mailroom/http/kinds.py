"""The kinds of problem that the machinery knows: each name is part of the API and keeps its meaning."""

from __future__ import annotations

from typing import Final

from mailroom.http.problem import ProblemKind

INVALID_BODY: Final = ProblemKind(400, "invalid-body", "The body is not what this route takes")
INVALID_QUERY: Final = ProblemKind(400, "invalid-query", "A query parameter is not what this route takes")
INVALID_KEY: Final = ProblemKind(400, "invalid-idempotency-key", "The Idempotency-Key is missing or malformed")
INVALID_IF_MATCH: Final = ProblemKind(400, "invalid-if-match", "The If-Match is malformed")
EVENT_REFUSED: Final = ProblemKind(400, "event-refused", "The request leads to an event that cannot be delivered")
UNAUTHENTICATED: Final = ProblemKind(401, "unauthenticated", "The request carries no identity")
FORBIDDEN: Final = ProblemKind(403, "forbidden", "The request is about somebody else's things")
NOT_FOUND: Final = ProblemKind(404, "not-found", "There is nothing at this path")
METHOD_NOT_ALLOWED: Final = ProblemKind(405, "method-not-allowed", "This path does not take this method")
STILL_RUNNING: Final = ProblemKind(409, "request-in-progress", "An earlier request with this key is still running")
CONFLICT: Final = ProblemKind(409, "conflict", "Somebody else changed the same resource at the same moment")
STALE: Final = ProblemKind(412, "stale", "The resource has another version than the request is for")
TOO_LARGE: Final = ProblemKind(413, "too-large", "The request is too large")
UNSUPPORTED_MEDIA_TYPE: Final = ProblemKind(415, "unsupported-media-type", "The body's media type is not supported")
KEY_REUSED: Final = ProblemKind(422, "idempotency-key-reused", "The Idempotency-Key belongs to another request")
INTERNAL: Final = ProblemKind(500, "internal", "Something went wrong on our side")
UNAVAILABLE: Final = ProblemKind(503, "unavailable", "The service cannot take the request right now")
