"""Commands that run until they are told to stop: where their settings come from, and what they answer when refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from mailroom import clients
from mailroom.cli.errors import EXPECTED, UsageError, explain
from mailroom.cli.local_stack import LOCAL, use_local_stack
from mailroom.registry import APPLICATION, Registry
from mailroom.runtime import Runtime
from mailroom.settings import SettingsError

# No variable stands in for it: MAILROOM_STAGE is one of the settings that are in a container's environment anyway.
SettingsOption = Annotated[
    str | None,
    typer.Option(
        "--stage",
        help="Take the settings from this deployed stage, `local` for what `make up` started; "
        "without it they are in the environment.",
    ),
]
ApplicationOption = Annotated[
    str, typer.Option("--application", metavar="PACKAGE", help="The package of the application.")
]
OnlyOption = Annotated[list[str] | None, typer.Option("--only", metavar="NAME", help="Only this one; can be repeated.")]

__all__ = ["APPLICATION", "ApplicationOption", "OnlyOption", "SettingsOption", "in_foreground", "surroundings"]


@contextmanager
def in_foreground() -> Iterator[None]:
    """Turn expected errors into one line and an exit code; stdout is for the log."""
    try:
        yield
    except EXPECTED as error:
        message, code = explain(error)
        typer.echo(f"mailroom: {message}", err=True)
        raise typer.Exit(code) from error


def surroundings(stage: str | None, registry: Registry) -> Runtime:
    """Make what an application runs in, from a deployed stage or else from the environment.

    Raises
    ------
    UsageError
        If the environment lacks settings.
    NotDeployed
        If there is no such stage.
    """
    if stage is not None:
        if stage == LOCAL:
            use_local_stack()
        runtime, _ = Runtime.from_stack(stage, *registry.settings)
        return runtime
    try:
        runtime = Runtime.from_env(*registry.settings)
    except SettingsError as error:
        raise UsageError(f"{error}. Set these variables, or name a deployed stage by --stage") from error
    clients.dynamodb()  # which says at once that there is no region, and not at every attempt
    return runtime
