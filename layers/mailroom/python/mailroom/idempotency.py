"""Idempotency records: one model and one persistence layer, for requests and for messages."""

from __future__ import annotations

from pynamodb.attributes import NumberAttribute, TTLAttribute, UnicodeAttribute

from mailroom.row import Row


class IdempotencyRow(Row):
    """What is known of one key: who works on it until when, or what came of it."""

    class Meta:
        short_name = "idempotency"

    id = UnicodeAttribute(hash_key=True)
    status = UnicodeAttribute()
    in_progress_until = NumberAttribute()
    expires_at = TTLAttribute()
    fingerprint = UnicodeAttribute(null=True)
    response = UnicodeAttribute(null=True)
    attempts = NumberAttribute(null=True)
    failure = UnicodeAttribute(null=True)
    message_id = UnicodeAttribute(null=True)
