"""The outbox as operators look at it: by status, page by page, and one event wherever it lies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from mailroom.cursor import read_cursor, write_cursor
from mailroom.needs import Need
from mailroom.outbox.event import SHARDS, shard_of_id
from mailroom.outbox.table import DEAD, DISCARDED, OutboxRow, pending, sent
from mailroom.paging import page_of
from mailroom.reading import Unreadable, read_keys, read_page, row_of

Status = Literal["pending", "sent", "dead", "discarded"]

Found = OutboxRow | Unreadable[OutboxRow]
_PAYLOAD = OutboxRow.payload.attr_name
_ALL_BUT_PAYLOAD = [name for name in OutboxRow.get_attributes() if name != _PAYLOAD]
_MAX_KEY_BYTES = 1024
"""https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html"""


NEEDS = Need(("dynamodb:BatchGetItem", "dynamodb:Query"), OutboxRow)
"""What looking at the outbox takes."""


class NotByShard(ValueError):
    """Events of this status are not kept by shard."""


def list_events(
    status: Status, *, shard: int | None = None, cursor: str | None = None, limit: int = 100
) -> tuple[list[Found], str | None]:
    """Answer events without their payloads, oldest first within a shard, and the cursor of the next page.

    Raises
    ------
    BadCursor
        If the cursor is malformed or belongs to another list.
    NotByShard
        If a shard is given for dead or discarded events.
    """
    return page_of(_partitions(status, shard), _read, cursor=cursor, limit=limit)


def find_event(event_id: str) -> Found | None:
    """Answer an event with all that is known of it, strongly consistent; None if there is none.

    One that is both sent and pending was sent: its relay stopped between the two writes. A row whose key is no event's
    id may be anywhere.
    """
    try:
        shards: Iterable[int] = [shard_of_id(event_id)]
    except ValueError:
        if not 0 < len(event_id.encode(errors="replace")) <= _MAX_KEY_BYTES:
            return None
        shards = range(SHARDS)
    places = [*map(sent, shards), DEAD, DISCARDED, *map(pending, shards)]
    found = read_keys(OutboxRow, [(place, event_id) for place in places])
    return min(found, key=lambda each: places.index(row_of(each).partition), default=None)


def _partitions(status: Status, shard: int | None) -> list[str]:
    if status in (DEAD, DISCARDED):
        if shard is not None:
            raise NotByShard(f"shard: {status} events are not kept by shard")
        return [status]
    of_shard = pending if status == "pending" else sent
    return [of_shard(each) for each in (range(SHARDS) if shard is None else (shard,))]


def _read(partition: str, start: str | None, limit: int) -> tuple[list[Found], str | None]:
    rows = OutboxRow.query(
        partition,
        consistent_read=True,
        limit=limit,
        page_size=limit,
        attributes_to_get=_ALL_BUT_PAYLOAD,
        last_evaluated_key=read_cursor(start, partition=partition, event_id=None),
    )
    found, following = read_page(OutboxRow, rows, without=(_PAYLOAD,))
    return found, write_cursor(following)
