"""What the code declares: everything that infra builds, gathered once per synth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from app.api import api
from app.settings import AppSettings
from infra.api import API, OPERATIONS
from mailroom.consumer import Consumer
from mailroom.controls import RELAY
from mailroom.declarations import DeclarationError
from mailroom.job import Job
from mailroom.needs import Access
from mailroom.registry import Registry, check_names
from mailroom.row import Row
from mailroom.settings import Environment, Settings
from mailroom.timings import TimingError, Timings

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
            If two of them have the same name, or one has the name of a function that is always there.
        """
        registry = Registry.of()
        check_names([*registry.consumers, *registry.jobs], reserved=(API, OPERATIONS, RELAY))
        return cls(api=api.access, consumers=registry.consumers, jobs=registry.jobs)

    def check(self, timings: Timings) -> None:
        """See that no job of the machinery may still run when it is fired again: each has work for every firing.

        Raises
        ------
        TimingError
            If one may; the message names it.
        """
        for job in self.jobs:
            timeout, period = job.timeout or timings.job_timeout, job.schedule.longest_gap
            if job.module.startswith("mailroom.") and timeout >= period:
                raise TimingError(f"the job {job.name} may run for {timeout} s and is fired every {period} s")

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
