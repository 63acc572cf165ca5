"""Runs a command that has children of its own, none of which outlive it."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

_GRACE = 5.0


class Running:
    """A command that was started."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @property
    def group(self) -> int:
        """The process group that it leads."""
        return self._process.pid

    def wait(self) -> int:
        """Wait for its end and return its status."""
        return self._process.wait()


@contextlib.contextmanager
def started(command: Sequence[str | Path], *, env: Mapping[str, str], cwd: Path, output: IO[str]) -> Iterator[Running]:
    """Start a command without stdin; whatever of its group still runs when the block is left is ended."""
    process = subprocess.Popen(
        command,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        process_group=0,
    )
    try:
        yield Running(process)
    finally:
        if process.returncode is None:
            _end_group(process)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
