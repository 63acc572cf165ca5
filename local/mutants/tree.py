"""A copy of the project as mutmut needs it: packages side by side, each module where its name says."""

from __future__ import annotations

import ast
import json
import shutil
from pathlib import Path

from local.mutants.plan import PACKAGES, Part
from local.workspace import ROOT

_PLAIN = {"property", "contextmanager"}
"""Decorators that are applied after the function instead, as mutmut leaves decorated functions alone."""
_BESIDE = ("docs", "layers", "app.py", "cdk.json", "Makefile", "README.md", "build/node")
"""What tests read in the project's root."""


def lay_out(part: Part, folder: Path, skip: tuple[str, ...]) -> None:
    """Bring a part's tree up to date with the project, and keep what mutmut knows of it."""
    for name, source in {**PACKAGES, "tests": ROOT / "tests"}.items():
        _mirror(source, folder / name, {file for file in part.code if file.startswith(f"{name}/")})
    settings = {
        "source_paths": list(PACKAGES),
        "only_mutate": list(part.code),
        "do_not_mutate_patterns": list(skip),
        "pytest_add_cli_args_test_selection": list(part.tests),
        # Uncaptured: a log handler would keep the stream of a session that is over, and fail in the next.
        "pytest_add_cli_args": ["-s", "-p", "local.mutants.plugin"],
        "use_git_change_detection": False,
        "timeout_multiplier": 4.0,
        "timeout_constant": 3.0,
    }
    # What TOML and JSON write alike: strings, numbers, booleans, and lists of strings.
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    project = (ROOT / "pyproject.toml").read_text()
    _write(folder / "pyproject.toml", f"{project}\n[tool.mutmut]\n" + "\n".join(lines) + "\n")
    for name in _BESIDE:
        link = folder / "mutants" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(ROOT / name)


def _mirror(source: Path, target: Path, mutated: set[str]) -> None:
    files = {
        path.relative_to(source) for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }
    for path in [path for path in target.rglob("*") if path.is_file() and path.relative_to(target) not in files]:
        path.unlink()
    for file in files:
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        if f"{target.name}/{file.as_posix()}" in mutated:
            _write(target / file, undecorated((source / file).read_text()))
        else:
            shutil.copy2(source / file, target / file)


def _write(file: Path, text: str) -> None:
    """Write a file unless it is so already: mutmut goes by the time of its change."""
    if not file.exists() or file.read_text() != text:
        file.write_text(text)


def undecorated(code: str) -> str:
    """Return code in which `@property def name` reads `def name` … `name = property(name)`, which mutmut can break."""
    lines = code.splitlines()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.FunctionDef) and len(node.decorator_list) == 1:
            decorator = ast.unparse(node.decorator_list[0])
            if decorator in _PLAIN and node.end_lineno:
                lines[node.decorator_list[0].lineno - 1] = ""
                indent = " " * node.col_offset
                lines[node.end_lineno - 1] += f"\n{indent}{node.name} = {decorator}({node.name})"
    return "\n".join(lines) + "\n"
