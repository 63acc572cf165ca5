"""A RabbitMQ for tests: Debian's, on 127.0.0.1 alone, with a folder for its data, and gone for good when stopped.

Erlang's port mapper, which a node otherwise starts and leaves behind, is one of ours and ends with the broker.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from local.account import HOST
from local.logs import tail

SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
WITHOUT = "MAILROOM_WITHOUT_RABBITMQ"
_PACKAGE = "rabbitmq-server"
INSTALL = f"sudo apt-get install --no-install-recommends {_PACKAGE}"
"""The command that installs Debian's."""
_MISSING = f"""RabbitMQ is not there, and the end-to-end tests need one ({SERVER}).
Install it:  {INSTALL}
It need not run:  sudo systemctl disable --now {_PACKAGE} epmd.socket
Or go without what it would prove:  make e2e {WITHOUT}=1"""
_MAPPER = "epmd"
_POLICY = Path("/usr/sbin/policy-rc.d")
_START_WITHIN = 60.0
_STOP_WITHIN = 10.0
_GREETING = b"AMQP\x00\x00\x09\x01"
"""What a client says first. https://www.rabbitmq.com/resources/specs/amqp0-9-1.pdf, 4.2.2"""


class RabbitMqFailed(Exception):
    """RabbitMQ is not there, did not start, or did not end."""


class RabbitMqServer:
    """One broker, on the same ports and data for as long as the object lives: `guest`, `guest` is let in.

    Parameters
    ----------
    folder
        Where everything is that it writes; emptied at first.
    certificate
        The file with its key and its certificate, in PEM.
    """

    def __init__(self, folder: Path, *, certificate: Path) -> None:
        self._folder = folder
        self._certificate = certificate
        self.port, self.tls_port, self._mapper_port, self._node_port = (_free_port() for _ in range(4))
        self._mapper: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None
        shutil.rmtree(folder, ignore_errors=True)

    @property
    def log(self) -> Path:
        """What the broker wrote."""
        return self._folder / "rabbitmq.log"

    def start(self) -> None:
        """Start it and wait until it takes connections.

        Raises
        ------
        RabbitMqFailed
            If it is not installed, ends early or stays silent; it is stopped then.
        """
        if not SERVER.exists():
            raise RabbitMqFailed(_MISSING)
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "rabbitmq.conf").write_text(self._settings())
        (self._folder / "enabled_plugins").write_text("[].\n")
        try:
            self._mapper = self._mapper or self._spawn([_MAPPER])
            self._server = self._spawn([SERVER])
            self._wait_until_up(self._server)
        except BaseException:
            self.stop()
            raise

    def kill(self) -> None:
        """End the broker as a power cut would; it may be started again on what it had written."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()
            self._server = None

    def stop(self) -> None:
        """End the broker and the port mapper."""
        for process in (self._server, self._mapper):
            if process is not None:
                _end(process)
        self._server = self._mapper = None

    def pause(self) -> None:
        """Let the broker stand still, with all its connections open."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._server is not None:
            self._server.send_signal(number)

    def _spawn(self, command: Sequence[str | Path]) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                command,
                env=self._environment(),
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )

    def _settings(self) -> str:
        settings = {
            "listeners.tcp.1": f"{HOST}:{self.port}",
            "listeners.ssl.1": f"{HOST}:{self.tls_port}",
            "ssl_options.certfile": self._certificate,
            "ssl_options.keyfile": self._certificate,
            "log.console": "true",
            "log.file": "false",
        }
        return "".join(f"{name} = {value}\n" for name, value in settings.items())

    def _environment(self) -> dict[str, str]:
        folder = self._folder.resolve()
        return {
            "ERL_EPMD_ADDRESS": HOST,
            "ERL_EPMD_PORT": str(self._mapper_port),
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "PATH": os.defpath,
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_DIST_PORT": str(self._node_port),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_NODENAME": "mailroom@localhost",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            # Its start script becomes the broker then, in place of standing before it: who is killed is the broker.
            "RUNNING_UNDER_SYSTEMD": "true",
        }

    def _wait_until_up(self, server: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_WITHIN
        while not self._greets():
            if server.poll() is not None or time.monotonic() > deadline:
                raise RabbitMqFailed(f"RabbitMQ did not start:\n{tail(self.log)}")
            time.sleep(0.05)

    def _greets(self) -> bool:
        try:
            with socket.create_connection((HOST, self.port), timeout=2) as connection:
                connection.sendall(_GREETING)
                return bool(connection.recv(1))
        except OSError:
            return False

    def __enter__(self) -> "RabbitMqServer":
        self.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()


def install() -> None:
    """Install Debian's RabbitMQ, without starting its service.

    Raises
    ------
    RabbitMqFailed
        If we are not root, or this is not Debian; it says what to do.
    """
    apt = shutil.which("apt-get")
    if os.geteuid() != 0 or apt is None:
        raise RabbitMqFailed(_MISSING)
    print("Installing RabbitMQ (about half a minute) ...")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with _no_service_starts():
        for command in (["update"], ["install", "-y", "--no-install-recommends", _PACKAGE]):
            done = subprocess.run([apt, "-qq", *command], env=environment, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise RabbitMqFailed(f"apt-get {command[0]} failed:\n{done.stderr}\n{_MISSING}")


@contextlib.contextmanager
def _no_service_starts() -> Iterator[None]:
    """Let packages start no services inside the block. https://people.debian.org/~hmh/invokerc.d-policyrc.d-specification.txt"""
    if _POLICY.exists():
        yield  # it is somebody's decision already
        return
    _POLICY.write_text("#!/bin/sh\nexit 101\n")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGCONT)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_WITHIN)
    process.kill()
    process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    try:
        install()
    except RabbitMqFailed as error:
        sys.exit(str(error))
