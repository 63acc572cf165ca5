"""The plan of the mutation tests, and the survivors that it excuses, fit the code as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from local.mutants import plan
from local.mutants.plan import Mutant, Part, line_of, source_of
from local.mutants.tree import undecorated
from local.workspace import ROOT

PLAN = plan.load()


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], plan.Plan]:
    """Reads a plan with these survivors."""

    def read(survivors: str) -> plan.Plan:
        file = tmp_path / "mutants.toml"
        file.write_text(f"at_most = 0\nskip = []\n[parts]\n{survivors}")
        return plan.load(file)

    return read


@pytest.mark.parametrize("part", PLAN.parts, ids=lambda part: part.name)
def test_a_part_names_code_and_tests_that_exist(part: Part) -> None:
    named = [*map(source_of, part.code), *(ROOT / test.partition("::")[0] for test in part.tests)]
    assert [str(path) for path in named if not path.exists()] == []


def test_no_more_survivors_are_excused_than_were_accepted() -> None:
    assert len(PLAN.survivors) <= PLAN.at_most


def test_every_excused_survivor_changes_code_that_is_still_there() -> None:
    assert [str(mutant) for mutant in PLAN.survivors if line_of(mutant) is None] == []


def test_every_excused_survivor_is_of_a_part() -> None:
    mutated = {file for part in PLAN.parts for file in part.code}
    assert {mutant.file for mutant in PLAN.survivors} <= mutated


def test_a_mutant_is_found_by_its_text__over_several_lines() -> None:
    mutant = Mutant.of("mailroom/lease.py", "HeldLease.remaining", "since, held_until = self._term\n by_wall", "")
    line = line_of(mutant)
    assert line is not None
    assert "since, held_until = self._term" in source_of(mutant.file).read_text().splitlines()[line - 1]


def test_a_mutant_is_not_found__in_another_function() -> None:
    assert line_of(Mutant("mailroom/lease.py", "HeldLease.began", "since, held_until = self._term ⇒ pass")) is None


def test_a_survivor_without_a_reason_is_refused(written: Callable[[str], plan.Plan]) -> None:
    with pytest.raises(ValueError, match="no reason"):
        written('[[survivors]]\nfile = "a.py"\nfunction = "f"\nreason = " "\nchanges = ["a ⇒ b"]\n')


def test_a_survivor_that_is_named_twice_is_refused(written: Callable[[str], plan.Plan]) -> None:
    with pytest.raises(ValueError, match="named twice"):
        written('[[survivors]]\nfile = "a.py"\nfunction = "f"\nreason = "r"\nchanges = ["a ⇒ b", "a ⇒ b"]\n')


def test_a_property_is_decorated_after_its_function__so_that_it_is_mutated() -> None:
    code = "class A:\n    @property\n    def b(self):\n        return 1\n\n    def c(self): ...\n"
    assert undecorated(code) == (
        "class A:\n\n    def b(self):\n        return 1\n    b = property(b)\n\n    def c(self): ...\n"
    )


def test_a_function_with_another_decorator_stays_as_it_is() -> None:
    code = "@cache\ndef b():\n    return 1\n"
    assert undecorated(code) == code
