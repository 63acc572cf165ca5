"""The ledger: what a run must have come to, and what is wrong where it hasn't."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mailroom.http.testing import ApiAnswer
from mailroom.idempotency import COMPLETED
from mailroom.outbox.table import DEAD, DISCARDED, SENT_PREFIX

from .faults import Fault, Strike
from .world import World


class Flaw(StrEnum):
    """How a run can go wrong."""

    LOST = "lost"
    DUPLICATED = "duplicated"
    STUCK = "stuck"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    flaw: Flaw
    what: str


def once(what: str, count: int) -> Iterator[Finding]:
    """Find what is not there exactly once."""
    if count < 1:
        yield Finding(Flaw.LOST, f"{what}: none")
    if count > 1:
        yield Finding(Flaw.DUPLICATED, f"{what}: {count}")


def sound(world: World, faults: Iterable[Strike]) -> Iterator[Finding]:
    """Find what is wrong after whatever scenario."""
    yield from _events_are_somewhere(world)
    yield from _events_were_published(world, set(faults))
    yield from _order_was_kept(world)


def published(world: World, ids: Iterable[str]) -> Iterator[Finding]:
    """Find events that were never published, though no destination refused them for good."""
    refused = refused_for_good(world)
    for event_id in ids:
        if event_id not in world.journal.published and event_id not in refused:
            yield Finding(Flaw.LOST, f"{event_id} was never published")


def refused_for_good(world: World) -> set[str]:
    """Answer the events that are dead because a destination refused them for good."""
    dead = (row for row in world.outbox if row["partition"] == DEAD)
    return {row["event_id"] for row in dead if json.loads(row["failure"])["type"] in world.final_refusals}


def nothing_waits(world: World) -> Iterator[Finding]:
    """Find events that are pending and messages that lie in a queue."""
    for row in world.pending:
        yield Finding(Flaw.STUCK, f"{row['event_id']} is still pending")
    if world.messages:
        yield Finding(Flaw.STUCK, f"{world.messages} messages are left in the queues")


def one_command(world: World, answers: list[ApiAnswer]) -> Iterator[Finding]:
    """Find a POST that was not carried out once, or not answered with what its record keeps."""
    yield from once("rows of the repository", len(world.aws.items("repos")))
    yield from once("commands committed", sum(int(row["repo_count"]) for row in _owners(world)))
    yield from once("events committed", len(world.journal.committed))
    kept = [json.loads(record["response"]) for record in world.records if _is_of_post(record)]
    yield from once("records completed", len(kept))
    for answer in answers:
        if [(answer.status, answer.text)] != [(each["status"], each["body"]) for each in kept]:
            yield Finding(Flaw.LOST, f"the client was told {answer.status} {answer.text}, the record keeps {kept}")
        if answer.status != 201:
            yield Finding(Flaw.LOST, f"the client was told {answer.status}: {answer.text}")


def one_effect_each(world: World, ids: Iterable[str]) -> Iterator[Finding]:
    """Find events whose effect did not happen exactly once."""
    effects = world.effects
    for event_id in dict.fromkeys([*ids, *effects]):
        yield from once(f"effects of {event_id}", effects[event_id])


def records_completed(world: World) -> Iterator[Finding]:
    """Find records of work that was done and is not known as done."""
    for record in world.records:
        if record["status"] != COMPLETED or "failing" in record:
            yield Finding(Flaw.STUCK, f"the record {record['id']} is {record['status']} for good")


def places(world: World) -> Mapping[str, list[dict[str, Any]]]:
    """Answer the rows that each event has."""
    found: dict[str, list[dict[str, Any]]] = {event_id: [] for event_id in world.journal.committed}
    for row in world.outbox:
        found.setdefault(row["event_id"], []).append(row)
    return found


def _events_are_somewhere(world: World) -> Iterator[Finding]:
    for event_id, rows in places(world).items():
        partitions = sorted(row["partition"] for row in rows)
        if not rows:
            yield Finding(Flaw.LOST, f"{event_id} is nowhere in the outbox")
        if len(rows) > 1:
            yield Finding(Flaw.STUCK, f"{event_id} is in {' and '.join(partitions)}")
        for row in rows:
            yield from _row_is_whole(event_id, row)


def _row_is_whole(event_id: str, row: dict[str, Any]) -> Iterator[Finding]:
    if "payload" not in row:
        yield Finding(Flaw.STUCK, f"{event_id} is a ghost in {row['partition']}: it has no payload")
    if row["partition"] == DEAD and "failure" not in row:
        yield Finding(Flaw.LOST, f"{event_id} is dead without a reason")
    if row["partition"] == DISCARDED and "history" not in row:
        yield Finding(Flaw.LOST, f"{event_id} is discarded without a reason")


_MAY_REPEAT = {Fault.DIES_BEFORE, Fault.DIES_AFTER, Fault.TIMES_OUT, Fault.OUTAGE, Fault.STALLS}


def _events_were_published(world: World, faults: set[Strike]) -> Iterator[Finding]:
    published = Counter(world.journal.published)
    for event_id, rows in places(world).items():
        if any(row["partition"].startswith(SENT_PREFIX) for row in rows) and not published[event_id]:
            yield Finding(Flaw.LOST, f"{event_id} is marked sent and was never published")
        if published[event_id] > 1 and not faults & _MAY_REPEAT:
            yield Finding(Flaw.DUPLICATED, f"{event_id} was published {published[event_id]} times, without a crash")
    # A relay that stalls between its look at the lease and its write is the stated limit of that guarantee.
    if Fault.STALLS not in faults:
        for event_id in world.journal.published_after_mark:
            yield Finding(Flaw.DUPLICATED, f"{event_id} was published after it had been marked sent")


def _order_was_kept(world: World) -> Iterator[Finding]:
    first = list(dict.fromkeys(world.journal.published))
    by_subject: dict[str, list[str]] = {}
    for event_id, subject in world.journal.committed.items():
        if subject is not None and event_id in first:
            by_subject.setdefault(subject, []).append(event_id)
    for subject, ids in by_subject.items():
        if sorted(ids, key=first.index) != ids:
            yield Finding(Flaw.LOST, f"the order of {subject} is lost")


def _owners(world: World) -> list[dict[str, Any]]:
    return [row for row in world.aws.items("owners") if row["id"] == "owner-1"]


def _is_of_post(record: dict[str, Any]) -> bool:
    return record["status"] == COMPLETED and "POST" in record["id"]
