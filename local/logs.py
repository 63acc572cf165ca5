"""Reads the logs of a local stack for whoever has to find out what went wrong."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from local.account import session

_LONGEST = 1000
_TROUBLE = re.compile(r"\b(ERROR|CRITICAL|[A-Za-z]*(Error|Exception)|timed out|Unhandled)\b")


def tail(path: Path, lines: int = 30) -> str:
    """Return the last lines of a log."""
    return "\n".join(_read(path)[-lines:])


def trouble(path: Path, lines: int = 30) -> str:
    """Return the last lines that speak of errors, or a few of the last of all if none does."""
    everything = _read(path)
    # A traceback says what went wrong in its last line, and where in the two before.
    wanted = {near for at, line in enumerate(everything) if _TROUBLE.search(line) for near in (at - 2, at - 1, at)}
    found = [everything[at][:_LONGEST] for at in sorted(wanted) if at >= 0]
    return "\n".join(found[-lines:]) or tail(path, 8)


def keep_function_logs(endpoint_url: str, path: Path) -> None:
    """Write what every function logged to a file: the emulator forgets it when it stops."""
    logs = session().client("logs", endpoint_url=endpoint_url)
    path.write_text("".join(f"{line}\n" for line in _function_lines(logs)))


def _function_lines(logs: Any) -> Iterator[str]:
    for page in logs.get_paginator("describe_log_groups").paginate():
        for group in page["logGroups"]:
            name = group["logGroupName"]
            for events in logs.get_paginator("filter_log_events").paginate(logGroupName=name):
                for event in events["events"]:
                    yield f"{name.rpartition('/')[2]}: {event['message'].rstrip()}"


def _read(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines() if path.exists() else [f"(no log at {path})"]
