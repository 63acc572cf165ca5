"""The outbox table: its model, and every read and write that the relay makes of it."""

from __future__ import annotations

from pynamodb.attributes import NumberAttribute, TTLAttribute, UnicodeAttribute

from mailroom.row import Row


class OutboxRow(Row):
    """An event in the outbox. The partition is its status and, while it matters, its shard."""

    class Meta:
        short_name = "outbox"

    partition = UnicodeAttribute(hash_key=True)
    event_id = UnicodeAttribute(range_key=True)
    type = UnicodeAttribute()
    source = UnicodeAttribute()
    subject = UnicodeAttribute(null=True)
    payload = UnicodeAttribute()
    traceparent = UnicodeAttribute(null=True)
    after = UnicodeAttribute(null=True)
    created_at = UnicodeAttribute()
    retry_count = NumberAttribute(null=True)
    next_attempt_at = UnicodeAttribute(null=True)
    failure = UnicodeAttribute(null=True)
    sent_at = UnicodeAttribute(null=True)
    died_at = UnicodeAttribute(null=True)
    redriven = NumberAttribute(null=True)
    expires_at = TTLAttribute(null=True)
