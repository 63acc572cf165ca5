"""Repositories over HTTP."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel

from app.events import RepoCreated, RepoDeleted, RepoRenamed
from app.owners import Owner, OwnerId, QuotaExceeded
from app.repos import (
    CreateRepo,
    NoSuchRepo,
    RenameRepo,
    Repo,
    SameOwner,
    TransferRepo,
    create_repo,
    delete_repo,
    find_repo,
    list_repos,
    rename_repo,
)
from app.sagas.transfer import transfer_repo
from mailroom.http.call import Call
from mailroom.http.precondition import etag
from mailroom.http.problem import ProblemKind
from mailroom.http.query import Limit, Query
from mailroom.http.reply import Reply
from mailroom.http.route import Success
from mailroom.http.routes import Routes
from mailroom.needs import Access
from mailroom.saga import STARTING

routes = Routes(
    access=Access(writes=(Repo, Owner), publishes=(RepoCreated, RepoRenamed, RepoDeleted)) | STARTING,
    problems={
        QuotaExceeded: ProblemKind(409, "quota-exceeded", "The owner's quota of repositories is used up"),
        NoSuchRepo: ProblemKind(404, "no-such-repo", "There is no such repository"),
        SameOwner: ProblemKind(422, "same-owner", "The repository is that owner's already"),
    },
)


class RepoView(BaseModel):
    """A repository as callers see it."""

    id: str
    name: str
    owner_id: str
    version: int
    created_at: str

    @classmethod
    def of(cls, repo: Repo) -> Self:
        """Show a repository."""
        return cls(
            id=repo.id,
            name=repo.name,
            owner_id=repo.owner_id,
            version=int(repo.version),
            created_at=repo.created_at,
        )


class RepoPage(BaseModel):
    """Some repositories of an owner, oldest first; the last page has no `next_cursor`."""

    items: list[RepoView]
    next_cursor: str | None


class TransferView(BaseModel):
    """What was begun: the saga tells how it goes on."""

    saga_id: str


class ListRepos(Query):
    """Whose repositories to list, and from where on."""

    owner_id: OwnerId
    limit: Limit = 25
    cursor: str | None = None


_REPO = Success(200, RepoView, headers=("ETag",))


@routes.post(
    "/api/v1/repos",
    body=CreateRepo,
    success=Success(201, RepoView, headers=("Location", "ETag")),
    raises=[QuotaExceeded],
)
def post_repo(command: CreateRepo, call: Call) -> Reply:
    """Make a repository."""
    repo = create_repo(command, call.work)
    return Reply(201, RepoView.of(repo), location=f"/api/v1/repos/{repo.id}", etag=etag(repo.version))


@routes.get("/api/v1/repos", query=ListRepos, success=Success(200, RepoPage))
def get_repos(query: ListRepos, call: Call) -> Reply:
    """List an owner's repositories.

    The list follows what happens within moments: a new repository may be missing at first. Nothing that was there
    all the time is left out or repeated from page to page. The last page has no `next_cursor`, and may be empty.
    """
    after = call.cursors.read(query.cursor, owner_id=query.owner_id, id=None)
    repos, last = list_repos(query.owner_id, call.work, after=after, limit=query.limit)
    return Reply(200, RepoPage(items=[RepoView.of(repo) for repo in repos], next_cursor=call.cursors.write(last)))


@routes.get("/api/v1/repos/{repo_id}", success=_REPO, raises=[NoSuchRepo])
def get_repo(call: Call, repo_id: str) -> Reply:
    """Show a repository."""
    return _shown(_named(repo_id, call))


@routes.patch("/api/v1/repos/{repo_id}", body=RenameRepo, success=_REPO, raises=[NoSuchRepo])
def patch_repo(command: RenameRepo, call: Call, repo_id: str) -> Reply:
    """Rename a repository."""
    repo = _named(repo_id, call)
    rename_repo(repo, command, call.work)
    return _shown(repo)


@routes.post(
    "/api/v1/repos/{repo_id}/transfer",
    body=TransferRepo,
    success=Success(202, TransferView, headers=("Location",)),
    raises=[NoSuchRepo, SameOwner],
    versioned=True,
)
def post_transfer(command: TransferRepo, call: Call, repo_id: str) -> Reply:
    """Begin to move a repository to another owner.

    It goes on by itself. If the new owner's quota is used up, or the repository is deleted or given to somebody else
    meanwhile, everything is as it was before. The version that If-Match names is the one in which it begins.
    """
    repo = _named(repo_id, call)
    if call.if_match.tags:
        call.work.unchanged(repo)
    saga_id = transfer_repo(repo, command, call.work)
    return Reply(202, TransferView(saga_id=saga_id), location=f"/api/v1/sagas/{saga_id}")


@routes.delete("/api/v1/repos/{repo_id}", success=Success(204), raises=[NoSuchRepo])
def remove_repo(call: Call, repo_id: str) -> Reply:
    """Remove a repository."""
    delete_repo(_named(repo_id, call), call.work)
    return Reply(204)


def _named(repo_id: str, call: Call) -> Repo:
    repo = find_repo(repo_id, call.work)
    if not call.caller.may_act_for(repo.owner_id):
        raise NoSuchRepo(repo_id)  # not 403: it would tell that there is one
    call.if_match.check(repo.version)
    return repo


def _shown(repo: Repo) -> Reply:
    return Reply(200, RepoView.of(repo), etag=etag(repo.version))
