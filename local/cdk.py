"""Runs the CDK command for a local stack, and reads from its log how far it is."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from local import workspace
from local.account import ACCOUNT, CREDENTIALS, REGION
from local.logs import tail
from local.process import Running, started
from local.workspace import Workspace

_TAIL = 4096
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_RESOURCE = re.compile(r"(?P<stack>\S+) \| +(?P<done>\d+)/(?P<all>\d+) \|[^|]*\|[^|]*\|[^|]*\| (?P<resource>\S+)")
_OUTPUT = re.compile(r"Outputs:|Stack ARN:|arn:|\S+\.\w+ = ")
"""What the CDK command writes after a stack: no progress."""


class CdkFailed(Exception):
    """The CDK command failed; the message ends with what it wrote."""


class Cdk:
    """A run of the CDK command."""

    def __init__(self, name: str, log: Path, running: Running) -> None:
        self.log = log
        self._name, self._running = name, running

    def finish(self) -> None:
        """Wait for its end.

        Raises
        ------
        CdkFailed
            If its status is not 0.
        """
        if self._running.wait() != 0:
            raise CdkFailed(f"`cdk {self._name}` failed:\n{tail(self.log)}")


@contextmanager
def cdk(
    place: Workspace, name: str, options: Sequence[str], *, cwd: Path, endpoint_url: str | None = None
) -> Iterator[Cdk]:
    """Start a subcommand; it has ended when the block has.

    Parameters
    ----------
    endpoint_url
        The emulator; None for a subcommand that calls no AWS.
    """
    log = place.cdk_log(name)
    command: list[str | Path] = [workspace.NODE, workspace.CDK, name, *options, "--no-notices"]
    environment = _environment(place, endpoint_url)
    with log.open("w") as output, started(command, env=environment, cwd=cwd, output=output) as running:
        yield Cdk(name, log, running)


def progress(log: Path) -> str:
    """Return how far a run is: how much of a stack is done with the resource that came last, or the log's last line."""
    for line in reversed(_last_lines(log)):
        if found := _RESOURCE.match(line):
            return "{stack} {done}/{all} {resource}".format(**found.groupdict())
        if not _OUTPUT.match(line):
            return line
    return ""


def _last_lines(log: Path) -> list[str]:
    if not log.exists():
        return []
    with log.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - _TAIL))
        text = _COLOUR.sub("", file.read().decode(errors="replace"))
    return [line.strip() for line in text.splitlines() if line.strip()]


def _environment(place: Workspace, endpoint_url: str | None) -> dict[str, str]:
    """The user's, without a word about AWS: a profile must not send a local deploy to a real account."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "CDK_"))}
    # To compile the CDK's Python again for each synth takes as long as the synth.
    own.pop("PYTHONDONTWRITEBYTECODE", None)
    # With an endpoint of its own S3 is called by path, not by a host name per bucket.
    endpoints = dict.fromkeys(("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"), endpoint_url) if endpoint_url else {}
    return {
        **own,
        **CREDENTIALS,
        **endpoints,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "CDK_DEFAULT_ACCOUNT": ACCOUNT,
        "CDK_DEFAULT_REGION": REGION,
        "CDK_HOME": str(place.folder / "cdk-home"),
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        # Checking the templates takes a third of a synth: `make synth`, `make deploy` and the infra tests do it.
        "CDK_VALIDATION": "false",
        "JSII_NODE": str(workspace.NODE),
        "PATH": f"{workspace.NODE.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    }
