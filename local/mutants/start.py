"""Starts mutmut: `python -P local/mutants/start.py <where mutmut is installed> <what mutmut is told>`.

Two kinds of its mutants are left out, as they tell nothing that another of the same expression does not:

- a string in lower and in upper case: the string between `XX` and `XX` is a mutant already;
- a call without one of its positional arguments: with None in its place it is a mutant already.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import islice
from typing import Any


def thin_out() -> None:
    """Leave out mutants that tell nothing of their own."""
    from mutmut.mutation import mutators  # type: ignore[import-not-found]  # noqa: PLC0415 - on a path that is given at the start

    def string(node: Any) -> Iterable[Any]:
        return islice(mutators.operator_string(node), 1)

    def arguments(node: Any) -> Iterable[Any]:
        positional = sum(argument.keyword is None for argument in node.args)
        for mutant in mutators.operator_arg_removal(node):
            dropped = len(mutant.args) < len(node.args)
            if not dropped or sum(argument.keyword is None for argument in mutant.args) == positional:
                yield mutant

    instead = {mutators.operator_string: string, mutators.operator_arg_removal: arguments}
    mutators.mutation_operators[:] = [
        (kind, instead.get(operator, operator)) for kind, operator in mutators.mutation_operators
    ]


def select_by_file() -> None:
    """Tell pytest files alone: not every test's name can be told on a command line. The plugin picks the tests."""
    from mutmut.runners.harness import PytestRunner  # type: ignore[import-not-found]  # noqa: PLC0415

    arguments = PytestRunner._pytest_args_regular_run

    def by_file(runner: Any, tests: Iterable[str]) -> Any:
        return arguments(runner, sorted({test.partition("::")[0] for test in tests}))

    PytestRunner._pytest_args_regular_run = by_file


if __name__ == "__main__":
    # Last on the path: what the project has, pytest above all, is used in its place.
    sys.path.append(sys.argv.pop(1))
    from mutmut.__main__ import cli  # type: ignore[import-not-found]

    thin_out()
    select_by_file()
    cli(prog_name="mutmut")
