"""What happens in the domain. Payloads only grow: a new meaning is a new type."""

from __future__ import annotations

from mailroom.outbox.event import Event


class RepoCreated(Event, type="repo.created"):
    """A repository was created."""

    repo_id: str
    name: str
    owner_id: str


class RepoRenamed(Event, type="repo.renamed"):
    """A repository has another name."""

    repo_id: str
    name: str
    former_name: str
    owner_id: str


class RepoTransferred(Event, type="repo.transferred"):
    """A repository has another owner."""

    repo_id: str
    name: str
    owner_id: str
    former_owner_id: str


class RepoDeleted(Event, type="repo.deleted"):
    """A repository is gone; its id is never used again."""

    repo_id: str
    name: str
    owner_id: str


class ReportRequested(Event, type="report.requested"):
    """A report on an owner's repositories is wanted."""

    report_id: str
    owner_id: str


class OwnerEmailChanged(Event, type="owner.email_changed"):
    """An owner has an address that is to be confirmed: it is in the owner's row alone, as the one of this change."""

    owner_id: str
    change_id: str
