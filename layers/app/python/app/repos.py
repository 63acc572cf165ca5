"""Repositories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, StringConstraints
from pynamodb.attributes import UnicodeAttribute
from pynamodb.indexes import AllProjection, GlobalSecondaryIndex

from app.events import RepoCreated, RepoDeleted, RepoRenamed
from app.line import LINE
from app.owners import OwnerId, count_repo, uncount_repo
from mailroom.clock import timestamp
from mailroom.http.command import Command
from mailroom.legible_text import legible
from mailroom.row import SubjectRow
from mailroom.unit_of_work import UnitOfWork

RepoName = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=100, pattern=LINE),
    AfterValidator(legible),
]
"""One line of text: white space around it is not part of the name, and it has no control characters; something of it
can be seen."""


class NoSuchRepo(Exception):
    """There is no repository with this id."""

    def __init__(self, repo_id: str) -> None:
        super().__init__(f"there is no repository {repo_id}")


class ReposOfOwner(GlobalSecondaryIndex["Repo"]):  # type: ignore[no-untyped-call]
    """The repositories of each owner, oldest first; it follows the table within moments."""

    class Meta:
        index_name = "of_owner"
        projection = AllProjection()

    owner_id = UnicodeAttribute(hash_key=True)
    id = UnicodeAttribute(range_key=True)


class Repo(SubjectRow):
    """A repository; events about it have the subject `repos/<id>`."""

    class Meta:
        short_name = "repos"

    id = UnicodeAttribute(hash_key=True)
    name = UnicodeAttribute()
    owner_id = UnicodeAttribute()
    created_at = UnicodeAttribute()
    of_owner = ReposOfOwner()


class SameOwner(Exception):
    """A repository is to be transferred to the owner that it has."""

    def __init__(self, owner_id: str) -> None:
        super().__init__(f"the repository is {owner_id}'s already")


class CreateRepo(Command):
    """What a new repository is made of."""

    name: RepoName
    owner_id: OwnerId


class RenameRepo(Command):
    """What a repository is to be called."""

    name: RepoName


class TransferRepo(Command):
    """Whose a repository is to be."""

    new_owner_id: OwnerId


def create_repo(command: CreateRepo, work: UnitOfWork) -> Repo:
    """Make a repository; the commit raises `QuotaExceeded` if its owner may have no more."""
    repo = Repo(work.new_id(), name=command.name, owner_id=command.owner_id, created_at=timestamp(work.now()))
    work.save(repo)
    work.publish(RepoCreated(repo_id=repo.id, name=repo.name, owner_id=repo.owner_id), about=repo)
    count_repo(repo.owner_id, work)
    return repo


def find_repo(repo_id: str, work: UnitOfWork) -> Repo:
    """Answer a repository.

    Raises
    ------
    NoSuchRepo
        If there is none.
    """
    repo = work.get(Repo, repo_id)
    if repo is None:
        raise NoSuchRepo(repo_id)
    return repo


def list_repos(
    owner_id: str, work: UnitOfWork, *, after: Mapping[str, Any] | None, limit: int
) -> tuple[list[Repo], dict[str, Any] | None]:
    """Answer some repositories of an owner, oldest first, and the key that the next ones come after."""
    return work.page(Repo, Repo.of_owner, owner_id, after=after, limit=limit)


def rename_repo(repo: Repo, command: RenameRepo, work: UnitOfWork) -> None:
    """Give a repository another name; one that has it already is left alone, and nobody is told of it."""
    if command.name == repo.name:
        return
    former_name, repo.name = repo.name, command.name
    work.save(repo)
    renamed = RepoRenamed(repo_id=repo.id, name=repo.name, former_name=former_name, owner_id=repo.owner_id)
    work.publish(renamed, about=repo)


def delete_repo(repo: Repo, work: UnitOfWork) -> None:
    """Remove a repository; its owner may have another one instead."""
    work.delete(repo)
    work.publish(RepoDeleted(repo_id=repo.id, name=repo.name, owner_id=repo.owner_id), about=repo)
    uncount_repo(repo.owner_id, work)
