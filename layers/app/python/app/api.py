"""The HTTP API of the domain."""

from __future__ import annotations

from app.routes import owners, reports, repos, sagas, webhooks
from mailroom.http.api import Api
from mailroom.http.openapi import About, serve_document

api = Api(owner="owner_id").include(repos.routes, owners.routes, reports.routes, sagas.routes, webhooks.routes)

ABOUT = About(
    title="Repositories",
    version="1",
    description="""\
The example domain of Mailroom: repositories and their owners.

- Every answer that is no success is a problem (RFC 9457); its `type` keeps its meaning.
- A POST happens once per `Idempotency-Key`, a PATCH or DELETE that has one too. The same request is the same method,
  path, query, If-Match and JSON value, however it is written; another one under the same key is 422. A key is its
  caller's own and lives for a day. Failures are not stored: the same key tries again.
- Lists follow what happens within moments.
- A caller with a token acts for the owner that its subject is, and for nobody else.
""",
)

serve_document(api, "/api/v1/openapi.json", ABOUT)
