"""`mailroom dead …`: the options of each command."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

import typer

from mailroom.cli import dead_edit, dead_list, dead_redrive, tracing
from mailroom.cli.durations import BadDuration, parse_duration
from mailroom.cli.foreground import APPLICATION, ApplicationOption
from mailroom.cli.operator import JsonOption, Operator, StageOption, WhyOption, operating, read_reason
from mailroom.cli.planning import plan_of
from mailroom.clock import aware
from mailroom.dead_letters.filter import Filter, so_long_ago
from mailroom.dead_letters.mending import Mended

app = typer.Typer(no_args_is_help=True, help="See what died, mend it, send it again or give it up.")


def _duration(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except BadDuration as error:
        raise typer.BadParameter(str(error)) from error


def _moment(text: str) -> datetime:
    try:
        return aware(datetime.fromisoformat(text))
    except ValueError as error:
        raise typer.BadParameter(f"{error}: write it like 2030-01-31T08:00Z") from error


SourceOption = Annotated[str | None, typer.Option("--source", help="`outbox`, a consumer's name, or NAME-undelivered.")]
TypeOption = Annotated[str | None, typer.Option("--type", help="An event type, e.g. repo.created.")]
FingerprintOption = Annotated[str | None, typer.Option("--fingerprint", help="Those that failed alike.")]
AgeOption = Annotated[
    timedelta | None,
    typer.Option("--older-than", parser=_duration, metavar="AGE", help="Dead for longer: 90s, 15m, 2h, 3d."),
]
SubjectOption = Annotated[str | None, typer.Option("--subject", help="What it is about, e.g. repos/42.")]
AfterOption = Annotated[
    datetime | None,
    typer.Option("--after", parser=_moment, metavar="MOMENT", help="Died not before: 2030-01-31T08:00Z."),
]
BeforeOption = Annotated[
    datetime | None, typer.Option("--before", parser=_moment, metavar="MOMENT", help="Died not after.")
]


def _filter(
    operator: Operator,
    type_: str | None,
    subject: str | None,
    fingerprint: str | None,
    older_than: timedelta | None,
    after: datetime | None,
    before: datetime | None,
) -> Filter:
    until = [each for each in (before, older_than and so_long_ago(operator.now, older_than)) if each]
    return Filter.of(
        type_=type_, subject=subject, fingerprint=fingerprint, after=after, before=min(until, default=None)
    )


@app.command("list")
def list_command(  # noqa: PLR0913, PLR0917 - each is an option of the command
    stage: StageOption,
    source: SourceOption = None,
    type_: TypeOption = None,
    subject: SubjectOption = None,
    fingerprint: FingerprintOption = None,
    older_than: AgeOption = None,
    after: AfterOption = None,
    before: BeforeOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Letters on a page.")] = 100,
    cursor: Annotated[str | None, typer.Option("--cursor", help="Where the last page ended.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every page.")] = False,
    groups: Annotated[bool, typer.Option("--groups", help="Only the groups, without ids.")] = False,
    retrying: Annotated[bool, typer.Option("--retrying", help="Also what consumers still try.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List dead letters, those that failed alike together, and each dead-letter queue's depth."""
    with operating(stage, as_json=as_json) as operator:
        dead_list.list_dead(
            operator,
            _filter(operator, type_, subject, fingerprint, older_than, after, before),
            source=source,
            cursor=cursor,
            limit=None if all_ else limit,
            retrying=retrying,
            only_groups=groups,
        )


@app.command("show")
def show_command(
    event_id: Annotated[str, typer.Argument(metavar="ID")],
    stage: StageOption,
    payload: Annotated[bool, typer.Option("--payload", help="Show the payload too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show all that is known of one event: failure, attempts, who did what to it and why."""
    with operating(stage, as_json=as_json) as operator:
        tracing.show(operator, event_id, payload=payload)


@app.command("redrive")
def redrive_command(  # noqa: PLR0913, PLR0917 - each is an option of the command
    stage: StageOption,
    ids: Annotated[list[str] | None, typer.Argument(metavar="IDS")] = None,
    why: Annotated[
        str | None,
        typer.Option("--why", parser=read_reason, metavar="TEXT", help="Kept in the history; not needed by --dry-run."),
    ] = None,
    source: SourceOption = None,
    type_: TypeOption = None,
    subject: SubjectOption = None,
    fingerprint: FingerprintOption = None,
    older_than: AgeOption = None,
    after: AfterOption = None,
    before: BeforeOption = None,
    all_: Annotated[bool, typer.Option("--all", help="Everything that is dead.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="So many at most, the oldest first.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be sent, and do nothing.")] = False,
    canary: Annotated[bool, typer.Option("--canary", help="1, 10, 100, the rest; stop at the old failure.")] = False,
    rate: Annotated[float | None, typer.Option("--rate", min=0.01, help="Letters a second at most.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Also what succeeded before, or may have.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Send dead letters again: these and no others, whatever dies meanwhile."""
    if why is None and not dry_run:
        raise typer.BadParameter("say why: it stays in the letters' history", param_hint="--why")
    with operating(stage, as_json=as_json) as operator:
        asks = not dry_run and dead_redrive.must_be_agreed(yes=yes)
        wanted = _filter(operator, type_, subject, fingerprint, older_than, after, before)
        plan = plan_of(operator.desk, ids or [], wanted, source=source, all_=all_, limit=limit)
        if not plan.letters:
            dead_redrive.say_nothing_is_meant(operator, dry_run=dry_run)
        elif dry_run:
            dead_redrive.show_plan(operator, plan, force=force)
        else:
            if asks:
                dead_redrive.agree(operator, plan, canary=canary, force=force)
            dead_redrive.redrive(operator, plan, why or "", force=force, rate=rate, canary=canary)


@app.command("edit")
def edit_command(  # noqa: PLR0913, PLR0917 - each is an option of the command
    event_id: Annotated[str, typer.Argument(metavar="ID")],
    why: WhyOption,
    stage: StageOption,
    payload: Annotated[
        str | None, typer.Option("--payload", metavar="FILE", help="A JSON object; - is stdin; without it, its own.")
    ] = None,
    type_: Annotated[str | None, typer.Option("--type", help="Its type, where that cannot be read.")] = None,
    subject: Annotated[
        str | None, typer.Option("--subject", help='Its subject, where that cannot be read; "" is none.')
    ] = None,
    source: SourceOption = None,
    application: ApplicationOption = APPLICATION,
    as_json: JsonOption = False,
) -> None:
    """Put a mended copy in a dead letter's place: a new event that names its parent.

    Where a consumer failed, it goes to that consumer alone, if it fits what the application's package declares.
    """
    with operating(stage, as_json=as_json) as operator:
        text = None if payload is None else dead_edit.read_payload(payload)
        mended = Mended(type=type_, subject=subject)
        dead_edit.edit(operator, event_id, text, mended, why, source=source, application=application)


@app.command("discard")
def discard_command(
    ids: Annotated[list[str], typer.Argument(metavar="IDS")],
    why: WhyOption,
    stage: StageOption,
    source: SourceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give letters up: kept for a while with the reason, never sent."""
    with operating(stage, as_json=as_json) as operator:
        dead_edit.discard(operator, ids, why, source=source)
