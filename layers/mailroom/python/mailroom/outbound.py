"""Requests to URLs that somebody else wrote: to public addresses alone, and never for longer than so many seconds.

An address is judged three times: when the URL is taken, if it is written there; when the name was looked up, before
anything connects; and on the connected socket, before TLS or a byte. Every request has a connection of its own, so
that none goes over one that was judged for another. Redirects are answers, no proxy is asked, nothing is repeated.
"""

from __future__ import annotations

import re
import socket
import ssl
import string
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from http.client import HTTPConnection, HTTPException, HTTPResponse
from ipaddress import ip_address
from threading import Thread, Timer
from typing import TYPE_CHECKING, Any, Self

from mailroom.address_ranges import Address
from mailroom.clock import Clock
from mailroom.failures import Failure, FailureKind, Permanent
from mailroom.final_response import FinalResponse, ResponseRefused
from mailroom.needs import Need
from mailroom.outbound_url import OutboundUrl, UrlRefused
from mailroom.peers import Peers
from mailroom.timings import Timings

if TYPE_CHECKING:
    from mailroom.runtime import Runtime

MAX_EXCERPT = 1_024
"""Bytes of a receiver's answer that are read, and kept for whoever mends it."""

USER_AGENT = "mailroom"
_SECONDS = re.compile(r"[0-9]{1,9}", re.ASCII)

Found = tuple[Any, ...]
"""One answer of `socket.getaddrinfo`: family, kind, protocol, canonical name, address."""
LookUp = Callable[[str, int], list[Found]]
Dial = Callable[[Found, float], socket.socket]
"""Connects to an address within so many seconds."""


class PeerRefused(Permanent):
    """The receiver is at an address that no request may reach; the message names the rule, never the address."""


class NoAnswer(Exception):
    """The receiver could not be reached, or did not answer as HTTP does or in time.

    It is one of many, so that this is the matter of what was sent to it alone, and no state of the consumer's.

    Parameters
    ----------
    said
        What came, where it was no HTTP.
    """

    def __init__(self, message: str, said: str = "") -> None:
        super().__init__(message)
        self.failure = Failure(FailureKind.TRANSIENT, type(self).__name__, message, excerpt=said)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a receiver answered.

    Parameters
    ----------
    retry_after
        The header of this name as it came.
    excerpt
        The beginning of the body where the status is no success, in printable characters.
    """

    status: int
    retry_after: str | None = None
    excerpt: str = ""

    @property
    def accepted(self) -> bool:
        """Whether the status is a success."""
        return 200 <= self.status < 300

    def wait(self, now: datetime) -> float | None:
        """Answer the seconds that the receiver asks to be left alone: `Retry-After` has them, or a date.

        None if it asks for nothing that can be read. https://www.rfc-editor.org/rfc/rfc9110#section-10.2.3
        """
        asked = (self.retry_after or "").strip()
        if _SECONDS.fullmatch(asked):
            return float(asked)
        try:
            date = parsedate_to_datetime(asked)
        except (ValueError, OverflowError):
            return None
        return max(0.0, (date.replace(tzinfo=date.tzinfo or UTC) - now).total_seconds())


def look_up(host: str, port: int) -> list[Found]:
    """Ask the system's resolver."""
    return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))


def dial(found: Found, seconds: float) -> socket.socket:
    """Connect by TCP."""
    family, kind, protocol, _, place = found
    sock = socket.socket(family, kind, protocol)
    try:
        sock.settimeout(seconds)
        sock.connect(place)
    except BaseException:
        sock.close()
        raise
    return sock


