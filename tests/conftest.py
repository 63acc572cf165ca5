"""What every test starts from. Fake credentials and moto come before any client can be made."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how to run the same again, in the same order with the same examples."""
    terminalreporter.write_line(f"Order and examples of this run: --randomly-seed={config.option.randomly_seed}")


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what is imported by now, which is most of what there is."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Share the tests out so that one process begins with all that is synthesized, and the others take the rest."""
    from tests.sharing import Sharing  # noqa: PLC0415 - only where several processes share the tests

    return Sharing(config, log)


from tests import generated  # noqa: E402 - after the environment that they are imported in
from tests.leftovers import nothing_left_behind  # noqa: E402, F401 - likewise
from tests.log_lines import logs  # noqa: E402, F401 - a fixture for all; nothing of ours is imported before


@pytest.fixture(scope="session")
def moto_account() -> Iterator[MotoAccount]:
    """AWS in process, for the tests that want it."""
    from tests import moto_account  # noqa: PLC0415 - a heavy import, and most tests need no AWS

    with moto_account.moto_account() as account:
        yield account
