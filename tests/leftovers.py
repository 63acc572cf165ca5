"""What a test must not leave to the next one: threads, processes, and metrics that nobody flushed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailroom import telemetry

SHARED = "shared by tests"
"""The name of a thread that a fixture keeps for the whole session."""
_IDLE = "relay_"
"""The threads of a relay's pool, which end when the relay is garbage."""
_WITH_SERVERS = "tests/e2e/"
"""Tests whose brokers are processes that fixtures start when they are first wanted, and end with the session."""
_PATIENCE = 5.0
"""Seconds that a thread gets to end after its test did: who told it to stop need not have waited for it."""


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves a thread or a process; forget its metrics."""
    if request.node.nodeid.startswith(_WITH_SERVERS):
        yield
        return
    threads, processes = set(threading.enumerate()), _processes()
    yield
    telemetry.metrics.clear_metrics()
    left = [thread for thread in set(threading.enumerate()) - threads if not thread.name.startswith((SHARED, _IDLE))]
    for thread in left:
        thread.join(_PATIENCE)
    assert not [thread.name for thread in left if thread.is_alive()]
    assert _processes() <= processes


def _processes() -> set[str]:
    """Return the ids of this process's children; of none where there is no /proc."""
    try:
        lists = [tasks.read_text() for tasks in Path("/proc/self/task").glob("*/children")]
    except OSError:  # a thread has ended meanwhile
        return _processes()
    return {pid for each in lists for pid in each.split()}
