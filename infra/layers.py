"""The layers that every function stands on."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import IgnoreMode
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.layout import LAYERS
from infra.stage import StageConfig, StageError

NOT_DEPLOYED = ["__pycache__", "*.egg-info", "/python/mailroom/cli", "/python/mailroom/scheduler.py", ".built"]


class Layers(Construct):
    """Dependencies, machinery and application, each replaced only when it changes."""

    def __init__(self, scope: Construct, id_: str, *, stage: StageConfig) -> None:
        super().__init__(scope, id_)
        self.all = [
            self._layer("Dependencies", _built(stage)),
            self._layer("Mailroom", LAYERS / "mailroom"),
            self._layer("App", LAYERS / "app"),
        ]

    def _layer(self, id_: str, folder: Path) -> lambda_.LayerVersion:
        code = lambda_.Code.from_asset(str(folder), exclude=NOT_DEPLOYED, ignore_mode=IgnoreMode.GIT)
        return lambda_.LayerVersion(self, id_, code=code)


def _built(stage: StageConfig) -> Path:
    if not (stage.dependencies / "python").is_dir():
        command = "make build-aws" if stage.on_aws else "make build"
        raise StageError(f"{stage.dependencies} has no dependencies in it: run `{command}`")
    return stage.dependencies
