"""Repositories."""

from __future__ import annotations

from pynamodb.attributes import UnicodeAttribute

from mailroom.row import SubjectRow


class Repo(SubjectRow):
    """A repository; events about it have the subject `repos/<id>`."""

    class Meta:
        short_name = "repos"

    id = UnicodeAttribute(hash_key=True)
    name = UnicodeAttribute()
    owner_id = UnicodeAttribute()
    created_at = UnicodeAttribute()
