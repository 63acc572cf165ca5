"""Finding the stage: on AWS by the stack's outputs, locally by what `make up` wrote."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
from botocore.exceptions import EndpointConnectionError, NoCredentialsError
from typer.testing import CliRunner

from mailroom import clients
from mailroom.cli import local_stack
from mailroom.cli.errors import explain
from mailroom.cli.local_stack import LocalStackDown, use_local_stack
from mailroom.cli.main import app
from mailroom.runtime import Runtime
from mailroom.settings import SettingsError

from .conftest import Command


@pytest.fixture
def quiet_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An environment that may be changed, in a folder of its own."""
    monkeypatch.setattr(os, "environ", dict(os.environ))
    os.environ.pop(local_stack.PATH_VARIABLE, None)
    monkeypatch.setattr(clients, "forget", lambda: None)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def describe(folder: Path, port: int) -> None:
    (folder / "build").mkdir()
    described = {"endpoint_url": f"http://127.0.0.1:{port}", "region": "us-east-1"}
    (folder / "build" / "local.json").write_text(json.dumps(described))


def test_a_stage_is_needed__and_may_come_from_the_environment(mailroom: Command) -> None:
    missing = CliRunner().invoke(app, ["dead", "list"])
    assert missing.exit_code == 2
    assert "--stage" in missing.stderr
    assert CliRunner().invoke(app, ["dead", "list"], env={"MAILROOM_STAGE": "test"}).exit_code == 0


def test_a_stage_that_is_not_deployed_says_so__without_a_traceback(mailroom: Command) -> None:
    answer = mailroom("status", stage="prod")
    assert answer.code == 2
    assert answer.err.startswith("mailroom: there is no stack mailroom-prod-service")
    assert "Traceback" not in answer.err


def test_a_stage_of_another_version_says_so(mailroom: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def from_stack(_: str) -> None:
        raise SettingsError("MAILROOM_LEASES_TABLE: Field required")

    monkeypatch.setattr(Runtime, "from_stack", from_stack)
    answer = mailroom("status")
    assert answer.code == 2
    assert "deploy again" in answer.err


def test_missing_credentials_say_what_to_set() -> None:
    message, code = explain(NoCredentialsError())
    assert code == 2
    assert "AWS_PROFILE" in message
    assert explain(EndpointConnectionError(endpoint_url="https://x"))[1] == 1


def test_the_local_stack_is_found_from_any_folder_of_the_project(
    quiet_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        describe(quiet_environment, port)
        (quiet_environment / "deep" / "er").mkdir(parents=True)
        monkeypatch.chdir(quiet_environment / "deep" / "er")
        os.environ.update(AWS_ENDPOINT_URL_SQS="http://elsewhere", AWS_PROFILE="prod", AWS_SESSION_TOKEN="session")
        use_local_stack()
    assert os.environ["AWS_ENDPOINT_URL"] == f"http://127.0.0.1:{port}"
    assert os.environ["AWS_ACCESS_KEY_ID"] == "test"
    assert not {"AWS_ENDPOINT_URL_SQS", "AWS_PROFILE", "AWS_SESSION_TOKEN"} & os.environ.keys()


def test_a_named_description_goes_first(quiet_environment: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        describe(quiet_environment, server.getsockname()[1])
        os.environ[local_stack.PATH_VARIABLE] = str(quiet_environment / "none.json")
        with pytest.raises(LocalStackDown, match=r"none\.json: start the local stack with `make up`"):
            use_local_stack()


def test_a_local_stack_that_does_not_answer_is_down(quiet_environment: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    describe(quiet_environment, port)
    with pytest.raises(LocalStackDown, match=r"does not answer .* start it with `make up`"):
        use_local_stack()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"endpoint_url": "http://[", "region": "x"}', "not json"])
def test_a_description_that_is_none_says_so(quiet_environment: Path, text: str) -> None:
    (quiet_environment / "build").mkdir()
    (quiet_environment / "build" / "local.json").write_text(text)
    with pytest.raises(LocalStackDown, match="does not describe a local stack"):
        use_local_stack()


def test_a_local_stack_that_is_down_ends_the_command_as_not_deployed(
    mailroom: Command, quiet_environment: Path
) -> None:
    answer = mailroom("status", "--json", stage="local")
    assert answer.code == 2
    assert answer.json["error"]["type"] == "LocalStackDown"