class Outbound:
    """Sends requests to URLs that somebody else wrote.

    Parameters
    ----------
    peers
        Which addresses may be reached. Plain http goes to the stage's own networks alone.
    tls
        How certificates are verified, if not by the system's own authorities.
    """

    def __init__(
        self,
        *,
        peers: Peers,
        timings: Timings,
        clock: Clock,
        tls: ssl.SSLContext | None = None,
        look_up: LookUp = look_up,
        dial: Dial = dial,
    ) -> None:
        self._peers = peers
        self._timings = timings
        self._clock = clock
        self._given_tls = tls
        self._look_up = look_up
        self._dial = dial

    @classmethod
    def needs(cls, runtime: Runtime) -> tuple[Need, ...]:
        """Answer that it takes no right in AWS."""
        return ()

    @classmethod
    def connect(cls, runtime: Runtime) -> Self:
        """Reach what the stage's settings allow."""
        peers = Peers.of(runtime.settings.outbound_networks)
        return cls(peers=peers, timings=runtime.timings, clock=runtime.clock)

    def check(self, url: OutboundUrl) -> None:
        """See that a URL is one that a request may be sent to, as far as it tells without looking its name up.

        Raises
        ------
        UrlRefused
            If it is not.
        """
        if url.scheme == "http" and not self._peers.besides:
            raise UrlRefused("its scheme is not https")
        if url.address is not None and (rule := self._refusal(url, url.address)):
            raise UrlRefused(f"its address may not be reached: {rule}")
        if url.address is None and "." not in url.host and not self._peers.besides:
            raise UrlRefused("its host is no name of the public internet")

    def post(self, url: OutboundUrl, *, headers: Mapping[str, str], body: bytes) -> Answer:
        """Send a POST and answer what came back, whatever the status.

        Raises
        ------
        PeerRefused
            If the host is at no address that may be reached.
        NoAnswer
            If nothing came back that is HTTP, or not within `outbound_timeout`.
        """
        ends = self._clock.monotonic() + self._timings.outbound_timeout
        try:
            with (
                closing(self._open(url, ends)) as sock,
                _ending(sock, self._left(ends), late=self._late()) as end,
            ):
                return self._exchange(url, sock, headers, body, end)
        except (OSError, ResponseRefused) as error:
            raise NoAnswer(f"{url.place}: {printable(str(error)) or type(error).__name__}") from error
        except HTTPException as error:  # its text may be what the receiver sent
            raise NoAnswer(f"{url.place}: no HTTP: {type(error).__name__}", printable(str(error))) from None

    def _exchange(
        self, url: OutboundUrl, sock: socket.socket, headers: Mapping[str, str], body: bytes, end: _End
    ) -> Answer:
        sock.settimeout(self._timings.outbound_read_timeout)
        if url.scheme == "https":
            sock = self._tls.wrap_socket(sock, server_hostname=url.host)
        connection = HTTPConnection(url.host, url.port)
        connection.auto_open = 0
        connection.response_class = FinalResponse
        connection.sock = sock
        with closing(connection):
            own = {"Host": url.place, "User-Agent": USER_AGENT, "Connection": "close"}
            connection.request("POST", url.target, body, {**headers, **own})
            with closing(connection.getresponse()) as response:
                end.check()  # what looks like the end of the headers may be our own end
                answer = Answer(response.status, response.headers.get("Retry-After"))
                if answer.accepted:
                    return answer
                return Answer(answer.status, answer.retry_after, _excerpt_of(response))

    def _open(self, url: OutboundUrl, ends: float) -> socket.socket:
        """Connect to the first of the host's addresses that may be reached and answers."""
        rules: list[str] = []
        failed: OSError | None = None
        for found in self._addresses(url, ends):
            if rule := self._refusal(url, _address_in(found[4])):
                rules.append(rule)
                continue
            seconds = min(self._timings.outbound_connect_timeout, self._left(ends))
            try:
                return self._judged(url, self._dial(found, seconds))
            except OSError as error:
                failed = error
        if failed is not None:
            raise failed
        raise PeerRefused(f"{url.place} is at no address that may be reached: {', '.join(dict.fromkeys(rules))}")

    def _judged(self, url: OutboundUrl, sock: socket.socket) -> socket.socket:
        """Go on with a socket whose peer may be reached, wherever the name led and whatever stood in between."""
        try:
            rule = self._refusal(url, _address_in(sock.getpeername()))
        except BaseException:
            sock.close()
            raise
        if rule:
            sock.close()
            raise PeerRefused(f"{url.place} led to an address that may not be reached: {rule}")
        return sock

    def _refusal(self, url: OutboundUrl, address: Address) -> str | None:
        if rule := self._peers.refusal(address):
            return rule
        if url.scheme == "http" and not self._peers.are_own(address):
            return "plain http outside the stage's own networks"
        return None

    def _addresses(self, url: OutboundUrl, ends: float) -> list[Found]:
        """Look the host up; a look-up cannot be ended, so it is left behind when it takes too long."""
        answer: Future[list[Found]] = Future()

        def ask() -> None:
            try:
                answer.set_result(self._look_up(url.host, url.port))
            except Exception as error:
                answer.set_exception(error)

        Thread(target=ask, name="look-up", daemon=True).start()
        try:
            return answer.result(timeout=self._left(ends))
        except TimeoutError as error:
            raise TimeoutError("its name was not resolved in time") from error

    def _left(self, ends: float) -> float:
        left = ends - self._clock.monotonic()
        if left <= 0:
            raise self._late()
        return left

    def _late(self) -> TimeoutError:
        return TimeoutError(f"no answer within {self._timings.outbound_timeout:g} s")

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return self._given_tls or ssl.create_default_context()


class _End:
    """The end of an exchange's time: a receiver that sends a byte now and then would keep every single read alive."""

    def __init__(self, sock: socket.socket, late: TimeoutError) -> None:
        # TLS takes the socket's descriptor over; its twin stays, and ends the same connection.
        self.twin = sock.dup()
        self._late = late
        self._has_come = False

    def check(self, cause: Exception | None = None) -> None:
        """Go on if there is time left; else raise what it is to be late, whatever error came of it."""
        if self._has_come:
            raise self._late from cause

    def come(self) -> None:
        """End the connection under whoever reads or writes."""
        self._has_come = True
        with suppress(OSError):
            self.twin.shutdown(socket.SHUT_RDWR)


@contextmanager
def _ending(sock: socket.socket, seconds: float, *, late: TimeoutError) -> Iterator[_End]:
    """End a socket's connection after so many seconds, unless the block is over before."""
    end = _End(sock, late)
    timer = Timer(seconds, end.come)
    timer.daemon = True
    timer.start()
    try:
        yield end
    except (OSError, HTTPException) as error:
        end.check(error)
        raise
    finally:
        timer.cancel()
        timer.join()
        end.twin.close()


def _address_in(place: tuple[Any, ...]) -> Address:
    return ip_address(place[0])


def _excerpt_of(response: HTTPResponse) -> str:
    try:
        return printable(response.read(MAX_EXCERPT).decode("utf-8", "replace"))
    except (OSError, HTTPException):
        return ""  # the status has said enough


def printable(text: str) -> str:
    """Answer a text in one line without control characters, its quotation marks single."""
    kept = (" " if each in string.whitespace else each for each in text.replace('"', "'"))
    return "".join(each for each in kept if each.isprintable()).strip()
