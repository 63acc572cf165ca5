"""The command `mailroom`: what operators do to a stage, with their own AWS credentials."""

from __future__ import annotations

from typing import Annotated

import typer

from mailroom.cli import dead, sagas, scheduling, statuses, tracing, working
from mailroom.cli.foreground import APPLICATION, ApplicationOption, OnlyOption, SettingsOption, in_foreground
from mailroom.cli.layout import paragraph
from mailroom.cli.operator import JsonOption, Operator, StageOption, operating
from mailroom.consumer import PARTS_QUEUE_VARIABLE, QUEUE_VARIABLE
from mailroom.controls import switch

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Run a Mailroom stage. Exit codes: 0 all done, 1 not all of it, 2 called wrongly or not deployed.",
)
app.add_typer(dead.app, name="dead")
app.add_typer(sagas.app, name="saga")


@app.command("trace")
def trace_command(
    key: Annotated[str, typer.Argument(metavar="KEY", help="An event id, or a subject such as repos/42.")],
    stage: StageOption,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Events to follow back.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Follow an event, or a subject's events, from the outbox to every consumer."""
    with operating(stage, as_json=as_json) as operator:
        tracing.trace(operator, key, limit=limit)


@app.command("status")
def status_command(stage: StageOption, as_json: JsonOption = False) -> None:
    """Show shards, consumers and jobs on one screen."""
    with operating(stage, as_json=as_json) as operator:
        statuses.show_status(operator)


@app.command("jobs")
def jobs_command(stage: StageOption, as_json: JsonOption = False) -> None:
    """Show each job's schedule and how its last run ended."""
    with operating(stage, as_json=as_json) as operator:
        statuses.show_jobs(operator)


PartArgument = Annotated[str, typer.Argument(metavar="NAME", help="A consumer, a job, or `relay`.")]


@app.command("pause")
def pause_command(name: PartArgument, stage: StageOption, as_json: JsonOption = False) -> None:
    """Stop starting a consumer, a job or the relay; what is at work ends by itself, and nothing is lost."""
    with operating(stage, as_json=as_json) as operator:
        _switch(operator, name, enabled=False)


@app.command("resume")
def resume_command(name: PartArgument, stage: StageOption, as_json: JsonOption = False) -> None:
    """Start a consumer, a job or the relay again."""
    with operating(stage, as_json=as_json) as operator:
        _switch(operator, name, enabled=True)


def _switch(operator: Operator, name: str, *, enabled: bool) -> None:
    done = switch(operator.deployment, name, enabled=enabled)
    what = {"consumer": "consumer", "job": "job", "relay": "function"}[done.kind]
    state = "runs again" if enabled else "is paused"
    if not done.changed:
        state = "was not paused" if enabled else "was paused already"
    operator.answer(done.to_dict(), paragraph(f"The {what} {name} {state}."))


@app.command("scheduler")
def scheduler_command(
    stage: SettingsOption = None,
    application: ApplicationOption = APPLICATION,
    only: OnlyOption = None,
) -> None:
    """Fire the jobs by their schedules, in UTC, until SIGTERM or Ctrl-C; the log is on stdout."""
    with in_foreground():
        scheduling.run_scheduler(stage, application, only or ())


@app.command("worker")
def worker_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A consumer.")],
    stage: SettingsOption = None,
    application: ApplicationOption = APPLICATION,
    queue_url: Annotated[
        str | None, typer.Option("--queue-url", envvar=QUEUE_VARIABLE, help="Its queue, if not the stage's own.")
    ] = None,
    parts_queue_url: Annotated[
        str | None,
        typer.Option(
            "--parts-queue-url",
            envvar=PARTS_QUEUE_VARIABLE,
            help="The queue for the parts into which it splits its events, if it does and not the stage's own.",
        ),
    ] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, max=20, help="Messages side by side.")] = 1,
    grace: Annotated[
        float | None, typer.Option("--grace", help="Seconds for what runs to end in; the platform must wait longer.")
    ] = None,
) -> None:
    """Handle a consumer's messages, as Lambda would, until SIGTERM or Ctrl-C; the log is on stdout.

    Exit codes: 0 all that ran has ended; 1 some was cut off, past the grace or by a second signal; 2 called wrongly,
    or the queue cannot be read.
    """
    with in_foreground():
        working.run_worker(
            working.Order(
                name=name,
                stage=stage,
                application=application,
                queue_url=queue_url,
                parts_queue_url=parts_queue_url,
                concurrency=concurrency,
                grace=grace,
            )
        )


def main() -> None:
    """Run the command."""
    app(prog_name="mailroom")
