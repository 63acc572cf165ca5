"""Unit tests reach nothing: whatever opens a socket fails."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_socket import disable_socket, enable_socket


@pytest.fixture(autouse=True)
def no_sockets() -> Iterator[None]:
    """Refuse every socket for as long as the test runs."""
    disable_socket()
    yield
    enable_socket()
