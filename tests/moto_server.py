"""Moto as a server of its own: what a client asks by HTTP, at an endpoint that is not AWS."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from moto.server import ThreadedMotoServer

from tests.leftovers import SHARED


@contextmanager
def moto_server() -> Iterator[str]:
    """Serve inside the block, on this machine alone; answers host and port.

    In a process that also has `mock_aws`, both show the same account.
    """
    before = set(threading.enumerate())
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    for thread in set(threading.enumerate()) - before:
        thread.name = f"{SHARED}: moto's server"
    try:
        host, port = server.get_host_and_port()
        yield f"{host}:{port}"
    finally:
        server.stop()
