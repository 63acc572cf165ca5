"""A process of workers: several of one consumer side by side, until the process is told to end."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Thread

from mailroom.consumer import Consumer
from mailroom.consumer_edge import ConsumerEdge
from mailroom.runtime import Runtime
from mailroom.shutdown import Shutdown
from mailroom.sources.source import MAX_BATCH, Queue, Sink
from mailroom.worker import Worker


def workers_of(
    consumer: Consumer, runtime: Runtime, source: Queue, *, count: int, parts: Sink | None = None
) -> list[Worker]:
    """Make workers of a consumer, to work side by side.

    Each has an edge of its own: Powertools' layers are not proven to be thread-safe. Where there are several, each
    takes one message at a time: none is to wait behind another while there are hands for it.

    Parameters
    ----------
    parts
        Where the parts go into which the consumer splits its events.
    """
    edges = [ConsumerEdge(consumer, runtime, source, parts=parts) for _ in range(count)]
    return [
        Worker(
            source,
            edge.handle,
            runtime,
            name=consumer.name,
            timeout=consumer.timeout,
            batch_size=MAX_BATCH if count == 1 else 1,
            pause=edge.breaker.pause,
        )
        for edge in edges
    ]


def work_until(shutdown: Shutdown, workers: Iterable[Worker], runtime: Runtime, *, grace: float) -> bool:
    """Run workers side by side, each in a thread, until the process is to end.

    Parameters
    ----------
    grace
        Seconds for what runs to end in. Threads that need longer are left at work.

    Returns
    -------
    bool
        Whether all ended in time.

    Raises
    ------
    BaseException
        What ended a worker before it was told to; the others were stopped then.
    """
    lanes = [_Lane(worker, shutdown) for worker in workers]
    for lane in lanes:
        lane.start()
    shutdown.wait()
    deadline = runtime.clock.monotonic() + grace
    for lane in lanes:
        lane.worker.stop()
    ended = [lane.worker.shutdown(max(0, deadline - runtime.clock.monotonic())) for lane in lanes]
    for lane in lanes:
        if lane.error is not None:
            raise lane.error
    return all(ended)


class _Lane(Thread):
    """A worker's thread. An error in one ends the process: half a worker is worse than a restart."""

    def __init__(self, worker: Worker, shutdown: Shutdown) -> None:
        super().__init__(name="worker", daemon=True)
        self.worker = worker
        self.error: BaseException | None = None
        self._shutdown = shutdown

    def run(self) -> None:
        """Work until told to stop."""
        try:
            self.worker.run()
        except BaseException as error:
            self.error = error
        finally:
            self._shutdown.requested.set()
