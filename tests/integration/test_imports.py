"""Importing anything of ours needs nothing of its surroundings, and reaches for nothing."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pkgutil import walk_packages

import pytest

MODULES = sorted(
    entry.name
    for package in ("mailroom", "app")
    for entry in walk_packages(import_module(package).__path__, f"{package}.")
)
"""Every module of the machinery and of the application."""

PROBE = """
import socket, sys
from importlib import import_module

def refuse(*_, **__):
    raise RuntimeError("a socket at import")

socket.socket.connect = refuse
for name in sys.argv[1:]:
    import_module(name)
from mailroom import clients
assert clients._make.cache_info().currsize == 0, "a client at import"
"""


def import_in_a_bare_process(*modules: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", PROBE, *modules],
        env={},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_every_module_imports__without_region_credentials_or_environment() -> None:
    outcome = import_in_a_bare_process(*MODULES)

    assert (outcome.returncode, outcome.stderr) == (0, "")


def test_importing_writes_nothing__that_would_be_billed_as_a_log() -> None:
    assert import_in_a_bare_process(*MODULES).stdout == ""


@pytest.mark.parametrize("module", ["mailroom.consumer", "mailroom.job", "mailroom.outbox.relay", "app.api"])
def test_an_edge_imports_by_itself__whatever_was_not_imported_before(module: str) -> None:
    outcome = import_in_a_bare_process(module)

    assert (outcome.returncode, outcome.stderr) == (0, "")
