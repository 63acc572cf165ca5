"""Runs the benches one after the other, each in a process of its own, and closes with a table of what became of them.

A bench is a script in this folder that can be run alone. One that needs more than the development environment says what
is missing in a function `lacking() -> list[Lack]` beside its code.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path

from lack import Lack, parts_left_out
from rich.console import Console
from rich.table import Table

_STARTED_BY = 'if __name__ == "__main__":'
_PACKAGES = "pip install -r requirements-dev.txt"
_OURS = ("mailroom", "app", "local")
INTERRUPTED = 130

Run = Callable[[Path], int]


class UnknownBench(Exception):
    """No bench has this name; the message says which there are."""


class Result(StrEnum):
    """What became of a bench."""

    DONE = "done"
    FAILED = "failed"
    LEFT_OUT = "left out"
    INTERRUPTED = "interrupted"
    NOT_REACHED = "not reached"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a bench, after how many seconds of running."""

    result: Result
    seconds: float | None = None


def find(folder: Path) -> dict[str, Path]:
    """Return the benches of a folder by name."""
    scripts = [path for path in sorted(folder.glob("*.py")) if path.name not in ("__main__.py", Path(__file__).name)]
    return {path.stem: path for path in scripts if _STARTED_BY in path.read_text()}


def chosen(benches: Mapping[str, Path], only: str | None) -> dict[str, Path]:
    """Return the benches that a comma-separated list names, in its order; all of them without a list.

    Raises
    ------
    UnknownBench
        If a name is no bench's.
    """
    names = [name.strip() for name in (only or "").split(",") if name.strip()]
    if unknown := [name for name in names if name not in benches]:
        raise UnknownBench(f"no bench is called {', '.join(unknown)}; there are: {', '.join(benches)}")
    return {name: benches[name] for name in names or benches}


def lacking(name: str) -> list[Lack]:
    """Return what a bench says that it lacks, or the package without which it cannot even say so."""
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        # A module of our own that is not there is a defect: the bench runs, and fails of it.
        return [] if package in ("", name, *_OURS) else [Lack(f"the Python package {package}", _PACKAGES)]
    asked: Callable[[], list[Lack]] = getattr(module, "lacking", list)
    return asked()


def run_all(
    benches: Mapping[str, Path],
    lacks: Mapping[str, Sequence[Lack]],
    *,
    run: Run,
    console: Console,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Run what can be run and return the exit status: 1 if a bench failed, 130 after Ctrl-C, else 0."""
    _announce(console, lacks)
    outcomes = dict.fromkeys(benches, Outcome(Result.NOT_REACHED))
    for name, path in benches.items():
        if any(lack.part is None for lack in lacks[name]):
            outcomes[name] = Outcome(Result.LEFT_OUT)
            continue
        console.print(f"[bold]== {name}")
        began = clock()
        result = _result(run, path)
        outcomes[name] = Outcome(result, clock() - began)
        if result is Result.INTERRUPTED:
            break
    _close(console, outcomes, lacks)
    results = {outcome.result for outcome in outcomes.values()}
    return INTERRUPTED if Result.INTERRUPTED in results else int(Result.FAILED in results)


def _result(run: Run, path: Path) -> Result:
    try:
        return Result.FAILED if run(path) else Result.DONE
    except KeyboardInterrupt:
        return Result.INTERRUPTED


def _announce(console: Console, lacks: Mapping[str, Sequence[Lack]]) -> None:
    for name, each in lacks.items():
        for lack in each:
            goes = f"the part {lack.part} of {name}" if lack.part else name
            # Not broken into two: the command is there to be pasted.
            console.print(f"Not installed: {lack.what}. Left out: {goes}.", markup=False, soft_wrap=True)
            console.print(f"  {lack.install}", markup=False, soft_wrap=True)


def _close(console: Console, outcomes: Mapping[str, Outcome], lacks: Mapping[str, Sequence[Lack]]) -> None:
    table = Table("bench", "result", "seconds", box=None, header_style="bold")
    table.columns[-1].justify = "right"
    for name, outcome in outcomes.items():
        seconds = "" if outcome.seconds is None else f"{outcome.seconds:.1f}"
        table.add_row(name, _told(outcome.result, lacks[name]), seconds)
    console.print(table)


def _told(result: Result, lacks: Sequence[Lack]) -> str:
    """Write a result, and why it is not a whole one."""
    if result is Result.LEFT_OUT:
        return f"{result}: without {', '.join(lack.what for lack in lacks if lack.part is None)}"
    parts = ", ".join(parts_left_out(lacks))
    return f"{result}, without {parts}" if parts and result is Result.DONE else str(result)


def _in_a_process(path: Path) -> int:
    """Run a bench as it runs alone; Ctrl-C reaches it too, and it is waited for."""
    folders = [str(path.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    bench = subprocess.Popen([sys.executable, "-P", str(path)], env=environment)  # noqa: S603 - a script of this folder
    try:
        return bench.wait()
    except KeyboardInterrupt:
        bench.wait()  # it stops the servers that it started
        raise


def main() -> int:
    """Run the benches that the command line names."""
    parser = argparse.ArgumentParser(prog="bench", description="Runs the benches; `make bench` calls this.")
    parser.add_argument("--only", metavar="NAME,…", help="run these alone")
    only = parser.parse_args().only
    console = Console(width=120, highlight=False)
    try:
        benches = chosen(find(Path(__file__).parent), only)
    except UnknownBench as error:
        parser.error(str(error))
    lacks = {name: lacking(name) for name in benches}
    return run_all(benches, lacks, run=_in_a_process, console=console)
