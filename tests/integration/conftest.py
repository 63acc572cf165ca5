"""AWS in process, by moto: good for one thread at a time, so a lock makes its calls one at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from random import Random
from threading import RLock
from typing import Any

import botocore.client
import moto  # noqa: F401 - before any client is made
import pytest
from moto import mock_aws

from app.settings import AppSettings
from mailroom import clients
from mailroom.clients import Call, observed
from mailroom.row import Row, bind
from mailroom.runtime import Runtime
from mailroom.testing import ManualClock
from tests import stage

BUS = "bus"


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """AWS with nothing in it; moto loses updates of concurrent threads, AWS doesn't: hence the lock."""
    lock, call = RLock(), botocore.client.BaseClient._make_api_call

    def one_at_a_time(self: Any, *args: Any) -> Any:
        with lock:
            return call(self, *args)

    with mock_aws():
        monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", one_at_a_time)
        yield


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def runtime(aws: None, clock: ManualClock) -> Runtime:
    """The surroundings of one process, with every table made from its model and the bus there."""
    settings, app_settings = stage.settings(publisher_url=f"eventbridge://{BUS}"), stage.app_settings()
    bind(settings, app_settings)
    for name in settings.table_names() | app_settings.table_names():
        Row.tables[name].create_table(billing_mode="PAY_PER_REQUEST", wait=False)
    clients.events().create_event_bus(Name=BUS)
    return Runtime(settings, app_settings, clock=clock, random=Random(1))  # noqa: S311 - repeatable on purpose


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
