"""How large an event may be: what the outbox holds, and what its destination takes."""

from __future__ import annotations

from mailroom.outbox.event import Envelope, EventRefused
from mailroom.outbox.room import MAX_EVENT_BYTES, size_of
from mailroom.outbox.table import OutboxRow
from mailroom.publishers.publisher import kind_of
from mailroom.runtime import Runtime


class EventTooLarge(EventRefused):
    """An event that would not fit the outbox or its destination; nothing was written."""


def check_size(envelope: Envelope, row: OutboxRow, runtime: Runtime) -> None:
    """Refuse an event that is too large.

    Raises
    ------
    EventTooLarge
        If it would not fit the outbox or its destination.
    """
    size = size_of(row.serialize())
    if size > MAX_EVENT_BYTES:
        raise EventTooLarge(f"{envelope.type} takes {size} bytes in the outbox, which holds {MAX_EVENT_BYTES}")
    kind, _ = kind_of(runtime.settings.publisher_url)
    on_wire = kind.size(envelope)
    if on_wire > kind.limits.entry_bytes:
        raise EventTooLarge(
            f"{envelope.type} takes {on_wire} bytes on its way, and its destination {kind.limits.entry_bytes}"
        )
    type_bytes = len(envelope.type.encode())
    if kind.limits.type_bytes is not None and type_bytes > kind.limits.type_bytes:
        raise EventTooLarge(f"the type {envelope.type!r} has {type_bytes} bytes, and goes in {kind.limits.type_bytes}")
