"""Runs a command that has children of its own, none of which outlive it."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

_GRACE = 5.0


def run_to_the_end(command: Sequence[str | Path], *, env: Mapping[str, str], cwd: Path, output: IO[str]) -> int:
    """Run a command without stdin and answer its status; whatever interrupts us ends its whole group."""
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
        return process.wait()
    except BaseException:
        _end_group(process)
        raise


def _end_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
