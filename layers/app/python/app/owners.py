"""Owners of repositories: where to write to them, and how many repositories they may have."""

from __future__ import annotations

from pynamodb.attributes import NumberAttribute, UnicodeAttribute

from mailroom.row import Row

DEFAULT_REPO_QUOTA = 100


class Owner(Row):
    """An owner; one that has no row has the default quota and no e-mail."""

    class Meta:
        short_name = "owners"

    id = UnicodeAttribute(hash_key=True)
    email = UnicodeAttribute(null=True)
    repo_quota = NumberAttribute(null=True)
    repo_count = NumberAttribute(null=True)
