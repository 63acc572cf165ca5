"""One process on an AWS of its own, and the calls it makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from random import Random
from typing import Any

import pytest

from app.settings import AppSettings
from mailroom.clients import Call, observed
from mailroom.runtime import Runtime
from mailroom.testing import ManualClock
from tests.moto_account import MotoAccount

from .rights import rights  # noqa: F401 - for every test here


@pytest.fixture(autouse=True)
def aws(moto_account: MotoAccount) -> Iterator[None]:
    """AWS with empty tables, an event bus, and nothing else in it."""
    yield
    moto_account.empty()


@pytest.fixture(autouse=True)
def short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look into queues by short polls: moto has one server, and would wait in real time."""
    monkeypatch.setattr("mailroom.dead_letters.queue.WAIT", 0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def runtime(moto_account: MotoAccount, clock: ManualClock) -> Runtime:
    """The surroundings of one process."""
    moto_account.bind()
    settings = moto_account.settings, moto_account.app_settings
    return Runtime(*settings, clock=clock, random=Random(1))  # noqa: S311 - repeatable on purpose


Process = Callable[[], Runtime]


@pytest.fixture
def another(runtime: Runtime, clock: ManualClock) -> Process:
    """Makes the surroundings of another process on the same tables."""
    numbers = count(2)

    def start() -> Runtime:
        kinds = (runtime.settings, runtime.of(AppSettings))
        return Runtime(*kinds, clock=clock, random=Random(next(numbers)))  # noqa: S311 - repeatable on purpose

    return start


class CallCounter:
    """Counts AWS calls by operation, and keeps them with their parameters."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def before(self, call: Call) -> None:
        self.calls.append(call)

    def after(self, call: Call, answer: dict[str, Any]) -> None: ...

    @property
    def counts(self) -> Counter[str]:
        return Counter(call.operation for call in self.calls)


@pytest.fixture
def calls(runtime: Runtime) -> Iterator[CallCounter]:
    """The AWS calls made from here on."""
    counter = CallCounter()
    with observed(counter):
        yield counter
