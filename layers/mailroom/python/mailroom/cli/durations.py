"""Durations as people write them: `90s`, `15m`, `2h`, `3d`, `1h30m`."""

from __future__ import annotations

import re
from datetime import timedelta

_PARTS = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)


class BadDuration(ValueError):
    """A text that is no duration."""


def parse_duration(text: str) -> timedelta:
    """Read a duration.

    Raises
    ------
    BadDuration
        If it is none, or longer than anything can be.
    """
    match = _PARTS.fullmatch(text)
    if not text or match is None:
        raise BadDuration(f"{text!r} is no duration: write it like 90s, 15m, 2h, 3d or 1h30m")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    try:
        return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    except OverflowError as error:
        raise BadDuration(f"{text!r} is longer than time can be counted") from error


def write_duration(seconds: float) -> str:
    """Write a duration by its two largest parts, e.g. `2h 5m`; one that is below a second is `0s`."""
    left = max(0, int(seconds))
    parts = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2]) or "0s"
