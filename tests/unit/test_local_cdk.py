"""How far the CDK command is, read from its log."""

from __future__ import annotations

from pathlib import Path

import pytest

from local.cdk import _environment, progress
from local.workspace import Workspace

RESOURCE = (
    "mailroom-local-service | 193/214 | 1:59:01 AM | CREATE_IN_PROGRESS      | AWS::IAM::Role                  "
    "| Operations/Function/Role (OperationsFunctionRole01690A)"
)
FIRST = "mailroom-local-data |  0/11 | 1:58:52 AM | CREATE | AWS::CloudFormation::Stack | mailroom-local-data"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([RESOURCE], "mailroom-local-service 193/214 Operations/Function/Role"),
        ([FIRST], "mailroom-local-data 0/11 mailroom-local-data"),
        ([FIRST, RESOURCE], "mailroom-local-service 193/214 Operations/Function/Role"),
        ([RESOURCE, "\x1b[32mmailroom: start: Building\x1b[39m", "", " "], "mailroom: start: Building"),
        (["✅  mailroom-local-data", "Outputs:", "mailroom-local-data.Name = x", "Stack ARN:", "arn:aws:x"],
         "✅  mailroom-local-data"),
        ([], ""),
    ],
)  # fmt: skip
def test_it_is_at_the_last_line_that_tells_of_progress(lines: list[str], told: str, tmp_path: Path) -> None:
    log = tmp_path / "deploy.log"
    log.write_text("\n".join(lines))

    assert progress(log) == told


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "deploy.log"
    log.write_text(f"{RESOURCE}\n" + "Outputs:\n" * 10_000)

    assert progress(log) == ""


def test_it_is_nowhere__when_there_is_no_log_yet(tmp_path: Path) -> None:
    assert progress(tmp_path / "deploy.log") == ""


def test_nothing_of_the_users_about_aws_reaches_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("CDK_DEPLOY_ROLE", "production")

    assert "production" not in _environment(Workspace(tmp_path), None).values()


def test_it_calls_the_emulator_alone__if_it_calls_any(tmp_path: Path) -> None:
    place, url = Workspace(tmp_path), "http://127.0.0.1:1"

    assert _environment(place, url)["AWS_ENDPOINT_URL"] == _environment(place, url)["AWS_ENDPOINT_URL_S3"] == url
    assert "AWS_ENDPOINT_URL" not in _environment(place, None)


def test_it_keeps_the_bytecode_of_the_cdk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")

    assert "PYTHONDONTWRITEBYTECODE" not in _environment(Workspace(tmp_path), None)


def test_it_does_not_check_the_templates__which_the_synth_for_aws_does(tmp_path: Path) -> None:
    assert _environment(Workspace(tmp_path), None)["CDK_VALIDATION"] == "false"
