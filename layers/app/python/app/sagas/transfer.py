"""Move a repository from one owner to another, within both quotas."""

from __future__ import annotations

from pydantic import BaseModel

from app.events import RepoTransferred
from app.owners import Owner, count_repo, uncount_repo
from app.repos import Repo, SameOwner, TransferRepo
from mailroom.failures import Permanent
from mailroom.saga import Step, StepCall, saga, start
from mailroom.unit_of_work import UnitOfWork


class TransferData(BaseModel):
    """What is moved, and from whom to whom."""

    repo_id: str
    former_owner_id: str
    owner_id: str
    place_gone: bool = False
    """The place that was reserved went with the repository, which its new owner has removed or given on."""


class NotTheirs(Permanent):
    """The repository is not its former owner's any more."""


def reserve(data: TransferData, call: StepCall) -> None:
    """Count the repository to its new owner; the quota may say no."""
    count_repo(data.owner_id, call.work)


def give_place_back(data: TransferData, call: StepCall) -> None:
    """Uncount the repository of its new owner."""
    if not data.place_gone:
        uncount_repo(data.owner_id, call.work)


def move(data: TransferData, call: StepCall) -> None:
    """Give the repository to its new owner and tell of it."""
    repo = call.work.get(Repo, data.repo_id)
    if repo is None or repo.owner_id != data.former_owner_id:
        raise NotTheirs(f"the repository {data.repo_id} is not with {data.former_owner_id} any more")
    _give(repo, data.owner_id, call)


def move_back(data: TransferData, call: StepCall) -> TransferData | None:
    """Give the repository back; if its new owner has removed it or given it on, count it nowhere instead."""
    repo = call.work.get(Repo, data.repo_id)
    if repo is None or repo.owner_id != data.owner_id:
        uncount_repo(data.former_owner_id, call.work)
        return data.model_copy(update={"place_gone": True})
    _give(repo, data.former_owner_id, call)
    return None


def release(data: TransferData, call: StepCall) -> None:
    """Uncount the repository of its former owner."""
    uncount_repo(data.former_owner_id, call.work)


def _give(repo: Repo, owner_id: str, call: StepCall) -> None:
    former_owner_id, repo.owner_id = repo.owner_id, owner_id
    call.work.save(repo)
    transferred = RepoTransferred(repo_id=repo.id, name=repo.name, owner_id=owner_id, former_owner_id=former_owner_id)
    call.work.publish(transferred, about=repo)


transfer = saga(
    "transfer",
    data=TransferData,
    steps=[Step(reserve, give_place_back), Step(move, move_back), Step(release)],
    writes=[Repo, Owner],
    publishes=[RepoTransferred],
)


def transfer_repo(repo: Repo, command: TransferRepo, work: UnitOfWork) -> str:
    """Begin to move a repository to another owner; answer the saga's id.

    Raises
    ------
    SameOwner
        If it is that owner's already.
    """
    if command.new_owner_id == repo.owner_id:
        raise SameOwner(repo.owner_id)
    data = TransferData(repo_id=repo.id, former_owner_id=repo.owner_id, owner_id=command.new_owner_id)
    return start(transfer, data, work, owner_id=repo.owner_id)
