"""Leases: one holder at a time, and a fencing token that only grows."""

from __future__ import annotations

from pynamodb.attributes import BooleanAttribute, NumberAttribute, UnicodeAttribute

from mailroom.row import Row


class LeaseRow(Row):
    """A lease, held or free. Lease rows are never deleted: their token must not start again."""

    class Meta:
        short_name = "leases"

    name = UnicodeAttribute(hash_key=True)
    token = NumberAttribute()
    holder = UnicodeAttribute()
    held_until = NumberAttribute()
    clean = BooleanAttribute()
    memo = UnicodeAttribute(null=True)
