"""Unit tests reach nothing: whatever opens a socket fails."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings
from pytest_socket import disable_socket, enable_socket

settings.register_profile("unit", max_examples=100, deadline=None, derandomize=True, database=None)
settings.load_profile("unit")


@pytest.fixture(autouse=True)
def no_sockets() -> Iterator[None]:
    """Refuse every socket for as long as the test runs."""
    disable_socket()
    yield
    enable_socket()
