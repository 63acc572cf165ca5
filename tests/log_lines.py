"""Log lines, read back: `logs()` answers those written since the test began."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import pytest

from mailroom import telemetry

Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def logs() -> Iterator[Lines]:
    """Answers the log lines written so far."""
    stream, handler = StringIO(), telemetry.logger.registered_handler
    assert isinstance(handler, logging.StreamHandler)
    before = handler.setStream(stream)
    # By line feeds alone: `splitlines` would split at U+2028 too, which JSON leaves as it is.
    yield lambda: [json.loads(line) for line in stream.getvalue().split("\n") if line]
    handler.setStream(before)
