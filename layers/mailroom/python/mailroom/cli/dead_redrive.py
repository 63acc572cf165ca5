"""`mailroom dead redrive`: a plan that is shown, agreed to, and then carried out."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import asdict
from datetime import datetime
from typing import Any

import typer
from rich.console import Console, RenderableType
from rich.text import Text

from mailroom.cli.errors import UsageError
from mailroom.cli.groups import IDS_SHOWN, show_groups
from mailroom.cli.layout import count, facts, heading, paragraph
from mailroom.cli.operator import Operator, is_terminal
from mailroom.cli.outcomes import collect, conclude
from mailroom.dead_letters.desk import deed, groups
from mailroom.dead_letters.redrive import CANARY_STEPS, Plan, Redrive


def redrive(
    operator: Operator,
    plan: Plan,
    why: str,
    *,
    force: bool,
    rate: float | None,
    canary: bool,
) -> None:
    """Send a plan's letters again, each with an outcome."""
    job = Redrive(operator.desk, plan, deed(operator.runtime, why), force=force, rate=rate, canary=canary)
    outcomes = collect(operator, job.run(), planned=len(plan.letters))
    conclude(operator, outcomes, dry_run=False, plan=document_of(plan))


def show_plan(operator: Operator, plan: Plan, *, force: bool) -> None:
    """Answer what would be done, and do nothing."""
    shown = _shown(plan, "Would redrive", operator.now, force=force, ids=IDS_SHOWN)
    operator.answer({"dry_run": True, "plan": document_of(plan)}, *shown)


def say_nothing_is_meant(operator: Operator, *, dry_run: bool) -> None:
    """Answer that there is nothing to do, which is no error."""
    nothing = document_of(Plan(()))
    document = {"dry_run": dry_run, "plan": nothing, "results": [], "counts": {}, "stopped": None}
    operator.answer(document, paragraph("Nothing dead matches: there is nothing to redrive."))


def agree(operator: Operator, plan: Plan, *, canary: bool, force: bool) -> None:
    """Show the plan to whoever sits there, and ask.

    Raises
    ------
    typer.Exit
        If the answer is no.
    """
    console = Console(stderr=True, highlight=False)
    for part in _shown(plan, "To redrive", operator.now, force=force, ids=0):
        console.print(part, markup=False)
    if canary:
        steps = ", ".join(f"{step}" for step in CANARY_STEPS)
        console.print(f"In steps of {steps} and the rest; it stops when one comes back with its old failure.")
    if not typer.confirm("Send them again?", err=True):
        typer.echo("Nothing was done.", err=True)
        raise typer.Exit(1)


def must_be_agreed(*, yes: bool) -> bool:
    """Answer whether to ask first.

    Raises
    ------
    UsageError
        If that would be needed and nobody can be asked.
    """
    if yes:
        return False
    if not is_terminal():
        raise UsageError("there is no terminal to ask for confirmation: add --yes, or look first by --dry-run")
    return True


def document_of(plan: Plan) -> dict[str, Any]:
    """Answer a plan as JSON values."""
    return {
        "letters": len(plan.letters),
        "by_source": plan.by_source,
        "groups": [asdict(group) for group in groups(iter(plan.letters))],
        "ids": [{"id": letter.id, "source": letter.source} for letter in plan.letters],
        "succeeded": sorted(plan.succeeded),
        "forgotten": sorted(plan.forgotten),
        "expiring": sorted(plan.expiring),
        "more": plan.more,
    }


def _shown(plan: Plan, words: str, now: datetime, *, force: bool, ids: int) -> Iterator[RenderableType]:
    yield heading(f"{words} {count(len(plan.letters), 'letter')}" + (", and leave more" if plan.more else ""))
    yield facts((source, f"{number:,}") for source, number in plan.by_source.items())
    need = "with --force they run again" if force else "they need --force"
    for those, what in (
        (plan.succeeded, f"had succeeded already: {need}"),
        (plan.forgotten, f"left no record, so that nobody knows whether they had succeeded: {need}"),
        (plan.expiring, "leave their queue for good within 48 h"),
    ):
        if those:
            yield paragraph(f"{len(those):,} {what}", indent=2)
            yield paragraph(_some(those), indent=4)
    yield Text()
    yield from show_groups(plan.letters, now, ids=ids, rest=lambda _: "--json names all")


def _some(ids: Collection[str]) -> str:
    shown = sorted(ids)[:IDS_SHOWN]
    return ", ".join(shown) + (f" and {len(ids) - len(shown):,} more" if len(ids) > len(shown) else "")
