"""Consumers: `@consumer` declares one, and the edge that runs it on batches of SQS messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mailroom.declarations import Declaration
from mailroom.needs import Access, Port
from mailroom.outbox.event import Event
from mailroom.row import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer(Declaration):
    """Work that an event causes, done once per event.

    Parameters
    ----------
    on
        The event that it waits for.
    batch_size
        How many messages one invocation takes at most (1 to 10,000; more than 10 want a batching window).
    max_concurrency
        How many invocations run side by side at most (2 to 1,000).
        https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html
    """

    on: type[Event]
    batch_size: int = 10
    max_concurrency: int = 10


def consumer(
    *,
    on: type[Event],
    reads: Sequence[type[Row]] = (),
    writes: Sequence[type[Row]] = (),
    scans: Sequence[type[Row]] = (),
    publishes: Sequence[type[Event]] = (),
    uses: Sequence[type[Port]] = (),
    **options: Any,
) -> Callable[[Callable[..., None]], Consumer]:
    """Declare a consumer: `def name(event: TheEvent, work: UnitOfWork) -> None`.

    Parameters
    ----------
    reads, writes, scans, publishes, uses
        What it touches: see `Access`. Nothing else is granted.
    options
        `timeout`, `memory`, `batch_size`, `max_concurrency`: see `Consumer`.
    """

    access = Access(
        reads=tuple(reads), writes=tuple(writes), scans=tuple(scans), publishes=tuple(publishes), uses=tuple(uses)
    )

    def declare(function: Callable[..., None]) -> Consumer:
        return Consumer(
            name=function.__name__,
            module=function.__module__,
            function=function,
            on=on,
            access=access,
            **options,
        )

    return declare
