"""Running mutmut over a part, and reading what came of each mutant."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from shutil import rmtree

from local.mutants.plan import STATISTICS, Mutant, Part
from local.mutants.tree import lay_out
from local.workspace import ROOT

MUTMUT = ROOT / "build" / "mutmut"
"""Where the Makefile installs mutmut. It goes last on the path: what the project has is used in its place."""
TREES = ROOT / "build" / "mutants"

_START = Path(__file__).with_name("start.py")
_KILLED = {1, 3}
_TIMED_OUT = {-24, 24, 36, 152}
_NOT_RUN = {None, 2}


class MutmutFailed(Exception):
    """mutmut could not run: the tests of a part fail unmutated, or none of them runs its code."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a part's mutants."""

    part: str
    killed: int
    timed_out: int
    survived: tuple[Mutant, ...]
    broken: tuple[str, ...]
    """Mutants that have no verdict: neither killed nor survived."""

    @property
    def mutants(self) -> int:
        """How many mutants have a verdict."""
        return self.killed + self.timed_out + len(self.survived)


def run(part: Part, skip: tuple[str, ...], *, again: bool) -> Result:
    """Run a part's mutants; `again` runs only those of the last time that were not killed."""
    folder = TREES / part.name
    # What mutmut keeps of the last time goes, so that every verdict is today's tests'; or only what it knows of tests.
    if again:
        (folder / "mutants" / STATISTICS).unlink(missing_ok=True)
    else:
        rmtree(folder / "mutants", ignore_errors=True)
    lay_out(part, folder, skip)
    names = [name for name, code in _verdicts(part, folder) if code not in _KILLED | _TIMED_OUT] if again else []
    if again and not names:
        return read(part)
    command = [sys.executable, "-P", str(_START), str(MUTMUT), "run", "--max-children", "1", *names]
    environment = {**os.environ, "MAILROOM_EXAMPLES": "few", "MAILROOM_TEST_SEED": "1"}
    if subprocess.run(command, cwd=folder, env=environment, check=False).returncode:
        raise MutmutFailed(f"mutmut could not run the part {part.name}; what it says is above")
    result = read(part)
    if not result.mutants:
        raise MutmutFailed(f"mutmut made no mutants of the part {part.name}; what it says is above")
    return result


def read(part: Part) -> Result:
    """Read what came of a part's mutants when it was last run."""
    folder = TREES / part.name
    counts: Counter[str] = Counter()
    survived, broken = [], []
    for name, code in _verdicts(part, folder):
        if code in _KILLED:
            counts["killed"] += 1
        elif code in _TIMED_OUT:
            counts["timed out"] += 1
        elif code in {0, 5, 33}:
            survived.append(_mutant(name, folder))
        else:
            broken.append(f"{name}: {'not run' if code in _NOT_RUN else f'exit status {code}'}")
    return Result(part.name, counts["killed"], counts["timed out"], tuple(survived), tuple(broken))


def _verdicts(part: Part, folder: Path) -> list[tuple[str, int | None]]:
    verdicts: list[tuple[str, int | None]] = []
    for file in part.code:
        meta = folder / "mutants" / f"{file}.meta"
        if meta.exists():
            verdicts += json.loads(meta.read_text())["exit_code_by_key"].items()
    return verdicts


def _mutant(name: str, folder: Path) -> Mutant:
    """Return the mutant that mutmut calls by a name such as `mailroom.lease.xǁHeldLeaseǁensure__mutmut_1`."""
    module, _, mangled = name.rpartition(".")
    file = f"{module.replace('.', '/')}.py"
    spans = json.loads((folder / "mutants" / f"{file}.spans").read_text())["spans"]
    lines = (folder / "mutants" / file).read_text().splitlines()
    stem = mangled.partition("__mutmut_")[0]

    def body(function: str) -> list[str]:
        start, end = spans[function]
        # A decorator of mutmut and the function's own name differ.
        return [line.replace(f"def {function}(", "def (") for line in lines[start - 1 : end]]

    before, after = body(f"{stem}__mutmut_orig"), body(mangled)
    changes = [code for code in SequenceMatcher(a=before, b=after, autojunk=False).get_opcodes() if code[0] != "equal"]
    (_, first, _, first_new, _), (_, _, last, _, last_new) = changes[0], changes[-1]
    old, new = " ".join(before[first:last]), " ".join(after[first_new:last_new])
    function = ".".join(piece for piece in stem.removeprefix("x").removeprefix("_").split("ǁ") if piece)
    return Mutant.of(file, function, old, new)
