"""`mailroom dead list`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from mailroom.cli.depths import depths_beside, show_depths
from mailroom.cli.durations import write_duration
from mailroom.cli.layout import count, heading, paragraph
from mailroom.cli.listing import Lister, Listing
from mailroom.cli.operator import Operator
from mailroom.dead_letters.desk import Group, groups
from mailroom.dead_letters.filter import Filter
from mailroom.dead_letters.letter import DeadLetter

_IDS_SHOWN = 5


def list_dead(
    operator: Operator,
    wanted: Filter,
    *,
    source: str | None,
    cursor: str | None,
    limit: int | None,
    retrying: bool,
    only_groups: bool,
) -> None:
    """List dead letters, those that failed alike together, and the depth of every dead-letter queue beside them."""
    desk = operator.desk
    listing = Lister(desk, wanted, limit=limit, retrying=retrying).page(source=source, cursor=cursor)
    depths = depths_beside(desk, listing, complete=wanted.keeps_all)
    alike = groups(iter(listing.letters))
    document: dict[str, Any] = {
        "groups": [asdict(group) for group in alike],
        "letters": [] if only_groups else [letter.to_dict() for letter in listing.letters],
        "retrying": listing.retrying,
        "queues": {name: depth.to_dict() for name, depth in depths.items()},
        "cursor": listing.cursor,
    }
    ids = 0 if only_groups else len(listing.letters) if wanted.fingerprint else _IDS_SHOWN
    operator.answer(document, *_shown(listing, alike, ids, operator.now), show_depths(depths), *_next(listing))


def _shown(listing: Listing, alike: list[Group], ids: int, now: datetime) -> Iterator[RenderableType]:
    if not listing.letters:
        yield paragraph("No dead letters" + (" in this part of the list." if listing.cursor else "."))
    for group in alike:
        members = [letter for letter in listing.letters if _is_in(letter, group)]
        yield heading(f"{count(group.count, group.type, group.type)} from {group.source}")
        yield paragraph(group.failure, indent=2)
        yield paragraph(f"fingerprint {group.fingerprint}", indent=2)
        yield paragraph(f"first {group.first}, last {group.last}", indent=2)
        for letter in members[:ids]:
            yield paragraph(_line(letter, now), indent=4)
        if 0 < ids < len(members):
            yield paragraph(f"and {len(members) - ids:,} more: --fingerprint {group.fingerprint}", indent=4)
        yield Text()
    if listing.retrying:
        yield paragraph(f"{count(listing.retrying, 'more is', 'more are')} being retried: --retrying lists such too.")


def _next(listing: Listing) -> Iterator[RenderableType]:
    if listing.cursor:
        yield paragraph(f"{count(listing.looked_at, 'letter was', 'letters were')} read, and there are more: --all, or")
        yield Text(f"--cursor {listing.cursor}", overflow="ignore", no_wrap=True)


def _is_in(letter: DeadLetter, group: Group) -> bool:
    return (letter.source, letter.type, letter.failure.fingerprint) == (group.source, group.type, group.fingerprint)


def _line(letter: DeadLetter, now: datetime) -> str:
    parts = [letter.id, letter.subject or "", count(letter.attempts, "attempt")]
    if letter.state != "dead":
        parts.append(letter.state)
    if letter.redriven:
        parts.append(f"redriven {count(letter.redriven, 'time')}")
    if letter.expires_at:
        parts.append(f"leaves in {write_duration((letter.expires_at - now).total_seconds())}")
    return "  ".join(filter(None, parts))
