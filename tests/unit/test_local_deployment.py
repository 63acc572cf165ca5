"""What is done for a local deployment, in which order; and that no command outlives its block."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from local import deployment
from local.cdk import CdkFailed
from local.emulator import Emulator
from local.process import started
from local.steps import Steps
from local.workspace import Workspace

RUNNING = Emulator(pid=1, port=2)


class World:
    """An emulator and a CDK command that only say what they were told to do."""

    def __init__(self, place: Workspace) -> None:
        self.place = place
        self.log = place.folder / "some.log"
        self.did: list[str] = []
        self.options: dict[str, Sequence[str]] = {}
        self.endpoints: dict[str, str | None] = {}
        self.failing: str | None = None
        self.running: Emulator | None = None
        self.bootstrapped = False

    def find(self, _: Workspace) -> Emulator | None:
        return self.running

    def start(self, _: Workspace) -> Emulator:
        self.did.append("emulator")
        return RUNNING

    @contextmanager
    def cdk(
        self, place: Workspace, name: str, options: Sequence[str], *, cwd: Path, endpoint_url: str | None = None
    ) -> Iterator[Any]:
        self.did.append(f"{name} begins")
        self.options[name], self.endpoints[name] = options, endpoint_url
        world = self

        class Run:
            log = world.log

            def finish(self) -> None:
                if world.failing == name:
                    raise CdkFailed(name)
                world.did.append(f"{name} ends")

        yield Run()

    def deploy(self) -> None:
        with Steps(Console(file=StringIO())) as steps:
            deployment.start_and_deploy(self.place, steps)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world in which nothing runs yet."""
    made = World(Workspace(tmp_path / "local"))
    monkeypatch.setattr(deployment.emulator, "find", made.find)
    monkeypatch.setattr(deployment.emulator, "start", made.start)
    monkeypatch.setattr(deployment, "cdk", made.cdk)
    monkeypatch.setattr(deployment, "_is_bootstrapped", lambda _: made.bootstrapped)
    monkeypatch.setattr(deployment, "_client", lambda *_: Anything())
    monkeypatch.setattr(deployment, "_deployment", lambda _: None)
    monkeypatch.setattr(deployment, "complete", lambda *_: made.did.append("complete"))
    monkeypatch.setattr(deployment.LocalStack, "deployed_at", lambda *_: Anything())
    return made


class Anything:
    """Takes every call."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def test_the_emulator_is_made_ready_while_the_templates_are_written(world: World) -> None:
    world.deploy()

    assert world.did == [
        "synth begins",
        "emulator",
        "bootstrap begins",
        "bootstrap ends",
        "synth ends",
        "deploy begins",
        "deploy ends",
        "complete",
    ]


def test_an_emulator_that_runs_is_deployed_to_again(world: World) -> None:
    world.running, world.bootstrapped = Emulator(pid=1, port=7), True
    world.deploy()

    assert world.did == ["synth begins", "synth ends", "deploy begins", "deploy ends", "complete"]
    assert world.endpoints == {"synth": None, "deploy": "http://127.0.0.1:7"}


def test_what_was_synthesized_is_deployed__and_not_synthesized_again(world: World) -> None:
    world.deploy()

    output = world.options["synth"][-1]
    assert list(world.options["synth"])[-2] == "--output"
    assert list(world.options["deploy"])[list(world.options["deploy"]).index("--app") + 1] == output


def test_templates_of_a_run_before_are_gone__before_new_ones_are_written(world: World) -> None:
    world.place.assembly.mkdir(parents=True)
    world.deploy()

    assert not world.place.assembly.exists()


@pytest.mark.parametrize(
    ("failing", "did"),
    [
        ("synth", ["synth begins", "emulator", "bootstrap begins", "bootstrap ends"]),
        ("bootstrap", ["synth begins", "emulator", "bootstrap begins"]),
    ],
)
def test_nothing_is_deployed__when_what_comes_before_failed(failing: str, did: list[str], world: World) -> None:
    world.failing = failing

    with pytest.raises(CdkFailed, match=failing):
        world.deploy()
    assert world.did == did


def test_a_command_ends_with_its_block__when_ctrl_c_ends_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    groups: list[int] = []

    def interrupted() -> None:
        with (tmp_path / "log").open("w") as log, started(command, env={}, cwd=tmp_path, output=log) as running:
            groups.append(running.group)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with pytest.raises(ProcessLookupError):
        os.killpg(groups[0], 0)


def test_a_command_that_ended_tells_its_status(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit(3)"]

    with (tmp_path / "log").open("w") as log, started(command, env={}, cwd=tmp_path, output=log) as running:
        assert running.wait() == 3
