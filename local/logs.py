"""Reads the logs of a local stack for whoever has to find out what went wrong."""

import re
from pathlib import Path

_TROUBLE = re.compile(r"\b(ERROR|CRITICAL|Traceback|[A-Za-z]*(Error|Exception)|timed out|Unhandled)\b")


def tail(path: Path, lines: int = 30) -> str:
    """Return the last lines of a log."""
    return "\n".join(_read(path)[-lines:])


def trouble(path: Path, lines: int = 30) -> str:
    """Return the last lines that speak of errors, or a few of the last of all if none does."""
    found = [line[:2000] for line in _read(path) if _TROUBLE.search(line)]
    return "\n".join(found[-lines:]) or tail(path, 8)


def _read(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines() if path.exists() else [f"(no log at {path})"]
