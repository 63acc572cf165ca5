"""How answers look: plain columns and indented paragraphs that fit 80 columns, and pipes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mailroom.cli.durations import write_duration
from mailroom.clock import moment


def heading(text: str) -> Text:
    """Show a heading."""
    return Text(text, style="bold")


def paragraph(text: str, *, indent: int = 0) -> RenderableType:
    """Show text whose further lines are indented as its first."""
    return Padding(Text(text), (0, 0, 0, indent))


def columns(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[str] = ()) -> Table:
    """Show a table without lines; a cell that is too long goes on below itself, nothing is cut off."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in head:
        table.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def facts(pairs: Iterable[tuple[str, str | None]], *, indent: int = 2) -> RenderableType:
    """Show names with their values, leaving out what has none."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        if value:
            table.add_row(Text(name), Text(value))
    return Padding(table, (0, 0, 0, indent))


def age(written: str | None, now: datetime) -> str:
    """Show how long ago a moment was; nothing if there is none."""
    return f"{write_duration((now - moment(written)).total_seconds())} ago" if written else ""


def count(number: int, word: str, many: str | None = None) -> str:
    """Show a number of things, e.g. `1 letter`, `2 letters`."""
    return f"{number:,} {word if number == 1 else many or word + 's'}"


def or_more(number: int, limit: int) -> str:
    """Show a count that stopped at a limit as what it is."""
    return f"{number:,}+" if number >= limit else f"{number:,}"
