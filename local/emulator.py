"""Starts and stops the emulator, which listens on 127.0.0.1 alone and leaves no process behind."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import IO, Any

import urllib3

from local import workspace
from local.account import ACCOUNT, CREDENTIALS, HOST, REGION
from local.logs import tail
from local.workspace import Workspace

_START_WITHIN = 60.0
_STOP_WITHIN = 5.0


class EmulatorFailed(Exception):
    """The emulator did not start, or did not end."""


@dataclass(frozen=True, slots=True)
class Emulator:
    """A running emulator; it leads a process group that holds the functions it started."""

    pid: int
    port: int

    @property
    def url(self) -> str:
        """The endpoint of every AWS service, without a trailing slash."""
        return f"http://{HOST}:{self.port}"


def find(place: Workspace) -> Emulator | None:
    """Return the emulator that runs in `place`, or None."""
    if not place.lock.exists():
        return None
    with place.lock.open("r+") as lock:
        if _take(lock):
            return None
        return Emulator(**_read_when_written(lock))


def start(place: Workspace) -> Emulator:
    """Start an emulator on a free port and wait until it answers.

    Raises EmulatorFailed if it ends early or stays silent, with the end of its log; it is stopped then.
    """
    place.folder.mkdir(parents=True, exist_ok=True)
    with place.lock.open("a+") as lock:
        if not _take(lock):
            raise EmulatorFailed(f"an emulator already runs in {place.folder}")
        lock.truncate(0)
        _remove_leftovers(place)
        with _undisturbed():
            emulator = _spawn(place, lock)
            lock.write(json.dumps(asdict(emulator)))
    try:
        _wait_until_healthy(place, emulator)
    except BaseException:
        stop(place)
        raise
    return emulator


def stop(place: Workspace) -> bool:
    """Stop the emulator of `place` and its functions; False if none ran."""
    with _undisturbed():
        emulator = find(place)
        if emulator is None:
            return False
        _signal_group(emulator, signal.SIGTERM)
        if not _ended_within(place, _STOP_WITHIN):
            _signal_group(emulator, signal.SIGKILL)
        if not _ended_within(place, _STOP_WITHIN):
            raise EmulatorFailed(f"the emulator (pid {emulator.pid}) does not end")
        _signal_group(emulator, signal.SIGKILL)  # functions that outlived it
        _reap(emulator)
        _remove_leftovers(place)
        return True


def _take(lock: IO[str]) -> bool:
    """Whether nobody held the lock: the emulator inherits it, so that a held lock proves a live emulator.

    A pid alone would not: it may belong to another process by now.
    """
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_when_written(lock: IO[str]) -> dict[str, Any]:
    deadline = time.monotonic() + _START_WITHIN
    while time.monotonic() < deadline:
        lock.seek(0)
        if text := lock.read():
            return dict(json.loads(text))
        time.sleep(0.05)
    raise EmulatorFailed(f"{lock.name} is held but says nothing")


def _spawn(place: Workspace, lock: IO[str]) -> Emulator:
    if not workspace.EMULATOR.exists():
        raise EmulatorFailed(f"{workspace.EMULATOR} is not there: start the local stack with make")
    place.temporary.mkdir(parents=True)
    port = _free_port()
    with place.emulator_log.open("w") as log:
        process = subprocess.Popen(
            [workspace.EMULATOR],
            env=_environment(place, port),
            cwd=place.temporary,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=[lock.fileno()],
            start_new_session=True,
        )
    return Emulator(pid=process.pid, port=port)


def _environment(place: Workspace, port: int) -> dict[str, str]:
    """Nothing of the user's own: the functions inherit this, and must not meet a profile or a proxy."""
    return {
        **CREDENTIALS,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        # Policies are enforced, so that a grant which a function lacks shows here and not on AWS.
        "AUTH": "true",
        "BIND_HOST": HOST,
        "GATEWAY_PORT": str(port),
        "HOME": str(place.temporary),
        "IOT_MTLS_ENABLED": "0",
        "LAMBDA_EXECUTOR": "local",
        "LANG": "C.UTF-8",
        "MINISTACK_ACCOUNT_ID": ACCOUNT,
        "MINISTACK_HOST": HOST,
        "PATH": os.defpath,
        "STATE_DIR": str(place.temporary / "state"),
        "S3_DATA_DIR": str(place.temporary / "s3"),
        "TMPDIR": str(place.temporary),
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _wait_until_healthy(place: Workspace, emulator: Emulator) -> None:
    deadline = time.monotonic() + _START_WITHIN
    while not _healthy(emulator):
        if find(place) is None or time.monotonic() > deadline:
            raise EmulatorFailed(f"the emulator did not start:\n{tail(place.emulator_log)}")
        time.sleep(0.1)


def _healthy(emulator: Emulator) -> bool:
    try:
        answer = urllib3.request("GET", f"{emulator.url}/_ministack/health", timeout=2, retries=False)
    except urllib3.exceptions.HTTPError:
        return False
    return answer.status == 200


def _signal_group(emulator: Emulator, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(emulator.pid, number)


def _reap(emulator: Emulator) -> None:
    """Leave no zombie if this very process started it; else its parent reaps it."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(emulator.pid, 0)


def _ended_within(place: Workspace, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while find(place) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _remove_leftovers(place: Workspace) -> None:
    shutil.rmtree(place.temporary, ignore_errors=True)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Put off Ctrl-C and SIGTERM until the end of the block, so that no emulator is left behind half-known.

    A signal mask would do it too, but the emulator would inherit it.
    """
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda n, _: came.append(n)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])
