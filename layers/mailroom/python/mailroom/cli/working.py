"""`mailroom worker`: a consumer in a process of its own, for containers and laptops."""

from __future__ import annotations

import sys

from mailroom.cli.errors import UsageError
from mailroom.cli.foreground import surroundings
from mailroom.consumer import QUEUE_VARIABLE
from mailroom.deployment import Deployment
from mailroom.registry import Registry
from mailroom.runtime import Runtime
from mailroom.shutdown import Shutdown, end_at_once
from mailroom.sources.sqs import SqsSource
from mailroom.timings import Timings
from mailroom.worker import work_until, workers_of


def run_worker(
    name: str, *, stage: str | None, application: str, queue_url: str | None, concurrency: int, grace: float | None
) -> None:
    """Handle a consumer's messages until this process is told to end; what runs then has its grace."""
    registry = Registry.of(application)
    consumer = registry.consumer(name)
    runtime = surroundings(stage, registry)
    seconds = _grace(runtime.timings, grace)
    source = SqsSource(queue_url or _queue_of(name, stage, runtime))
    shutdown = Shutdown()
    shutdown.install()
    try:
        ended = work_until(shutdown, workers_of(consumer, runtime, source, count=concurrency), runtime, grace=seconds)
    finally:
        shutdown.uninstall()
    if not ended:
        sys.stdout.flush()
        end_at_once()


def _queue_of(name: str, stage: str | None, runtime: Runtime) -> str:
    if stage is None:
        raise UsageError(f"say which queue to read: --queue-url or {QUEUE_VARIABLE}, or --stage for the deployed one")
    deployment = runtime.use(Deployment)
    if name not in deployment.consumers:
        raise UsageError(f"{name} has no queue in the stage {stage}: deploy it, or say --queue-url")
    return deployment.queues[name]


def _grace(timings: Timings, asked: float | None) -> float:
    if asked is None:
        return timings.process_grace
    if asked <= timings.longest_poll:
        raise UsageError(f"a receive takes up to {timings.longest_poll:g} s: --grace must be longer")
    return asked
