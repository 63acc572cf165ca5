"""Functions start on the layers alone, under an interpreter of your choice.

Two variables choose, so that a pipeline can see the functions start on the Python that runs them on AWS:
`MAILROOM_FUNCTIONS_PYTHON` names the interpreter, which is the one of the tests if it is not set, and
`MAILROOM_DEPENDENCIES_LAYER` the folder of a layer that was built for it, `layers/dependencies/local` if not.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from infra.api import API, OPERATIONS
from infra.application import Application
from infra.layout import DEPENDENCIES, FUNCTIONS, LAYERS
from mailroom.controls import RELAY
from mailroom.declarations import DECLARATION_VARIABLE

PYTHON = os.environ.get("MAILROOM_FUNCTIONS_PYTHON", sys.executable)
DEPENDENCIES_LAYER = Path(os.environ.get("MAILROOM_DEPENDENCIES_LAYER", LAYERS / DEPENDENCIES / "local")).resolve()
LAYER_FOLDERS = [layer / "python" for layer in (DEPENDENCIES_LAYER, LAYERS / "mailroom", LAYERS / "app")]
START = f"""
import importlib, os, sys
sys.path[:0] = sys.argv[1:]
importlib.import_module("handler").handler
if target := os.environ.get("{DECLARATION_VARIABLE}"):
    module, _, name = target.partition(":")
    getattr(importlib.import_module(module), name)
"""
ABOUT = """
import importlib.machinery, json, sys
print(json.dumps([sys.version.split()[0], importlib.machinery.EXTENSION_SUFFIXES]))
"""


def deployed() -> dict[str, tuple[str, dict[str, str]]]:
    """Return the folder of each function's handler, and what its environment says of the declaration that it runs."""
    found = Application.discover()
    alone: dict[str, tuple[str, dict[str, str]]] = {name: (name, {}) for name in (API, OPERATIONS, RELAY)}
    consumers = {each.name: ("consumer", {DECLARATION_VARIABLE: each.target}) for each in found.consumers}
    jobs = {each.name: ("job", {DECLARATION_VARIABLE: each.target}) for each in found.jobs}
    return alone | consumers | jobs


def run(python: str, *arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run an interpreter that sees its own standard library and nothing else."""
    command = [python, "-I", "-S", *arguments]
    return subprocess.run(command, env=environment or {}, capture_output=True, text=True, check=False)


def foreign(layer: Path, suffixes: Iterable[str]) -> list[str]:
    """Return the native modules of a layer that an interpreter which knows these suffixes does not import."""
    modules = sorted((layer / "python").rglob("*.so"))
    return [str(each.relative_to(layer)) for each in modules if each.name[each.name.index(".") :] not in suffixes]


def check(layer: Path, *, version: str, suffixes: Iterable[str]) -> None:
    """Fail if a layer is not there, or is built for another interpreter."""
    build = (
        f"Build it with `make build`, or for Python {version} by its own `pip install -r requirements.txt --target`."
    )
    if not (layer / "python").is_dir():
        pytest.fail(f"There is no layer of dependencies in {layer}. {build}", pytrace=False)
    if modules := foreign(layer, suffixes):
        pytest.fail(f"{layer} is not built for Python {version}: {', '.join(modules)}. {build}", pytrace=False)


@pytest.fixture(scope="module")
def python() -> str:
    """The interpreter, for which the layer is built."""
    path = shutil.which(PYTHON)
    if path is None:
        pytest.fail(f"There is no interpreter {PYTHON!r}.", pytrace=False)
    about = run(path, "-c", ABOUT)
    assert about.returncode == 0, about.stderr
    version, suffixes = json.loads(about.stdout)
    check(DEPENDENCIES_LAYER, version=version, suffixes=suffixes)
    return path


@pytest.mark.parametrize("name", deployed())
def test_a_function_starts__with_only_the_layers_and_without_region_or_credentials(python: str, name: str) -> None:
    folder, environment = deployed()[name]
    paths = map(str, [FUNCTIONS / folder, *LAYER_FOLDERS])
    done = run(python, "-c", START, *paths, environment=environment)
    assert done.returncode == 0, done.stderr


def test_every_handler_is_started_here() -> None:
    assert {folder for folder, _ in deployed().values()} == {
        each.parent.name for each in FUNCTIONS.glob("*/handler.py")
    }


def test_a_layer_for_another_interpreter_is_told_from_code_that_does_not_start(tmp_path: Path) -> None:
    package = tmp_path / "python" / "native"
    package.mkdir(parents=True)
    for name in ("_a.cpython-313-x86_64-linux-gnu.so", "_b.abi3.so", "_c.so", "_d.cpython-311-x86_64-linux-gnu.so"):
        (package / name).touch()

    with pytest.raises(
        pytest.fail.Exception, match=r"not built for Python 3\.13\.0: python/native/_d\.cpython-311\S+so"
    ):
        check(tmp_path, version="3.13.0", suffixes=[".cpython-313-x86_64-linux-gnu.so", ".abi3.so", ".so"])


def test_a_layer_that_is_not_there_says_how_to_build_it(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"no layer of dependencies in .* `make build`"):
        check(tmp_path, version="3.13.0", suffixes=[])
