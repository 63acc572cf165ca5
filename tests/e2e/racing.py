"""Work that begins at the same moment in many threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

T = TypeVar("T")


def at_once(count: int, work: Callable[[int], T]) -> list[T]:
    """Call `work` with 0, 1, … in as many threads, none before all are there; answer what each answered."""
    barrier = Barrier(count)

    def one(number: int) -> T:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(one, range(count)))
