"""AWS in process, by moto: one account for the whole session, emptied after each test.

moto loses updates of concurrent threads, AWS doesn't: a lock lets its calls in one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

import botocore.client
import moto  # noqa: F401 - before any client is made
import pytest
from moto import mock_aws
from moto.backends import get_backend
from moto.core import DEFAULT_ACCOUNT_ID

from mailroom import clients
from mailroom.row import Row, bind
from tests import stage
from tests.quick_moto import copy_items, make_quick

Rows = dict[str, Any]
"""Tables by their deployed names, with their items as moto keeps them."""

BUS = "bus"
REGION = "us-east-1"


class MotoAccount:
    """An account with every table of the stage `tests.stage` and one event bus, and nothing else between tests."""

    def __init__(self) -> None:
        self.settings = stage.settings(publisher_url=f"eventbridge://{BUS}")
        self.app_settings = stage.app_settings()
        names = self.settings.table_names() | self.app_settings.table_names()
        self._called: set[str] = set()
        self.bind()
        for name in names:
            Row.tables[name].create_table(billing_mode="PAY_PER_REQUEST", wait=False)
        self._tables = {name: _backend("dynamodb").tables[name] for name in names.values()}
        self._make_bus()

    def bind(self) -> None:
        """Give every model the name of its table here."""
        bind(self.settings, self.app_settings)

    def note(self, service: str) -> None:
        """Remember that a service was called: `empty` resets no other."""
        self._called.add(service)

    def empty(self) -> None:
        """Take out all that tests put in."""
        for service in self._called - {"dynamodb"}:
            _reset(service)
        if "events" in self._called:
            self._make_bus()
        tables = _backend("dynamodb").tables
        tables.clear()
        tables.update(self._tables)
        for table in tables.values():
            table.items.clear()
        self._called.clear()

    def rows(self) -> Rows:
        """Return a copy of what is in the tables, for `put`."""
        tables = _backend("dynamodb").tables
        return {name: copy_items(tables[name].items) for name in self._tables}

    def put(self, rows: Rows) -> None:
        """Put a copy of these rows into the tables, in place of what is there."""
        tables = _backend("dynamodb").tables
        for name in self._tables:
            tables[name].items = copy_items(rows[name])

    @staticmethod
    def _make_bus() -> None:
        _backend("events").create_event_bus(BUS)


@contextmanager
def moto_account() -> Iterator[MotoAccount]:
    """Stand in for AWS inside the block."""
    lock, call = RLock(), botocore.client.BaseClient._make_api_call
    account: MotoAccount | None = None

    def one_at_a_time(self: Any, *args: Any) -> Any:
        if account is not None:
            account.note(self.meta.service_model.service_name)
        with lock:
            return call(self, *args)

    with mock_aws(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.client.BaseClient, "_make_api_call", one_at_a_time)
        make_quick(patch)
        account = MotoAccount()
        yield account
    clients.forget()


def _backend(service: str) -> Any:
    return get_backend(service)[DEFAULT_ACCOUNT_ID][REGION]  # type: ignore[call-overload]


def _reset(service: str) -> None:
    for regions in list(get_backend(service).values()):  # type: ignore[call-overload]
        for backend in list(regions.values()):
            backend.reset()
