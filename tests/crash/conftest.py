"""One account for all runs, and the closing line that sums them up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from . import brokers
from .aws import Aws, aws_in_process
from .harness import Harness, Tally

TALLY = pytest.StashKey[Tally]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TALLY] = Tally()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    terminalreporter.write_line("")
    terminalreporter.write_line(config.stash[TALLY].line())


@pytest.fixture(scope="session")
def aws() -> Iterator[Aws]:
    with aws_in_process() as aws:
        yield aws
    brokers.close()


@pytest.fixture
def harness(aws: Aws, pytestconfig: pytest.Config) -> Harness:
    """Counts its runs in the closing line."""
    return Harness(aws, pytestconfig.stash[TALLY])
