"""Eventually consistent reads lag in every test of the modules and folders that import this fixture."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mailroom.testing import ManualClock
from tests.lagging_reads import LaggingReads


@pytest.fixture(autouse=True)
def lagging_reads(aws: None, clock: ManualClock) -> Iterator[LaggingReads]:
    """The tables as reads may find them: what was there before the test began is seen by all."""
    with LaggingReads(lambda: clock).attached() as reads:
        yield reads
    reads.check()


@pytest.fixture(autouse=True)
def lagging_tables(aws: None, clock: ManualClock) -> Iterator[LaggingReads]:
    """The same, with indexes as they are a while later: for tests of lists, and of what is found by them."""
    reads = LaggingReads(lambda: clock)
    reads.index_lag = 0
    with reads.attached():
        yield reads
    reads.check()
