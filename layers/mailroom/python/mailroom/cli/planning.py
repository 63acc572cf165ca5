"""What a redrive or a discard is about: letters named by id, or all that a filter keeps."""

from __future__ import annotations

from collections.abc import Sequence

from mailroom.cli.errors import UsageError
from mailroom.dead_letters.desk import Desk
from mailroom.dead_letters.filter import Filter
from mailroom.dead_letters.letter import OUTBOX
from mailroom.dead_letters.redrive import Plan


def plan_of(
    desk: Desk, ids: Sequence[str], wanted: Filter, *, source: str | None, all_: bool, limit: int | None
) -> Plan:
    """Freeze what is meant.

    Raises
    ------
    UsageError
        If it is not clear what is meant.
    UnknownSource
        If there is no such source.
    """
    filtered = source is not None or not wanted.keeps_all or all_
    if ids and (all_ or limit is not None or not wanted.keeps_all):
        raise UsageError("name ids, or filter and limit, or take --all: not both")
    if not ids and not filtered:
        raise UsageError("say which letters: ids, --source, --type, --fingerprint or another filter, or --all")
    if source is not None:
        desk.of(source)
    if ids:
        return _together([Plan.naming(desk, name, some) for name, some in by_source(desk, ids, source).items()])
    return Plan.matching(desk, source=source, keep=wanted.keeps, limit=limit)


def by_source(desk: Desk, ids: Sequence[str], source: str | None) -> dict[str, list[str]]:
    """Answer which source each id is meant of: the one given, or the only one at which it died.

    What is in no list is looked for in the dead-letter queues. An id that died nowhere is the outbox's, which knows
    where it is instead.

    Raises
    ------
    UsageError
        If an id died at several and none is given.
    UnknownSource
        If there is no such source.
    """
    wanted = list(dict.fromkeys(ids))
    if source is not None:
        return {desk.of(source).name: wanted}
    places = {event_id: [letter.source for letter in desk.find(event_id)] for event_id in wanted}
    for letter in desk.search(event_id for event_id in wanted if not places[event_id]).letters:
        places[letter.id].append(letter.source)
    found: dict[str, list[str]] = {}
    for event_id, died_at in places.items():
        if len(died_at) > 1:
            raise UsageError(f"{event_id} died at several: say which by --source {' or --source '.join(died_at)}")
        found.setdefault(died_at[0] if died_at else OUTBOX, []).append(event_id)
    return found


def _together(plans: Sequence[Plan]) -> Plan:
    """Make one plan of several; no id is in two of them."""
    return Plan(
        letters=tuple(letter for plan in plans for letter in plan.letters),
        succeeded=frozenset().union(*(plan.succeeded for plan in plans)),
        forgotten=frozenset().union(*(plan.forgotten for plan in plans)),
        expiring=frozenset().union(*(plan.expiring for plan in plans)),
    )
