"""The final response to a request, as http.client reads it: after any interim ones, and however many headers it has."""

from __future__ import annotations

import io
from http.client import HTTPException, HTTPResponse
from typing import Any, BinaryIO

MAX_INTERIM = 20
"""How many interim responses may come before the final one."""
MAX_HEAD = 65_536
"""Bytes that the headers of one response may take."""

_SWITCHING_PROTOCOLS = 101
_KEPT = (b"content-length", b"transfer-encoding", b"connection", b"retry-after")


class ResponseRefused(HTTPException):
    """A response of which no more is read; the message is ours."""


class FinalResponse(HTTPResponse):
    """A response that skips interim ones and keeps the headers that frame its body, and `Retry-After`.

    http.client skips 100 alone, and takes the first 103 for the answer. It also refuses the hundred-and-first header.
    101 is final: the request asked for no other protocol. https://www.rfc-editor.org/rfc/rfc9110#section-15.2

    Raises
    ------
    ResponseRefused
        If more interim responses or longer headers come than are read, or the headers do not end.
    """

    def _read_status(self) -> tuple[str, int, str]:
        for _ in range(MAX_INTERIM + 1):
            status: tuple[str, int, str] = super()._read_status()  # type: ignore[misc]
            kept = _kept_headers(self.fp)
            if status[1] >= 200 or status[1] == _SWITCHING_PROTOCOLS:
                self.fp = io.BufferedReader(_Joined(kept, self.fp))
                return status
        raise ResponseRefused(f"more than {MAX_INTERIM} interim responses")


def _kept_headers(lines: BinaryIO) -> bytes:
    """Read headers to the empty line after them; return those that are kept, with that line."""
    kept, room, keeps = b"", MAX_HEAD, False
    while line := lines.readline(room + 1):
        room -= len(line)
        if room < 0:
            raise ResponseRefused(f"headers of more than {MAX_HEAD} bytes")
        if not line.strip(b"\r\n"):
            return kept + line
        if not line.startswith((b" ", b"\t")):
            keeps = line.partition(b":")[0].strip().lower() in _KEPT
        elif keeps:  # the header before goes on: http.client reads it only when it stands in one line
            kept, line = kept.rstrip(b"\r\n"), b" " + line.lstrip()
        kept += line if keeps else b""
    raise ResponseRefused("the response ends within its headers")


class _Joined(io.RawIOBase):
    """Some bytes, and then what else there is to read."""

    def __init__(self, first: bytes, rest: BinaryIO) -> None:
        self._first = io.BytesIO(first)
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._first.readinto(buffer) or self._rest.readinto1(buffer)  # type: ignore[attr-defined]

    def close(self) -> None:
        if not self.closed:
            self._rest.close()
        super().close()
