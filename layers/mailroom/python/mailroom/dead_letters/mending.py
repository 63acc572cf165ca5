"""The mended copy that takes a dead event's place: also of one whose row cannot be read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from mailroom.clock import timestamp
from mailroom.dead_letters.letter import Action, Deed
from mailroom.dead_letters.outbox_row import Found, history_of
from mailroom.dead_letters.queue import DeadMessage
from mailroom.outbox.event import Envelope, EventIds, EventRefused, first_unsendable, id_of_copy
from mailroom.outbox.limits import check_size
from mailroom.outbox.table import OutboxRow
from mailroom.reading import Unreadable, item_of, row_of
from mailroom.runtime import Runtime
from mailroom.sources.source import MAX_MESSAGE_BYTES


@dataclass(frozen=True, slots=True)
class Mended:
    """What an operator says in place of attributes that cannot be read; an empty subject is none."""

    type: str | None = None
    subject: str | None = None

    def of(self, found: Found, source: str) -> OutboxRow:
        """Return what is known of an event with what was said; its source, where that is unknown too, is the stage's.

        Raises
        ------
        EventRefused
            If an attribute can be read that was said, or one was not said that cannot be read.
        """
        row = row_of(found)
        flaws = found.flaws if isinstance(found, Unreadable) else frozenset()
        for name, said in (("type", self.type), ("subject", self.subject)):
            if (said is None) == (name in flaws):
                raise EventRefused(f"its {name} cannot be read: say it" if said is None else f"its {name} can be read")
        known = OutboxRow(**row.attribute_values)
        known.type = row.type if self.type is None else self.type
        known.subject = row.subject if self.subject is None else self.subject or None
        known.source = row.source or source
        return known


def mended_copy(found: Found, payload: str | None, mended: Mended, deed: Deed, runtime: Runtime) -> OutboxRow:
    """Return the row of a new event that is the mended copy of a dead one.

    Parameters
    ----------
    payload
        JSON; None is the event's own.

    Raises
    ------
    EventRefused
        If it is not known what the event is, or it could never be delivered.
    """
    if payload is None and not isinstance(found, Unreadable):
        raise EventRefused("all of it can be read: say its mended payload, or redrive it")
    row = mended.of(found, runtime.settings.source)
    text = row.payload if payload is None else payload
    if text is None:
        raise EventRefused("its payload cannot be read: say one")
    if unsendable := first_unsendable(text):
        raise EventRefused(f"the character U+{ord(unsendable):04X} cannot be sent")
    # The copy's id is later than the event's; one that is no event's id says nothing of its time.
    before = row.after if OutboxRow.further_flaws(item_of(found)) else row.event_id
    event_id, moment = EventIds(runtime.clock, runtime.random).next(row.subject, before)
    envelope = Envelope(
        id=event_id,
        type=row.type,
        source=row.source,
        subject=row.subject,
        time=timestamp(moment),
        payload=text,
        traceparent=row.traceparent,
        after=row.after,
        parent=row.event_id,
    )
    copy = OutboxRow.pending(envelope)
    check_size(envelope, copy, runtime)
    copy.history = history_of(found, Action.EDIT, deed)
    return copy


def mended_message(message: DeadMessage, payload: str, now: datetime) -> Envelope:
    """Return the new event that is the mended copy of the one in a message; the same each time but for the payload.

    Raises
    ------
    EventRefused
        If no event can be read in the message, or the copy could never be sent.
    """
    dead = message.envelope
    if dead is None:
        raise EventRefused("no event can be read in the message: it can be discarded, or redriven as it is")
    if unsendable := first_unsendable(payload):
        raise EventRefused(f"the character U+{ord(unsendable):04X} cannot be sent")
    event_id = id_of_copy(dead.id, message.message_id, message.sent_at)
    copy = replace(dead, id=event_id, time=timestamp(now), payload=payload, parent=dead.id)
    size = len(copy.to_json().encode())
    if size > MAX_MESSAGE_BYTES:
        raise EventRefused(f"the event takes {size} bytes, and a message holds {MAX_MESSAGE_BYTES}")
    return copy
