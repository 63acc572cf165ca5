"""Rows and events for the tests of the unit of work."""

from __future__ import annotations

import pytest

from app.events import RepoCreated
from app.owners import Owner
from app.repos import Repo
from mailroom.needs import Access
from mailroom.outbox.table import OutboxRow
from mailroom.runtime import Runtime
from mailroom.unit_of_work import UnitOfWork

from ..lagging import lagging_reads  # noqa: F401 - for every test here

ACCESS = Access(reads=(Repo,), writes=(Repo, Owner), publishes=(RepoCreated,))


@pytest.fixture
def work(runtime: Runtime) -> UnitOfWork:
    return UnitOfWork(runtime, ACCESS)


def repo(name: str = "tool", repo_id: str = "1") -> Repo:
    return Repo(repo_id, name=name, owner_id="owner-1", created_at="2030-01-01T00:00:00.000Z")


def created(name: str = "tool") -> RepoCreated:
    return RepoCreated(repo_id="1", name=name, owner_id="owner-1")


def events() -> list[OutboxRow]:
    return sorted(OutboxRow.scan(consistent_read=True), key=lambda row: row.event_id)
