"""What is mutated, with which tests, and the survivors that are known: `tests/mutants.toml`."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from local.workspace import ROOT

PLAN = ROOT / "tests" / "mutants.toml"
STATISTICS = "mutmut-stats.json"
"""Where mutmut keeps how long each test took, in the folder that it runs the tests in."""
PACKAGES = {
    "mailroom": ROOT / "layers/mailroom/python/mailroom",
    "app": ROOT / "layers/app/python/app",
    "infra": ROOT / "infra",
    "functions": ROOT / "functions",
    "local": ROOT / "local",
}
"""Where each package lies. Files are named by package: `mailroom/lease.py`."""


@dataclass(frozen=True, slots=True, order=True)
class Mutant:
    """One change of one function: lines as they are and as they would be, by their text and not by a number."""

    file: str
    function: str
    change: str

    @classmethod
    def of(cls, file: str, function: str, before: str, after: str) -> Mutant:
        """Return the mutant that puts the text `after` in the place of `before`."""
        return cls(file, function, f"{one_line(before)} ⇒ {one_line(after)}".strip())

    @property
    def before(self) -> str:
        """The lines as they are in the code."""
        return self.change.partition("⇒")[0].strip()

    def __str__(self) -> str:
        before, _, after = self.change.partition("⇒")
        return f"{self.file} {self.function}\n    - {before.strip()}\n    + {after.strip()}"


@dataclass(frozen=True, slots=True)
class Part:
    """Some files and the tests that hold them."""

    name: str
    code: tuple[str, ...]
    tests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole of `tests/mutants.toml`.

    Parameters
    ----------
    skip
        Regular expressions: no expression that begins on a line that one matches is mutated.
    at_most
        How many survivors are accepted. It only goes down.
    survivors
        The reason of each survivor that is known.
    """

    parts: tuple[Part, ...]
    skip: tuple[str, ...]
    at_most: int
    survivors: dict[Mutant, str]


def load(file: Path = PLAN) -> Plan:
    """Read the plan; a survivor that is named twice or has no reason is an error."""
    raw = tomllib.loads(file.read_text())
    survivors: dict[Mutant, str] = {}
    for entry in raw.get("survivors", []):
        if not entry["reason"].strip():
            raise ValueError(f"no reason is given for {entry}")
        for change in entry["changes"]:
            mutant = Mutant(entry["file"], entry["function"], change)
            if mutant in survivors:
                raise ValueError(f"a survivor is named twice:\n{mutant}")
            survivors[mutant] = entry["reason"]
    parts = tuple(Part(name, tuple(part["code"]), tuple(part["tests"])) for name, part in raw["parts"].items())
    return Plan(parts, tuple(rule["pattern"] for rule in raw["skip"]), raw["at_most"], survivors)


def source_of(file: str) -> Path:
    """Return where a file lies that is named by its package."""
    package, _, rest = file.partition("/")
    return PACKAGES[package] / rest


def line_of(mutant: Mutant) -> int | None:
    """Return the number of the line on which the text begins that a mutant changes; None if it is not there."""
    code = source_of(mutant.file).read_text()
    lines = code.splitlines()
    for name, first, last in _functions(ast.parse(code).body):
        for number in range(first, last + 1) if name == mutant.function else ():
            if one_line("\n".join(lines[number - 1 : last])).startswith(mutant.before):
                return number
    return None


def _functions(body: list[ast.stmt], of: str = "") -> Iterator[tuple[str, int, int]]:
    """Yield the qualified name, the first line and the last line of each function and method."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{of}{node.name}", node.lineno, node.end_lineno or node.lineno
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{of}{node.name}.")


def one_line(code: str) -> str:
    """Return code without line breaks and indentation."""
    return " ".join(code.split())
