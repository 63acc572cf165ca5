"""What happens in the domain. Payloads only grow: a new meaning is a new type."""

from __future__ import annotations

from mailroom.outbox.event import Event


class RepoCreated(Event, type="repo.created"):
    """A repository was created."""

    repo_id: str
    name: str
    owner_id: str
