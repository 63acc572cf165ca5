"""Receivers of webhooks: real servers on this machine, for as long as a test runs."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

NOT_YET = 10
"""Seconds after which a receiver that keeps its sender waiting gives up: far longer than any test."""


@dataclass(frozen=True)
class Got:
    """One request as it came."""

    path: str
    headers: Mapping[str, str]
    body: bytes


Behave = Callable[["Visit"], None]


@dataclass
class Receiver:
    """What a server has got, and how it answers.

    Parameters
    ----------
    url
        Where it listens; any path will do.
    over
        Set when the server ends: what keeps a sender waiting waits for it.
    """

    url: str = ""
    behave: Behave = lambda visit: visit.answer(204)
    got: list[Got] = field(default_factory=list)
    connections: int = 0
    over: Event = field(default_factory=Event)

    @property
    def port(self) -> int:
        """Its port."""
        return int(self.url.rpartition(":")[2])


class Visit(BaseHTTPRequestHandler):
    """One request and its answer."""

    protocol_version = "HTTP/1.1"
    receiver: Receiver

    def setup(self) -> None:
        self.receiver.connections += 1
        super().setup()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.receiver.got.append(Got(self.path, headers, body))
        with suppress(OSError):
            self.receiver.behave(self)

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Answer as a receiver does."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send(self, answer: bytes) -> None:
        """Answer with these bytes, as they are, and close the connection."""
        self.wfile.write(answer)
        self.close_connection = True

    def wait(self) -> None:
        """Say nothing until the test is over."""
        self.receiver.over.wait(NOT_YET)

    def drip(self, *beginning: bytes) -> None:
        """Send this, and then a byte now and then until the test is over."""
        for each in beginning:
            self.wfile.write(each)
        for _ in range(NOT_YET * 50):
            if self.receiver.over.wait(0.02):
                return
            self.wfile.write(b"x")
            self.wfile.flush()

    def log_message(self, *_: object) -> None: ...


@contextmanager
def listening(behave: Behave | None = None, *, tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """Run a server inside the block; it answers 204 unless it is to behave otherwise."""
    receiver = Receiver()
    if behave is not None:
        receiver.behave = behave
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Visit", (Visit,), {"receiver": receiver}))
    server.handle_error = lambda *_: None  # type: ignore[method-assign] - senders that break off are the point
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    receiver.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.over.set()
        server.shutdown()
        server.server_close()
        thread.join()
