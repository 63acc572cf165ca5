"""`mailroom dead list`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from mailroom.cli.depths import depths_beside, show_depths
from mailroom.cli.groups import IDS_SHOWN, show_groups
from mailroom.cli.layout import count, paragraph
from mailroom.cli.listing import Lister, Listing
from mailroom.cli.operator import Operator
from mailroom.dead_letters.desk import groups
from mailroom.dead_letters.filter import Filter


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
    ids = 0 if only_groups else len(listing.letters) if wanted.fingerprint else IDS_SHOWN
    shown = _shown(listing, ids, operator.now, asked_for=retrying)
    operator.answer(document, *shown, show_depths(depths), *_next(listing))


def _shown(listing: Listing, ids: int, now: datetime, *, asked_for: bool) -> Iterator[RenderableType]:
    if not listing.letters:
        yield paragraph("No dead letters" + (" in this part of the list." if listing.cursor else "."))
    yield from show_groups(listing.letters, now, ids=ids, rest=lambda group: f"--fingerprint {group.fingerprint}")
    if listing.retrying and asked_for:
        yield paragraph(f"Of these, {count(listing.retrying, 'is', 'are')} still being retried.")
    elif listing.retrying:
        yield paragraph(f"{count(listing.retrying, 'more is', 'more are')} being retried: --retrying lists such too.")
    if listing.retrying:
        yield Text()


def _next(listing: Listing) -> Iterator[RenderableType]:
    if listing.cursor:
        yield paragraph(f"{count(listing.looked_at, 'letter was', 'letters were')} read, and there are more: --all, or")
        yield Text(f"--cursor {listing.cursor}", overflow="ignore", no_wrap=True)
