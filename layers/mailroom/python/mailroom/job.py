"""Jobs: `@job` declares one, and the edge that runs it when its schedule fires."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mailroom.declarations import Declaration
from mailroom.needs import Access, Port
from mailroom.outbox.event import Event
from mailroom.row import Row
from mailroom.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Declaration):
    """Work that the clock causes, one run at a time.

    Parameters
    ----------
    schedule
        When it runs, in UTC.
    """

    schedule: Schedule


def job(
    *,
    schedule: Schedule,
    reads: Sequence[type[Row]] = (),
    writes: Sequence[type[Row]] = (),
    scans: Sequence[type[Row]] = (),
    publishes: Sequence[type[Event]] = (),
    uses: Sequence[type[Port]] = (),
    **options: Any,
) -> Callable[[Callable[..., None]], Job]:
    """Declare a job: `def name(work: JobContext) -> None`.

    Parameters
    ----------
    reads, writes, scans, publishes, uses
        What it touches: see `Access`. Nothing else is granted.
    options
        `timeout`, `memory`: see `Declaration`.
    """

    access = Access(
        reads=tuple(reads), writes=tuple(writes), scans=tuple(scans), publishes=tuple(publishes), uses=tuple(uses)
    )

    def declare(function: Callable[..., None]) -> Job:
        return Job(
            name=function.__name__,
            module=function.__module__,
            function=function,
            schedule=schedule,
            access=access,
            **options,
        )

    return declare


class JobContext:  # the edge follows
    pass
