"""The depth of each dead-letter queue beside what is listed of it, and a difference in words."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, RenderableType

from mailroom.cli.layout import count, facts, heading, paragraph
from mailroom.cli.listing import Listing
from mailroom.dead_letters.desk import Desk
from mailroom.dead_letters.queue import LOOKED_AT
from mailroom.deployment import DEAD, UNDELIVERED


@dataclass(frozen=True, slots=True)
class Depth:
    """One dead-letter queue.

    Parameters
    ----------
    listed
        How many dead letters the list has of it; None if the list was filtered, not read to its end, or is
        not about this queue.
    """

    messages: int
    listed: int | None
    remark: str

    @property
    def is_quiet(self) -> bool:
        """Whether there is nothing to say."""
        return not self.messages and not self.listed

    def to_dict(self) -> dict[str, Any]:
        """Answer it as JSON values."""
        return asdict(self)


def depths_beside(desk: Desk, listing: Listing, *, complete: bool) -> dict[str, Depth]:
    """Compare every queue with the list.

    Parameters
    ----------
    complete
        Whether the list leaves nothing out of the sources that it read whole.
    """
    listed = {name: 0 for name in listing.whole if complete}
    for letter in listing.letters:
        if letter.source in listed and letter.state == "dead":
            listed[letter.source] += 1
    return {name: _depth(name, messages, desk, listed) for name, messages in desk.depths().items()}


def show_depths(depths: dict[str, Depth]) -> RenderableType:
    """Show the queues that have something to say."""
    telling = {name: depth for name, depth in depths.items() if not depth.is_quiet}
    quiet = len(depths) - len(telling)
    if not telling:
        return paragraph(f"All {count(quiet, 'dead-letter queue')} are empty.")
    rest = [paragraph(f"{count(quiet, 'other is', 'others are')} empty.", indent=2)] if quiet else []
    shown = facts(
        (name, ", ".join(filter(None, (count(depth.messages, "message"), depth.remark))))
        for name, depth in telling.items()
    )
    return Group(heading("Dead-letter queues"), shown, *rest)


def _depth(name: str, messages: int, desk: Desk, listed: dict[str, int]) -> Depth:
    source = name.removesuffix(DEAD)
    if source not in desk.sources:
        what = "could not be started" if name.endswith(UNDELIVERED) else "failed"
        return Depth(messages, None, f"runs that {what}: see the runbook" if messages else "")
    if source not in listed:
        return Depth(messages, None, "")
    remark = _difference(messages, listed[source])
    if messages and name.endswith(UNDELIVERED):
        remark = f"a rule could not deliver them, {remark}"
    return Depth(messages, listed[source], remark)


def _difference(messages: int, listed: int) -> str:
    if messages > listed:
        untold = messages - listed
        return (
            f"{listed:,} listed: {untold:,} of which no record tells and that were not come upon (they are in "
            f"somebody's hands at this moment, or beyond the {LOOKED_AT:,} that are looked at)"
        )
    if messages < listed:
        return (
            f"{listed:,} listed: {listed - messages:,} not in the queue (SQS has not moved them there yet, they "
            "grew too old, or someone took them out)"
        )
    return "all listed" if messages else ""
