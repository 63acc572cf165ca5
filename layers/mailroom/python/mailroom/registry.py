"""What an application's package declares: the one list that infra, the scheduler and the worker read."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from mailroom.consumer import Consumer
from mailroom.declarations import D, Declaration, DeclarationError, discover
from mailroom.job import Job
from mailroom.settings import Environment

APPLICATION = "app"
"""The package that holds the application, unless a command says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """The machinery's declarations and those of one application.

    Parameters
    ----------
    settings
        The application's own settings: every `Environment` in its module `settings`.
    """

    consumers: tuple[Consumer, ...]
    jobs: tuple[Job, ...]
    settings: tuple[type[Environment], ...]

    @classmethod
    def of(cls, package: str = APPLICATION) -> Self:
        """Import everything that declares something, in `package.consumers`, `package.jobs` and the machinery.

        Raises
        ------
        DeclarationError
            If there is no such application, or two declarations have the same name.
        """
        try:
            settings = importlib.import_module(f"{package}.settings")
        except ModuleNotFoundError as error:
            if error.name not in (package, f"{package}.settings"):
                raise
            raise DeclarationError(f"there is no application {package!r} here: no module {error.name}") from error
        consumers = discover(f"{package}.consumers", Consumer)
        jobs = [*discover("mailroom.jobs", Job), *discover(f"{package}.jobs", Job)]
        check_names([*consumers, *jobs])
        check_parts(consumers)
        return cls(
            consumers=tuple(consumers),
            jobs=tuple(jobs),
            settings=tuple(
                value
                for value in vars(settings).values()
                if isinstance(value, type) and issubclass(value, Environment) and value.__module__ == settings.__name__
            ),
        )

    def consumer(self, name: str) -> Consumer:
        """Answer the consumer of this name.

        Raises
        ------
        DeclarationError
            If there is none; it names those that there are.
        """
        return _named(name, self.consumers, kind="consumer")

    def receiver_of(self, consumer: Consumer) -> Consumer | None:
        """Answer the consumer that waits for the parts into which one splits its events, if it does."""
        return next((each for each in self.consumers if each.part in consumer.access.splits_into), None)

    def job(self, name: str) -> Job:
        """Answer the job of this name.

        Raises
        ------
        DeclarationError
            If there is none; it names those that there are.
        """
        return _named(name, self.jobs, kind="job")


def check_names(declarations: Iterable[Declaration], reserved: Iterable[str] = ()) -> None:
    """See that every name is there once.

    Raises
    ------
    DeclarationError
        If one is not, or is one of those that the machinery keeps to itself.
    """
    taken = dict.fromkeys(reserved, "the machinery")
    for declaration in declarations:
        if declaration.name in taken:
            both = f"{taken[declaration.name]} and {declaration.module}"
            raise DeclarationError(f"{both} both declare {declaration.name!r}: rename one")
        taken[declaration.name] = declaration.module


def check_parts(consumers: Iterable[Consumer]) -> None:
    """See that the parts into which a consumer splits its events have one consumer that waits for them.

    Raises
    ------
    DeclarationError
        If they have none or two, or a consumer makes more than one kind of them.
    """
    consumers = tuple(consumers)
    for each in consumers:
        parts = each.access.splits_into
        if len(parts) > 1:
            raise DeclarationError(f"{each.name} splits its events into more than one kind of part: give it one")
        for part in parts:
            waiting = [other.name for other in consumers if other.part is part]
            if len(waiting) != 1:
                who = " and ".join(waiting) or "no consumer"
                raise DeclarationError(
                    f"{each.name} splits its events into {part.__name__}: {who} waits for it, not one"
                )


def _named(name: str, declarations: tuple[D, ...], *, kind: str) -> D:
    for declaration in declarations:
        if declaration.name == name:
            return declaration
    known = ", ".join(each.name for each in declarations) or "none"
    raise DeclarationError(f"there is no {kind} {name!r}; there is {known}")
