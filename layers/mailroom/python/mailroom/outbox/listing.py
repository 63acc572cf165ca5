"""The outbox as operators look at it: by status, page by page, and one event wherever it lies."""

from __future__ import annotations

from typing import Literal

from mailroom.cursor import read_cursor, write_cursor
from mailroom.outbox.event import SHARDS, shard_of_id
from mailroom.outbox.table import DEAD, DISCARDED, OutboxRow, pending, sent
from mailroom.paging import page_of

Status = Literal["pending", "sent", "dead", "discarded"]

_ALL_BUT_PAYLOAD = [name for name in OutboxRow.get_attributes() if name != OutboxRow.payload.attr_name]


class NotByShard(ValueError):
    """Events of this status are not kept by shard."""


def list_events(
    status: Status, *, shard: int | None = None, cursor: str | None = None, limit: int = 100
) -> tuple[list[OutboxRow], str | None]:
    """Answer events without their payloads, oldest first within a shard, and the cursor of the next page.

    Raises
    ------
    BadCursor
        If the cursor is malformed or belongs to another list.
    NotByShard
        If a shard is given for dead or discarded events.
    """
    return page_of(_partitions(status, shard), _read, cursor=cursor, limit=limit)


def find_event(event_id: str) -> OutboxRow | None:
    """Answer an event with all that is known of it, strongly consistent; None if there is none.

    One that is both sent and pending was sent: its relay stopped between the two writes.
    """
    try:
        shard = shard_of_id(event_id)
    except ValueError:
        return None
    places = (sent(shard), DEAD, DISCARDED, pending(shard))
    rows = OutboxRow.batch_get([(place, event_id) for place in places], consistent_read=True)
    return min(rows, key=lambda row: places.index(row.partition), default=None)


def status_of(row: OutboxRow) -> str:
    """Answer the status of a row: its partition without the shard."""
    return row.partition.partition("#")[0]


def _partitions(status: Status, shard: int | None) -> list[str]:
    if status in (DEAD, DISCARDED):
        if shard is not None:
            raise NotByShard(f"shard: {status} events are not kept by shard")
        return [status]
    of_shard = pending if status == "pending" else sent
    return [of_shard(each) for each in (range(SHARDS) if shard is None else (shard,))]


def _read(partition: str, start: str | None, limit: int) -> tuple[list[OutboxRow], str | None]:
    rows = OutboxRow.query(
        partition,
        consistent_read=True,
        limit=limit,
        page_size=limit,
        attributes_to_get=_ALL_BUT_PAYLOAD,
        last_evaluated_key=read_cursor(start, partition=partition, event_id=None),
    )
    found = list(rows)
    return found, write_cursor(rows.last_evaluated_key)
