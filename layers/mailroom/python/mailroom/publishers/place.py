"""A destination's URL, read and checked in one place for every kind of destination.

What is wrong is told without repeating the URL, which may have a password in it though it must not.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Self
from urllib.parse import parse_qsl, unquote

_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|\w(?:[\w.-]*\w)?)(?::(?P<port>[0-9]{1,5}))?", re.ASCII)
_ARN = re.compile(
    r"arn:(?P<partition>aws[a-z-]*):(?P<service>[a-z0-9-]+):(?P<region>[a-z0-9-]+):(?P<account>[0-9]{12}):(?P<name>[\w.-]+)",
    re.ASCII,
)
"""https://docs.aws.amazon.com/IAM/latest/UserGuide/reference-arns.html"""
_REGION = re.compile(r"[a-z]{2,}(?:-[a-z]+)+-[0-9]+")


class PublisherUrlError(ValueError):
    """A publisher URL that names no destination; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Arn:
    """A queue's or a topic's ARN in parts."""

    text: str
    region: str
    account: str
    name: str

    @property
    def is_fifo(self) -> bool:
        """Whether it keeps the order: AWS lets nothing else have this suffix."""
        return is_fifo(self.name)


@dataclass(frozen=True, slots=True)
class Server:
    """A server that a URL names.

    Parameters
    ----------
    hosts
        Names or addresses, each with its port.
    path
        What stands between the hosts and the options, without its first slash and without percent-encoding.
    """

    hosts: tuple[tuple[str, int], ...]
    path: str
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a destination is.

    Parameters
    ----------
    scheme
        The kind of destination: what stands before `://`.
    name
        What stands behind it: a bus (at synth one of CDK's placeholders), an ARN, or a server with what is on it.
    """

    scheme: str
    name: str

    @classmethod
    def of(cls, url: str) -> Self:
        """Cut a URL in two."""
        scheme, mark, name = url.partition("://")  # not urlsplit: it would take a placeholder apart
        return cls(scheme, name) if mark else cls("", "")

    def arn(self, service: str) -> Arn:
        """Read the name as the ARN of this service's one kind of thing.

        Raises
        ------
        PublisherUrlError
            If it is none, another service's, or its region is no region.
        """
        parts = _ARN.fullmatch(self.name)
        if parts is None:
            raise self.wrong(f"name it by its ARN, arn:aws:{service}:<region>:<account>:<name>")
        if parts["service"] != service:
            raise self.wrong(f"the ARN is one of {parts['service']}, and {self.scheme}:// takes those of {service}")
        if not _REGION.fullmatch(parts["region"]):
            raise self.wrong(f"the ARN's region {parts['region']} is none, as eu-central-1 is one")
        return Arn(self.name, parts["region"], parts["account"], parts["name"])

    def server(
        self,
        *,
        port: int | None = None,
        needs: Collection[str] = (),
        may_have: Collection[str] = (),
        several: bool = False,
    ) -> Server:
        """Read the name as `host:port/path?option=value`.

        Parameters
        ----------
        port
            The port of a host that names none; None if each has to.
        needs, may_have
            The options that must be there, and those that may.
        several
            Whether there may be many hosts, with commas between them.

        Raises
        ------
        PublisherUrlError
            If it is none, or has a user or password: name a secret instead.
        """
        if "@" in self.name.partition("?")[0]:
            raise self.wrong("it has a user or password, which an environment variable must not: name a secret instead")
        if "#" in self.name:
            raise self.wrong("it has a fragment (#…), which means nothing here; write the character as %23")
        before, _, query = self.name.partition("?")
        hosts, _, path = before.partition("/")
        options = self._options(query, needs=needs, may_have=may_have)
        named = hosts.split(",") if several else [hosts]
        return Server(tuple(self._host(each, port) for each in named), unquote(path), options)

    def wrong(self, what: str) -> PublisherUrlError:
        """Make the error that says what is wrong."""
        return PublisherUrlError(f"publisher_url {self.scheme}://… cannot be: {what}")

    def _host(self, text: str, default: int | None) -> tuple[str, int]:
        if not text:
            raise self.wrong("it names no host")
        match = _HOST.fullmatch(text)
        if match is None:
            raise self.wrong("its host is none: write host, or host:port")
        port = int(match["port"]) if match["port"] else default
        if port is None:
            raise self.wrong("its host has no port: write host:port")
        if not 0 < port < 2**16:
            raise self.wrong(f"its port {port} is none")
        return match["host"], port

    def _options(self, query: str, *, needs: Collection[str], may_have: Collection[str]) -> dict[str, str]:
        try:
            pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
        except ValueError:
            raise self.wrong("what stands behind the ? is no option=value, or several with & between them") from None
        known = [*needs, *may_have]
        for name, _ in pairs:
            if name not in known:
                raise self.wrong(f"it has the option {name!r}, and knows {', '.join(known) or 'none'}")
        options = dict(pairs)
        if len(options) < len(pairs):
            raise self.wrong("it has an option twice")
        for name in [*needs, *options]:
            if not options.get(name):
                raise self.wrong(f"its option {name} is missing or empty")
        return options


def is_fifo(name: str) -> bool:
    """Answer whether a queue or topic of this name keeps the order."""
    return name.endswith(".fifo")
