"""What every command begins with and ends with: a stage, one answer on stdout, an exit code."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.text import Text

from mailroom import telemetry
from mailroom.cli.errors import EXPECTED, PARTIAL, explain
from mailroom.cli.local_stack import LOCAL, use_local_stack
from mailroom.dead_letters.desk import Desk
from mailroom.dead_letters.letter import MAX_WHY
from mailroom.deployment import Deployment
from mailroom.legible_text import legible
from mailroom.runtime import Runtime

StageOption = Annotated[
    str, typer.Option("--stage", envvar="MAILROOM_STAGE", help="The stage, e.g. prod; local is what `make up` started.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write one JSON document to stdout, and nothing else.")]


def read_reason(text: str) -> str:
    """Answer a reason that is one, and that a row has room for."""
    if not text.strip():
        raise typer.BadParameter("say why: it stays in the history")
    try:
        legible(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if len(text) > MAX_WHY:
        raise typer.BadParameter(f"it has {len(text)} characters, and the history keeps {MAX_WHY}")
    return text


WhyOption = Annotated[str, typer.Option("--why", parser=read_reason, metavar="TEXT", help="Kept in the history.")]


class Operator:
    """One command at work on one stage."""

    def __init__(self, runtime: Runtime, deployment: Deployment, *, as_json: bool) -> None:
        self.runtime = runtime
        self.deployment = deployment
        self.as_json = as_json

    @cached_property
    def desk(self) -> Desk:
        """Everything that died in the stage."""
        return Desk(self.runtime, self.deployment)

    def answer(self, document: dict[str, Any], *shown: RenderableType) -> None:
        """Write what the command has to say: the document, or else what people read."""
        if self.as_json:
            _write_document({"stage": self.deployment.stage, **document})
            return
        console = Console(highlight=False)
        with console.capture() as captured:
            for each in shown:
                console.print(each, markup=False, soft_wrap=isinstance(each, Text))  # a bare Text is one line, uncut
        for line in captured.get().splitlines():
            typer.echo(line.rstrip(), color=True)  # Rich fills lines up with spaces; colours it has settled itself

    @property
    def now(self) -> datetime:
        """The present moment."""
        return self.runtime.clock.now()

    def fail(self, code: int = PARTIAL) -> None:
        """End with an exit code, after the answer."""
        raise typer.Exit(code)


@contextmanager
def operating(stage: str, *, as_json: bool) -> Iterator[Operator]:
    """Find the stage; turn expected errors into a message and an exit code."""
    with _logging_to_stderr():
        yield from _operating(stage, as_json)


def _operating(stage: str, as_json: bool) -> Iterator[Operator]:
    try:
        if stage == LOCAL:
            use_local_stack()
        runtime, deployment = Runtime.from_stack(stage)
        yield Operator(runtime, deployment, as_json=as_json)
    except EXPECTED as error:
        message, code = explain(error)
        if as_json:
            _write_document({"stage": stage, "error": {"type": type(error).__name__, "message": message}})
        typer.echo(f"mailroom: {message}", err=True)
        raise typer.Exit(code) from error


def is_terminal() -> bool:
    """Answer whether someone sits there who can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _write_document(document: dict[str, Any]) -> None:
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False, default=str))


@contextmanager
def _logging_to_stderr() -> Iterator[None]:
    """Keep the machinery's log lines out of the answer."""
    handlers = [each for each in telemetry.logger.handlers if isinstance(each, logging.StreamHandler)]
    before = [(each, each.setStream(sys.stderr)) for each in handlers]
    try:
        yield
    finally:
        for handler, stream in before:
            if stream is not None:
                handler.setStream(stream)
