"""The brokers' client libraries are in a layer of their own: nothing that runs without it may import them."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib

import pytest
from packaging.requirements import Requirement

from infra.layout import DEPENDENCIES, LAYERS, ROOT
from mailroom.publishers.broker import BrokerPublisher
from tests.missing import LINKS

OURS = [LAYERS / "mailroom" / "python", LAYERS / "app" / "python"]
FOR_TERMINALS = ("mailroom.cli", "mailroom.scheduler")
"""They are not deployed."""
IMPORT_ALL = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"


def modules() -> list[str]:
    found = [path.relative_to(folder).with_suffix("") for folder in OURS for path in folder.rglob("*.py")]
    return sorted(".".join(path.parts).removesuffix(".__init__") for path in found)


def imported(names: list[str], layers: list[str]) -> subprocess.CompletedProcess[str]:
    return run(IMPORT_ALL, layers, *names)


def run(code: str, layers: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it with these layers and ours on the path, and nothing else."""
    paths = [*(LAYERS / layer / "local" / "python" for layer in layers), *OURS]
    return subprocess.run(
        [sys.executable, "-P", "-S", "-s", "-B", "-c", code, *arguments],
        env={"PYTHONPATH": os.pathsep.join(map(str, paths))},
        capture_output=True,
        text=True,
        check=False,
    )


def pins(file: str) -> set[str]:
    return {line for line in (ROOT / file).read_text().splitlines() if "==" in line}


def test_everything_but_the_links_imports__without_the_brokers_layer() -> None:
    names = [name for name in modules() if name not in LINKS and not name.startswith(FOR_TERMINALS)]
    assert {"mailroom.publishers.kafka", "mailroom.publishers.rabbitmq"} < set(names)

    done = imported(names, [DEPENDENCIES])

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", sorted(LINKS))
def test_a_link_imports__with_the_brokers_layer_and_not_without(name: str) -> None:
    with_it, without = imported([name], [DEPENDENCIES, str(BrokerPublisher.layer)]), imported([name], [DEPENDENCIES])

    assert with_it.returncode == 0, with_it.stderr
    assert "ModuleNotFoundError" in without.stderr


def test_the_built_layer_has_the_clients_that_are_pinned__with_nothing_else_on_the_path() -> None:
    code = (
        "import pika, confluent_kafka as kafka; from importlib.metadata import version; "
        "kafka.Producer({}); print(*(f'{name}=={version(name)}' for name in ('confluent-kafka', 'pika')))"
    )

    done = run(code, [str(BrokerPublisher.layer)])

    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == pins("requirements-brokers.txt")


def test_what_is_installed_outside_lambda_is_what_the_layer_has__or_newer() -> None:
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    ranges = [Requirement(each) for each in extra[str(BrokerPublisher.layer)]]

    lowest = {f"{each.name}=={next(s.version for s in each.specifier if s.operator == '>=')}" for each in ranges}
    assert lowest == pins("requirements-brokers.txt")


def test_the_layers_are_pinned_apart__and_share_no_package() -> None:
    names = [
        {pin.partition("==")[0] for pin in pins(file)} for file in ("requirements.txt", "requirements-brokers.txt")
    ]
    assert names[0] & names[1] == set()
    assert names[1] == {"confluent-kafka", "pika"}
