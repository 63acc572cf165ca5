"""The brokers' client libraries are in a layer of their own: nothing that runs without it may import them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from infra.layout import DEPENDENCIES, LAYERS
from mailroom.publishers.broker import BrokerPublisher

OURS = [LAYERS / "mailroom" / "python", LAYERS / "app" / "python"]
IN_THE_LAYER = {
    "mailroom.publishers.amqp_session",
    "mailroom.publishers.kafka_link",
    "mailroom.publishers.rabbitmq_link",
}
FOR_TERMINALS = ("mailroom.cli", "mailroom.scheduler")
"""They are not deployed."""
IMPORT_ALL = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"


def modules() -> list[str]:
    found = [path.relative_to(folder).with_suffix("") for folder in OURS for path in folder.rglob("*.py")]
    return sorted(".".join(path.parts).removesuffix(".__init__") for path in found)


def imported(names: list[str], layers: list[str]) -> subprocess.CompletedProcess[str]:
    paths = [*(LAYERS / layer / "local" / "python" for layer in layers), *OURS]
    return subprocess.run(
        [sys.executable, "-P", "-S", "-s", "-B", "-c", IMPORT_ALL, *names],
        env={"PYTHONPATH": os.pathsep.join(map(str, paths))},
        capture_output=True,
        text=True,
        check=False,
    )


def test_everything_but_the_links_imports__without_the_brokers_layer() -> None:
    names = [name for name in modules() if name not in IN_THE_LAYER and not name.startswith(FOR_TERMINALS)]
    assert {"mailroom.publishers.kafka", "mailroom.publishers.rabbitmq"} < set(names)

    done = imported(names, [DEPENDENCIES])

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", sorted(IN_THE_LAYER))
def test_a_link_imports__with_the_brokers_layer_and_not_without(name: str) -> None:
    with_it, without = imported([name], [DEPENDENCIES, str(BrokerPublisher.layer)]), imported([name], [DEPENDENCIES])

    assert with_it.returncode == 0, with_it.stderr
    assert "ModuleNotFoundError" in without.stderr


def test_the_layers_are_pinned_apart__and_share_no_package() -> None:
    names = [
        {line.partition("==")[0] for line in (LAYERS.parent / file).read_text().splitlines() if "==" in line}
        for file in ("requirements.txt", "requirements-brokers.txt")
    ]
    assert names[0] & names[1] == set()
    assert names[1] == {"confluent-kafka", "pika"}
