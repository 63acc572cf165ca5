"""Functions get the settings they read, and are started by what their declaration names."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from aws_cdk import App

from app.settings import AppSettings
from infra.lambda_function import ARCHITECTURE, RUNTIME
from infra.layout import DEPENDENCIES, FUNCTIONS, ROOT
from infra.stacks import add_stacks
from infra.stage import StageConfig, StageError
from mailroom.settings import Settings
from tests.infra.assembly import Assembly, id_in
from tests.infra.conftest import ENVIRONMENT, SynthOf

HANDLERS = sorted(FUNCTIONS.glob("*/handler.py"))


def variables(assembly: Assembly, name: str) -> dict[str, str]:
    return dict(assembly.properties(assembly.function(name))["Environment"]["Variables"])


def test_every_handler_is_deployed__and_every_function_has_a_handler(prod: Assembly) -> None:
    assets = {each["Properties"]["Code"]["S3Key"] for each in prod.of_type("Lambda::Function").values()}
    assert len(assets) == len(HANDLERS)
    assert all(each["Properties"]["Handler"] == "handler.handler" for each in functions(prod))


def test_its_own_rule_or_api_may_start_a_function__and_nobody_else(prod: Assembly) -> None:
    rules = {
        (id_in(target["Arn"]), "events.amazonaws.com", f"${{{name}.Arn}}")
        for name, rule in prod.of_type("Events::Rule").items()
        for target in rule["Properties"]["Targets"]
        if id_in(target["Arn"]) in prod.of_type("Lambda::Function")
    }
    here = f"arn:${{AWS::Partition}}:execute-api:{ENVIRONMENT.region}:{ENVIRONMENT.account}"
    apis = {
        (prod.function(name), "apigateway.amazonaws.com", f"{here}:{prod.deployment[api]}/*/*/{below}/{{proxy+}}")
        for name, api, below in (("api", "api_id", "api"), ("operations", "ops_id", "ops"))
    }
    permissions = [each["Properties"] for each in prod.of_type("Lambda::Permission").values()]
    assert {each["Action"] for each in permissions} == {"lambda:InvokeFunction"}
    started = [(id_in(each["FunctionName"]), each["Principal"], each["SourceArn"]) for each in permissions]
    assert sorted(started) == sorted(rules | apis)


def test_a_handler_is_glue__of_fifteen_lines_at_most() -> None:
    assert [each for each in HANDLERS if len(each.read_text().splitlines()) > 15] == []


def test_every_function_reads_back_the_settings_that_infra_wrote(prod: Assembly) -> None:
    for name in prod.deployment["functions"]:
        environment = variables(prod, name)
        settings, app_settings = Settings.from_env(environment), AppSettings.from_env(environment)
        assert settings.to_env() | app_settings.to_env() == prod.deployment["settings"]
        assert settings.table_names() | app_settings.table_names() == prod.deployment["tables"]


def test_events_have_the_source_that_the_rules_wait_for(prod: Assembly) -> None:
    source = Settings.from_env(prod.deployment["settings"]).source
    rules = [each["Properties"] for each in prod.of_type("Events::Rule").values()]
    assert {tuple(each["EventPattern"]["source"]) for each in rules if "EventPattern" in each} == {(source,)}


def test_the_dependencies_layer_is_built_for_the_functions_runtime() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert f"\nruntime := {RUNTIME.name.removeprefix('python')}\n" in makefile
    assert {"arm64": "--python-version $(runtime) --python-platform aarch64-"}[ARCHITECTURE.name] in makefile


def test_a_built_layer_keeps_its_bytecode__and_no_stamp_of_make(
    stage: Callable[..., StageConfig], synth_of: SynthOf, built_layers: Path, tmp_path: Path
) -> None:
    built = shutil.copytree(built_layers, tmp_path / "layers")
    layer = built / DEPENDENCIES / "aws"
    (layer / ".built").touch()
    (layer / "python" / "__pycache__").mkdir()
    (layer / "python" / "__pycache__" / "module.cpython-313.pyc").touch()

    deployed = synth_of(replace(stage("prod"), built_layers=built)).folder
    assert list(deployed.glob("asset.*/python/__pycache__/module.cpython-313.pyc"))
    assert not list(deployed.glob("asset.*/.built"))


def test_logs_are_kept_for_a_while_and_not_for_ever(prod: Assembly) -> None:
    groups = prod.of_type("Logs::LogGroup")
    assert {each["Properties"].get("RetentionInDays") for each in groups.values()} == {90}
    for function in functions(prod):
        assert function["Properties"]["LoggingConfig"]["LogGroup"].strip("${}") in groups


def test_traces_are_taken__on_aws_alone(prod: Assembly, local: Assembly) -> None:
    assert {each["Properties"]["TracingConfig"]["Mode"] for each in functions(prod)} == {"Active"}
    assert not any("TracingConfig" in each["Properties"] for each in functions(local))
    assert {variables(local, name)["POWERTOOLS_TRACE_DISABLED"] for name in local.deployment["functions"]} == {"true"}


def test_no_function_reserves_concurrency(prod: Assembly) -> None:
    assert not any("ReservedConcurrentExecutions" in each["Properties"] for each in functions(prod))


@pytest.mark.parametrize(("name", "command"), [("prod", "`make build-aws`"), ("local", "`make build`")])
def test_a_missing_dependencies_layer_names_the_command_that_builds_it(
    app: App, stage: Callable[..., StageConfig], tmp_path: Path, name: str, command: str
) -> None:
    config = StageConfig.of(name, email_sender="sender@example.com", built_layers=tmp_path)
    with pytest.raises(StageError, match=command):
        add_stacks(app, stage=config, env=ENVIRONMENT)


def test_the_layers_carry_no_leftovers_and_nothing_that_runs_elsewhere_only(prod: Assembly) -> None:
    files = [f"{path.relative_to(prod.folder)}/" for path in prod.folder.glob("asset.*/**/*")]
    unwanted = ("/__pycache__/", ".egg-info/", "/mailroom/cli/", "/mailroom/scheduler.py/")
    assert [path for path in files if any(each in path for each in unwanted)] == []
    assert any(path.endswith("/mailroom/settings.py/") for path in files)


def functions(assembly: Assembly) -> list[dict[str, dict]]:  # type: ignore[type-arg]
    return list(assembly.of_type("Lambda::Function").values())
