"""How letters are shown: those that failed alike together, with a few ids of each group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.text import Text

from mailroom.cli.durations import write_duration
from mailroom.cli.layout import count, heading, paragraph
from mailroom.dead_letters.desk import Group, groups
from mailroom.dead_letters.letter import DeadLetter

IDS_SHOWN = 5
"""Ids of each group, unless more are asked for."""


def show_groups(
    letters: Sequence[DeadLetter], now: datetime, *, ids: int, rest: Callable[[Group], str]
) -> Iterator[RenderableType]:
    """Show each group, the largest first.

    Parameters
    ----------
    ids
        How many ids of a group are shown.
    rest
        Says how to see the others.
    """
    for group in groups(iter(letters)):
        members = [letter for letter in letters if _is_in(letter, group)]
        yield heading(f"{count(group.count, group.type, group.type)} from {group.source}")
        yield paragraph(group.failure, indent=2)
        yield paragraph(f"fingerprint {group.fingerprint}", indent=2)
        if group.last:
            yield paragraph(f"first {group.first}, last {group.last}", indent=2)
        for letter in members[:ids]:
            yield paragraph(_line(letter, now), indent=4)
        if 0 < ids < len(members):
            yield paragraph(f"and {len(members) - ids:,} more: {rest(group)}", indent=4)
        yield Text()


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
