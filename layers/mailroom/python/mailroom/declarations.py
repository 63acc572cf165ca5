"""Declarations: what one file says about a consumer or a job, from which infra builds all that it needs."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, Protocol, TypeVar

from mailroom.needs import Access
from mailroom.returns import flaw_of, returned

DECLARATION_VARIABLE = "MAILROOM_DECLARATION"
"""Names the declaration that a deployed function runs, as `module:attribute`."""


class DeclarationError(Exception):
    """Declarations that cannot be used; the message says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What consumers and jobs have in common.

    Parameters
    ----------
    name
        The function's name; names the queue, alarms and log lines too.
    module
        Where it is declared.
    access
        What it touches.
    timeout
        Seconds that one invocation may take; None is the stage's default.
    memory
        MiB of memory.
    """

    name: str
    module: str
    function: Callable[..., object] = field(repr=False)
    access: Access
    timeout: int | None = None
    memory: int = 256

    @property
    def target(self) -> str:
        """Where a deployed function finds the declaration, `module:attribute`."""
        return f"{self.module}:{self.name}"

    def __call__(self, *args: Any) -> None:
        """Call the declared function itself, as its own tests do.

        Raises
        ------
        WrongReturn
            If it returns anything: an answer that says "not done" would pass for done.
        """
        returned(self.function(*args), NoneType, by=self.name)

    def check_function(self) -> None:
        """See that the function can be one that does its work when it is called, and returns nothing.

        Raises
        ------
        DeclarationError
            If it is not.
        """
        if flaw := flaw_of(self.function, NoneType):
            raise DeclarationError(f"{self.module}: {flaw}")


class Named(Protocol):
    """Anything that an application declares by putting it into a module under its own name."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...


D = TypeVar("D", bound=Declaration)
N = TypeVar("N", bound=Named)


def declaring(kind: type[D], access: Access, **fields: Any) -> Callable[[Callable[..., None]], D]:
    """Make the decorator that turns a function into a declaration of a kind."""

    def declare(function: Callable[..., None]) -> D:
        return kind(name=function.__name__, module=function.__module__, function=function, access=access, **fields)

    return declare


def discover(package: str, kind: type[N]) -> list[N]:
    """Import every module of a package and answer the declarations of a kind in it, by name.

    Others may import it; one that knows its module counts there alone.

    Raises
    ------
    DeclarationError
        If two declarations have the same name, or one is not called what its function is.
    """
    found: dict[str, N] = {}
    places: dict[str, str] = {}
    root = importlib.import_module(package)
    for entry in pkgutil.walk_packages(root.__path__, prefix=f"{package}."):
        module = importlib.import_module(entry.name)
        for attribute, value in vars(module).items():
            place = module.__name__
            if not isinstance(value, kind) or found.get(value.name) is value:
                continue
            if getattr(value, "module", place) == place:
                if attribute != value.name:
                    raise DeclarationError(
                        f"{place}: {attribute} is the declaration of {value.name!r}: name both the same"
                    )
                if value.name in found:
                    raise DeclarationError(f"{place} and {places[value.name]} both declare {value.name!r}: rename one")
                found[value.name], places[value.name] = value, place
    return [found[name] for name in sorted(found)]


def load(target: str, kind: type[D]) -> D:
    """Import the one module that a target names and answer its declaration.

    Raises
    ------
    DeclarationError
        If there is none of that kind.
    """
    module, _, name = target.partition(":")
    declaration = getattr(importlib.import_module(module), name, None)
    if not isinstance(declaration, kind):
        raise DeclarationError(f"{target!r} is no {kind.__name__.lower()}: {DECLARATION_VARIABLE} must name one")
    return declaration
