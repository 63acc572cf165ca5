"""`mailroom worker`: a consumer in a process of its own, for containers and laptops."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from mailroom.cli.errors import UsageError
from mailroom.cli.foreground import surroundings
from mailroom.deployment import Deployment
from mailroom.registry import Registry
from mailroom.runtime import Runtime
from mailroom.shutdown import Shutdown, end_at_once
from mailroom.sources.sqs import SqsSource
from mailroom.timings import Timings
from mailroom.worker import Worker
from mailroom.workers import work_until, workers_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the command was called with.

    Parameters
    ----------
    queue_url, parts_queue_url
        The consumer's queue, and the one for the parts into which it splits its events; None for the stage's own.
    grace
        Seconds for what runs to end in; None for the stage's own.
    """

    name: str
    stage: str | None
    application: str
    queue_url: str | None
    parts_queue_url: str | None
    concurrency: int
    grace: float | None


def run_worker(order: Order) -> None:
    """Handle a consumer's messages until this process is told to end; what runs then has its grace."""
    registry = Registry.of(order.application)
    registry.consumer(order.name)
    runtime = surroundings(order.stage, registry)
    workers, grace = _workers(order, registry, runtime), _grace(runtime.timings, order.grace)
    if not _work_until_told(workers, runtime, grace):
        sys.stdout.flush()
        end_at_once()


def _work_until_told(workers: Sequence[Worker], runtime: Runtime, grace: float) -> bool:
    shutdown = Shutdown()
    shutdown.install()
    try:
        return work_until(shutdown, workers, runtime, grace=grace)
    finally:
        shutdown.uninstall()


def _workers(order: Order, registry: Registry, runtime: Runtime) -> list[Worker]:
    consumer = registry.consumer(order.name)
    queue = order.queue_url or _queue_of(order.name, "--queue-url", order.stage, runtime)
    parts = None
    if (receiver := registry.receiver_of(consumer)) is not None:
        parts = SqsSource(order.parts_queue_url or _queue_of(receiver.name, "--parts-queue-url", order.stage, runtime))
    return workers_of(consumer, runtime, SqsSource(queue), count=order.concurrency, parts=parts)


def _queue_of(name: str, option: str, stage: str | None, runtime: Runtime) -> str:
    if stage is None:
        raise UsageError(f"say where the queue of {name} is: {option}, or --stage for the deployed one")
    deployment = runtime.use(Deployment)
    if name not in deployment.consumers:
        raise UsageError(f"{name} has no queue in the stage {stage}: deploy it, or say {option}")
    return deployment.queues[name]


def _grace(timings: Timings, asked: float | None) -> float:
    if asked is None:
        return timings.process_grace
    if asked <= timings.longest_poll:
        raise UsageError(f"a receive takes up to {timings.longest_poll:g} s: --grace must be longer")
    return asked
