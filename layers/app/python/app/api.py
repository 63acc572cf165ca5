"""The HTTP routes of the domain."""

from __future__ import annotations

from app.events import RepoCreated
from app.owners import Owner
from app.repos import Repo
from mailroom.http.api import Api
from mailroom.needs import Access

api = Api(access=Access(writes=(Repo, Owner), publishes=(RepoCreated,)))
