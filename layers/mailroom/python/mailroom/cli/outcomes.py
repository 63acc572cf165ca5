"""Outcomes: what became of each letter, told as it is known and summed up at the end."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mailroom.cli.errors import EXPECTED, explain
from mailroom.cli.layout import count, paragraph
from mailroom.cli.operator import Operator, is_terminal
from mailroom.dead_letters.letter import Fate, Result


@dataclass(slots=True)
class Outcomes:
    """What became of the letters so far, and what stopped it before the end, if something did."""

    planned: int
    results: list[Result] = field(default_factory=list)
    stopped: str | None = None

    @property
    def all_done(self) -> bool:
        """Whether every letter is as it was meant to be."""
        return self.stopped is None and all(result.ok for result in self.results)

    @property
    def counts(self) -> dict[str, int]:
        """How many letters each fate has, the good ones first."""
        found = Counter(result.fate for result in self.results)
        return {fate.value: found[fate] for fate in Fate if fate in found}

    def to_dict(self) -> dict[str, Any]:
        """Answer it as JSON values."""
        return {
            "results": [
                {"id": each.id, "source": each.source, "fate": each.fate.value, "detail": each.detail}
                for each in self.results
            ],
            "counts": self.counts,
            "stopped": self.stopped,
        }

    def summary(self) -> str:
        """Say it in one sentence."""
        told = ", ".join(f"{number:,} {fate}" for fate, number in self.counts.items()) or "none tried"
        return f"Of {count(self.planned, 'letter')}: {told}."


def collect(operator: Operator, results: Iterable[Result], *, planned: int) -> Outcomes:
    """Do the work that the results come from; tell each as it is known, and keep them all whatever happens."""
    outcomes = Outcomes(planned)
    with _told(operator, planned) as tell:
        try:
            for result in results:
                outcomes.results.append(result)
                tell(result)
        except KeyboardInterrupt:
            outcomes.stopped = "interrupted: what is done is done; call it again for the rest"
        except EXPECTED as error:
            outcomes.stopped = explain(error)[0]
    return outcomes


def conclude(operator: Operator, outcomes: Outcomes, **facts: Any) -> None:
    """Sum up, and end with an exit code that says whether all was done."""
    if outcomes.stopped:
        typer.echo(f"mailroom: stopped: {outcomes.stopped}", err=True)
    operator.answer({**facts, **outcomes.to_dict()}, paragraph(outcomes.summary()))
    if not outcomes.all_done:
        operator.fail()


@contextmanager
def _told(operator: Operator, planned: int) -> Iterator[Any]:
    """Answer what tells one result: a line, and on a terminal a bar below the lines."""
    if operator.as_json:
        yield lambda _: None
        return
    if not is_terminal():
        yield lambda result: typer.echo(_line(result))
        return
    with _bar(planned) as (progress, task):

        def tell(result: Result) -> None:
            if sys.stdout.isatty():
                progress.console.print(_line(result), markup=False, highlight=False, soft_wrap=True)
            else:
                typer.echo(_line(result))
            progress.advance(task)

        yield tell


@contextmanager
def _bar(planned: int) -> Iterator[tuple[Progress, Any]]:
    parts = (TextColumn("sending"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*parts, console=Console(stderr=True), transient=True, redirect_stdout=False) as progress:
        yield progress, progress.add_task("", total=planned)


def _line(result: Result) -> str:
    detail = f": {result.detail}" if result.detail else ""
    return f"{result.id}  {result.source}  {result.fate.value}{detail}"
