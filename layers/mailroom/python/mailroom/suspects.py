"""Messages during whose last attempt the function died: they may be what killed it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mailroom.clock import epoch_milliseconds
from mailroom.consumer import key_in, record_prefix
from mailroom.failures import Failure
from mailroom.idempotency import ENDED_SILENTLY, FAILED, INPROGRESS, IdempotencyRow, record_id
from mailroom.reading import read_keys
from mailroom.runtime import Runtime
from mailroom.sources.source import receives_of
from mailroom.telemetry import LogEvent, log_error


def in_order(
    records: Sequence[Mapping[str, Any]], consumer: str, runtime: Runtime
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Return the messages of a batch that are above suspicion, and the suspects after them.

    Among each, those that were delivered most often go first: SQS moves a message on after so many deliveries. Only a
    batch with a message that was delivered before takes a look at records. If they cannot be read, nobody is suspect.
    """
    ordered = sorted(records, key=receives_of, reverse=True)
    known = _suspects(ordered, consumer, runtime)
    return (
        [each for each in ordered if each["messageId"] not in known],
        [each for each in ordered if each["messageId"] in known],
    )


def _suspects(records: Sequence[Mapping[str, Any]], consumer: str, runtime: Runtime) -> set[str]:
    if len(records) < 2 or all(receives_of(each) == 1 for each in records):
        return set()
    ids = {each["messageId"]: record_id(record_prefix(consumer), key_in(each)) for each in records}
    try:
        rows = read_keys(IdempotencyRow, ids.values())
    except Exception as error:
        log_error(LogEvent.SUSPECTS_UNKNOWN, error, consumer=consumer)
        return set()
    now_ms = epoch_milliseconds(runtime.clock.now())
    ended = {row.id for row in rows if isinstance(row, IdempotencyRow) and _ended_silently(row, now_ms)}
    return {message_id for message_id, record in ids.items() if record in ended}


def _ended_silently(row: IdempotencyRow, now_ms: int) -> bool:
    if row.status == INPROGRESS:
        return int(row.in_progress_until) <= now_ms
    return row.status == FAILED and row.failure is not None and Failure.from_json(row.failure) == ENDED_SILENTLY
