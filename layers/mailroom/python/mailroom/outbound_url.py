"""URLs that requests are sent to though somebody else wrote them: one form, and a reason for every other.

Host names are ASCII: an internationalised one is written in its punycode form (`xn--…`), so that what is shown,
looked up and held against a certificate is the same text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Self

from mailroom.address_ranges import Address, mapped_ipv4

MAX_URL = 2_000
"""Characters of a URL; receivers' own servers take no more either (RFC 9110, section 4.1 asks for 8,000)."""

_DEFAULT_PORTS = {"https": 443, "http": 80}
_FIRST_FREE_PORT, _LAST_PORT = 1_024, 65_535
_ALLOWED = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]*", re.ASCII)
"""What a URL is written in: https://www.rfc-editor.org/rfc/rfc3986#section-2"""
_LOOSE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PARTS = re.compile(r"(?P<scheme>[^:/?#]+)://(?P<authority>[^/?#]*)(?P<target>[^#]*)(?P<fragment>#.*)?")
_PLACE = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]*)(?::(?P<port>[0-9]{1,5}))?")
_NAME = re.compile(r"(?=.{1,253}$)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_NUMERIC = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")
"""What browsers and C libraries take for an IPv4 address: https://url.spec.whatwg.org/#ends-in-a-number-checker"""

_PORTS = f"a port is 443 (80 for http) or one of {_FIRST_FREE_PORT} to {_LAST_PORT}"


class UrlRefused(ValueError):
    """No request is sent to this URL; the message says why, without repeating it."""


@dataclass(frozen=True, slots=True)
class OutboundUrl:
    """A URL in its normal form: scheme and host in lower case, no default port, at least `/` for a path.

    Parameters
    ----------
    host
        A name, an IPv4 address, or an IPv6 address without brackets.
    address
        The address that the host is, if it is no name.
    target
        Path and query.
    """

    scheme: str
    host: str
    port: int
    target: str
    address: Address | None

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read a URL.

        Raises
        ------
        UrlRefused
            If it is none that requests are sent to.
        """
        _check_characters(url)
        parts = _PARTS.fullmatch(url)
        if parts is None:
            raise UrlRefused("write it as https://host/path")
        scheme = parts["scheme"].lower()
        if scheme not in _DEFAULT_PORTS:
            raise UrlRefused("its scheme is not https")
        if parts["fragment"] is not None:
            raise UrlRefused("a fragment (#…) is never sent: leave it out")
        if "@" in parts["authority"]:
            raise UrlRefused("it has a user or password: the signature proves who sends")
        place = _PLACE.fullmatch(parts["authority"])
        if place is None:
            raise UrlRefused(f"its host or port is malformed: {_PORTS}")
        host, address = _read_host(place["host"].lower())
        port = _read_port(place["port"], scheme)
        target = parts["target"] if parts["target"].startswith("/") else f"/{parts['target']}"
        return cls(scheme, host, port, target, address)

    @property
    def place(self) -> str:
        """Host and port as they stand in the URL: what may be told of it, since a path can be a secret."""
        host = f"[{self.host}]" if isinstance(self.address, IPv6Address) else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.place}{self.target}"


def _check_characters(url: str) -> None:
    if len(url) > MAX_URL:
        raise UrlRefused(f"it has more than {MAX_URL} characters")
    if not url.isascii():
        raise UrlRefused("it is not ASCII: write the host in punycode (xn--…) and percent-encode the rest")
    if not _ALLOWED.fullmatch(url) or _LOOSE_PERCENT.search(url):
        raise UrlRefused("it has white space, control characters or others that have to be percent-encoded")


def _read_host(host: str) -> tuple[str, Address | None]:
    if not host:
        raise UrlRefused("it has no host")
    if host.endswith("."):
        raise UrlRefused("its host ends with a dot: leave the dot out")
    if host.startswith("["):
        return _read_ipv6(host[1:-1])
    if _NUMERIC.fullmatch(host):
        return _read_ipv4(host)
    if not _NAME.fullmatch(host):
        raise UrlRefused("its host is no name of letters, digits, hyphens and dots")
    return host, None


def _read_ipv4(host: str) -> tuple[str, Address]:
    try:
        address = IPv4Address(host)
    except ValueError:
        raise UrlRefused("its host looks like an address: write four decimal numbers, without leading zeros") from None
    return str(address), address


def _read_ipv6(host: str) -> tuple[str, Address]:
    try:
        address = IPv6Address(host.replace("%", " "))  # a zone means something on one machine alone
    except ValueError:
        raise UrlRefused("what is in brackets is no IPv6 address") from None
    mapped = mapped_ipv4(address)  # which the versions of Python write differently
    return str(address) if mapped is None else f"::ffff:{mapped}", address


def _read_port(port: str | None, scheme: str) -> int:
    default = _DEFAULT_PORTS[scheme]
    number = default if port is None else int(port)
    if number != default and not _FIRST_FREE_PORT <= number <= _LAST_PORT:
        raise UrlRefused(_PORTS)
    return number
