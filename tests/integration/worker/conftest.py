"""What the tests of the worker start from."""

from __future__ import annotations

import pytest

from mailroom.runtime import Runtime
from mailroom.testing import ManualClock
from mailroom.worker import Worker
from mailroom.workers import workers_of

from .watched import WORK, WatchedSource, adding, do_nothing


@pytest.fixture
def source(runtime: Runtime, clock: ManualClock) -> WatchedSource:
    WORK.begun, WORK.behave = [], do_nothing
    return WatchedSource(clock)


@pytest.fixture
def worker(source: WatchedSource, runtime: Runtime) -> Worker:
    """A worker that stops when there is nothing left to receive."""
    (worker,) = workers_of(adding, runtime, source, count=1)
    source.on_empty = worker.stop
    return worker
