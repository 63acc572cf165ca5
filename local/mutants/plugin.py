"""A plugin of pytest for its runs under mutmut."""

from __future__ import annotations

import atexit
import json
import os
from collections import Counter
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from local.mutants.plan import STATISTICS

NOTICED = Path("../noticed.txt")
"""Which tests noticed mutants of which functions, this time and before."""

# mutmut 3.8 reads a name that pytest 9.2 no longer has.
pytest.Item._nodeid = property(lambda item: item.nodeid)  # type: ignore[attr-defined]

_kept: dict[str, Any] = {}
_open = ExitStack()
atexit.register(_open.close)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> object | None:
    """Keep AWS in process from one session to the next: each mutant's process begins with it, emptied."""
    if fixturedef.argname != "moto_account":
        return None
    if "moto_account" not in _kept:
        # A heavy import, and not every part needs it.
        double = import_module("tests.moto_account")
        _kept["moto_account"] = _open.enter_context(double.moto_account())
    value: object = _kept["moto_account"]
    fixturedef.cached_result = (value, fixturedef.cache_key(request), None)  # type: ignore[arg-type]
    return value


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Take the tests that run the mutant's function: first what noticed others of its mutants, then the quickest.

    A run ends at the first failure.
    """
    function, file = _function(), Path(STATISTICS)
    if function and file.exists():
        statistics = json.loads(file.read_text())
        seconds = {_plain(test): taken for test, taken in statistics["duration_by_test"].items()}
        wanted = {_plain(test) for test in statistics["tests_by_mangled_function_name"][function]}
        noticed = Counter(_noticed())
        items[:] = [item for item in items if _plain(item.nodeid) in wanted]
        items.sort(key=lambda item: (-noticed[_plain(item.nodeid)], seconds.get(_plain(item.nodeid), 0)))


def _plain(test: str) -> str:
    """Return a test's name without backslashes: pytest doubles them with each session of a process."""
    return test.replace("\\", "")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember which test noticed a mutant."""
    if report.failed and _function():
        with NOTICED.open("a") as file:
            file.write(f"{_function()}\t{report.nodeid}\n")


def _noticed() -> list[str]:
    lines = NOTICED.read_text().splitlines() if NOTICED.exists() else []
    pairs = [line.partition("\t") for line in lines]
    return [_plain(test) for function, _, test in pairs if function == _function()]


def _function() -> str:
    """Return the function whose mutant is tested, empty if none is."""
    name, mark, _ = os.environ.get("MUTANT_UNDER_TEST", "").partition("__mutmut_")
    return name if mark else ""
