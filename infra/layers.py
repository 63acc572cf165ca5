"""The layers that functions stand on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aws_cdk import IgnoreMode
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.layout import DEPENDENCIES, LAYERS
from infra.stage import StageConfig, StageError
from mailroom.needs import Access, LayerNeed
from mailroom.runtime import Runtime

NOT_DEPLOYED = ["__pycache__", "*.egg-info", "/python/mailroom/cli", "/python/mailroom/scheduler.py"]
_STAMP = [".built"]
"""What make leaves in a layer that it built; the bytecode in it is the runtime's own, and goes along."""


class Layers(Construct):
    """Dependencies, machinery and application, each replaced only when it changes, and what few functions need."""

    def __init__(self, scope: Construct, id_: str, *, stage: StageConfig) -> None:
        super().__init__(scope, id_)
        self._stage = stage
        self._of_all = [
            self._layer("Dependencies", _built(stage, DEPENDENCIES), without=_STAMP),
            self._layer("Mailroom", LAYERS / "mailroom", without=NOT_DEPLOYED),
            self._layer("App", LAYERS / "app", without=NOT_DEPLOYED),
        ]
        self._of_some: dict[str, lambda_.LayerVersion] = {}

    def of(self, access: Access, runtime: Runtime) -> list[lambda_.LayerVersion]:
        """Answer the layers of a function that touches this, and make those that none before it needed."""
        needs = (need for port in access.uses for need in port.needs(runtime))
        names = {need.name for need in needs if isinstance(need, LayerNeed)}
        return [*self._of_all, *(self._named(name) for name in sorted(names))]

    def _named(self, name: str) -> lambda_.LayerVersion:
        if name not in self._of_some:
            self._of_some[name] = self._layer(name.title(), _built(self._stage, name), without=_STAMP)
        return self._of_some[name]

    def _layer(self, id_: str, folder: Path, *, without: Sequence[str]) -> lambda_.LayerVersion:
        code = lambda_.Code.from_asset(str(folder), exclude=list(without), ignore_mode=IgnoreMode.GIT)
        return lambda_.LayerVersion(self, id_, code=code)


def _built(stage: StageConfig, name: str) -> Path:
    folder = stage.built_layers / name / ("aws" if stage.on_aws else "local")
    if not (folder / "python").is_dir():
        command = "make build-aws" if stage.on_aws else "make build"
        raise StageError(f"{folder} has no {name} in it: run `{command}`")
    return folder
