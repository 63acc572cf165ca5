"""What a bench needs and this machine does not have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lack:
    """Something that is not installed.

    Parameters
    ----------
    what
        Its name.
    install
        The command that installs it.
    part
        The part of the bench that cannot run without it; None if no part can.
    """

    what: str
    install: str
    part: str | None = None


def parts_left_out(lacks: Sequence[Lack]) -> list[str]:
    """Return the parts that cannot run, each once."""
    return list(dict.fromkeys(lack.part for lack in lacks if lack.part is not None))
