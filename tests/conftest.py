"""What every test starts from. Fake credentials and moto come before any client can be made."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.moto_account import MotoAccount

os.environ.update(
    AWS_ACCESS_KEY_ID="testing",
    AWS_SECRET_ACCESS_KEY="testing",
    AWS_SESSION_TOKEN="testing",
    AWS_DEFAULT_REGION="us-east-1",
    AWS_REGION="us-east-1",
    POWERTOOLS_METRICS_NAMESPACE="Mailroom",
    POWERTOOLS_TRACE_DISABLED="true",
)
os.environ.pop("AWS_ENDPOINT_URL", None)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let order and examples follow one seed, which the first line of the run names."""
    generated.seed(config)
    config.addinivalue_line("markers", "xdist_group(name): tests that stay together where several processes share them")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Keep what is synthesized, and CDK's own process, in one of the processes that share the tests."""
    if item.nodeid.startswith("tests/infra/") and "/test_handlers.py" not in item.nodeid:
        item.add_marker(pytest.mark.xdist_group("infra"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long and cannot be shared, so that no process waits for it in the end."""
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


from tests import generated  # noqa: E402 - after the environment that they are imported in
from tests.leftovers import nothing_left_behind  # noqa: E402, F401 - likewise
from tests.log_lines import logs  # noqa: E402, F401 - a fixture for all; nothing of ours is imported before


@pytest.fixture(scope="session")
def moto_account() -> Iterator[MotoAccount]:
    """AWS in process, for the tests that want it."""
    from tests import moto_account  # noqa: PLC0415 - a heavy import, and most tests need no AWS

    with moto_account.moto_account() as account:
        yield account
