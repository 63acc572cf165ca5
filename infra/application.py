"""What the code declares: everything that infra builds, gathered once per synth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from app.api import api
from app.settings import AppSettings
from mailroom.consumer import Consumer
from mailroom.declarations import DeclarationError, discover
from mailroom.job import Job
from mailroom.needs import Access
from mailroom.row import Row
from mailroom.settings import Environment, Settings

SETTINGS: tuple[type[Environment], ...] = (Settings, AppSettings)
"""The settings that every function gets: the machinery's and the application's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """The declarations of the machinery and of the application.

    Parameters
    ----------
    api
        What the HTTP routes touch.
    """

    api: Access
    consumers: tuple[Consumer, ...]
    jobs: tuple[Job, ...]

    @classmethod
    def discover(cls) -> Self:
        """Import everything that declares something.

        Raises
        ------
        DeclarationError
            If two jobs, or two consumers, or a consumer and a job have the same name.
        """
        consumers = discover("app.consumers", Consumer)
        jobs = [*discover("mailroom.jobs", Job), *discover("app.jobs", Job)]
        _check_names([*consumers, *jobs])
        return cls(api=api.access, consumers=tuple(consumers), jobs=tuple(jobs))

    @property
    def models(self) -> tuple[type[Row], ...]:
        """The model of every table that the settings name.

        Raises
        ------
        DeclarationError
            If a table has no model.
        """
        return tuple(_model(short) for kind in SETTINGS for short in kind.table_fields())


def _model(short_name: str) -> type[Row]:
    if short_name not in Row.tables:
        raise DeclarationError(f"the settings name the table {short_name!r}, but no model has that short name")
    return Row.tables[short_name]


def _check_names(declarations: list[Consumer | Job]) -> None:
    taken: dict[str, str] = {}
    for declaration in declarations:
        if declaration.name in taken:
            both = f"{taken[declaration.name]} and {declaration.module}"
            raise DeclarationError(f"{both} both declare {declaration.name!r}: rename one")
        taken[declaration.name] = declaration.module
