"""The RabbitMQ of the end-to-end tests: who has none is told what to do, and nothing is installed unasked."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from local import rabbitmq
from local.rabbitmq import RabbitMqFailed, RabbitMqServer


def no_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any, **__: Any) -> None:
        raise AssertionError("it ran a command")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(subprocess, "Popen", run)


def test_who_is_not_root_is_told_what_to_install__or_how_to_go_without(monkeypatch: pytest.MonkeyPatch) -> None:
    no_commands(monkeypatch)
    monkeypatch.setattr("os.geteuid", lambda: 1000)

    with pytest.raises(RabbitMqFailed, match=r"apt-get install .*rabbitmq-server") as caught:
        rabbitmq.install()
    assert "make e2e MAILROOM_WITHOUT_RABBITMQ=1" in str(caught.value)


def test_a_machine_without_apt_is_told_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    no_commands(monkeypatch)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda _: None)

    with pytest.raises(RabbitMqFailed, match="MAILROOM_WITHOUT_RABBITMQ=1"):
        rabbitmq.install()


def test_a_broker_that_is_not_installed_is_not_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    no_commands(monkeypatch)
    monkeypatch.setattr(rabbitmq, "_free_port", lambda: 1)
    monkeypatch.setattr(rabbitmq, "SERVER", tmp_path / "none")

    with pytest.raises(RabbitMqFailed, match="MAILROOM_WITHOUT_RABBITMQ=1"):
        RabbitMqServer(tmp_path / "data", certificate=tmp_path / "none.pem").start()


@pytest.mark.parametrize("there_already", [False, True])
def test_no_service_starts_while_it_is_installed__and_the_policy_is_as_before(
    there_already: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    policy = tmp_path / "policy-rc.d"
    monkeypatch.setattr(rabbitmq, "_POLICY", policy)
    if there_already:
        policy.write_text("somebody's")

    with rabbitmq._no_service_starts():
        during = policy.read_text()

    assert during == ("somebody's" if there_already else "#!/bin/sh\nexit 101\n")
    assert policy.exists() == there_already
