"""The runner of the benches: what is missing is named and left out, what fails is told at the end."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

BENCH = Path(__file__).resolve().parents[2] / "bench"
ALONE = '\nif __name__ == "__main__":\n    main()\n'
SERVER = "Lack('a frob server', 'apt-get install frob'{part})"


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The runner, imported as its own folder sees it; afterwards its modules are forgotten."""
    known = set(sys.modules)
    monkeypatch.syspath_prepend(str(BENCH))
    import runner  # noqa: PLC0415

    yield runner
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(BENCH)):
            del sys.modules[name]


class Benches:
    """A folder of made-up benches, a console that is kept, and a clock that each run moves by two seconds."""

    def __init__(self, runner: Any, folder: Path) -> None:
        self.runner, self.folder = runner, folder
        self.ran: list[str] = []
        self.now = 0.0
        self.statuses: dict[str, int | type[BaseException]] = {}
        self.console = Console(width=120, record=True, file=StringIO())

    def add(self, name: str, code: str = "") -> None:
        (self.folder / f"{name}.py").write_text(code + ALONE)

    def run(self, only: str | None = None) -> int:
        benches = self.runner.chosen(self.runner.find(self.folder), only)
        lacks = {name: self.runner.lacking(name) for name in benches}
        status = self.runner.run_all(benches, lacks, run=self._run, console=self.console, clock=lambda: self.now)
        assert isinstance(status, int)
        return status

    def table(self) -> dict[str, str]:
        """Return the rows of the closing table: result and seconds by name."""
        lines = self.console.export_text(clear=False).split("seconds")[-1].splitlines()
        return {words[0]: " ".join(words[1:]) for words in map(str.split, lines) if words}

    def announced(self) -> str:
        """Return what was printed before the first bench ran."""
        return self.console.export_text(clear=False).partition("==")[0]

    def _run(self, path: Path) -> int:
        self.ran.append(path.stem)
        self.now += 2
        status = self.statuses.get(path.stem, 0)
        if isinstance(status, int):
            return status
        raise status


@pytest.fixture
def benches(runner: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Benches]:
    """Two benches, `fake_one` and `fake_two`."""
    monkeypatch.syspath_prepend(str(tmp_path))
    made = Benches(runner, tmp_path)
    for name in ("fake_one", "fake_two"):
        made.add(name)
    yield made
    for name in [name for name in sys.modules if name.startswith("fake_")]:
        del sys.modules[name]


def lacks(part: str | None = None) -> str:
    """Return the code of a bench that has no frob server."""
    lack = SERVER.format(part=f", {part!r}" if part else "")
    return f"from lack import Lack\ndef lacking():\n    return [{lack}]\n"


def test_every_bench_runs_and_is_told_with_its_seconds(benches: Benches) -> None:
    assert benches.run() == 0
    assert benches.ran == ["fake_one", "fake_two"]
    assert benches.table() == {"fake_one": "done 2.0", "fake_two": "done 2.0"}


def test_a_module_without_a_main_is_no_bench(benches: Benches, runner: Any) -> None:
    (benches.folder / "shared.py").write_text("x = 1\n")

    assert list(runner.find(benches.folder)) == ["fake_one", "fake_two"]


def test_a_failed_bench_makes_the_status_1__and_the_others_run(benches: Benches) -> None:
    benches.statuses["fake_one"] = 3

    assert benches.run() == 1
    assert benches.table() == {"fake_one": "failed 2.0", "fake_two": "done 2.0"}


def test_a_bench_that_lacks_something_is_left_out__and_is_no_failure(benches: Benches) -> None:
    benches.add("fake_one", lacks())

    assert benches.run() == 0
    assert benches.ran == ["fake_two"]
    assert benches.table()["fake_one"] == "left out: without a frob server"


def test_what_is_missing_is_named_at_the_start__with_the_line_that_installs_it(benches: Benches) -> None:
    benches.add("fake_two", lacks())
    benches.run()

    assert "a frob server" in benches.announced()
    assert "apt-get install frob" in benches.announced()


def test_the_line_that_installs_it_is_never_broken(benches: Benches) -> None:
    benches.add("fake_two", lacks().replace("frob'", "frob " + "x" * 150 + "'"))
    benches.run()

    assert f"  apt-get install frob {'x' * 150}\n" in benches.announced()


def test_a_bench_that_lacks_a_part_runs__and_the_part_is_named_again_at_the_end(benches: Benches) -> None:
    benches.add("fake_one", lacks("the frob"))

    assert benches.run() == 0
    assert benches.ran == ["fake_one", "fake_two"]
    assert "the part the frob of fake_one" in benches.announced()
    assert benches.table()["fake_one"] == "done, without the frob 2.0"


def test_a_bench_whose_package_is_missing_is_left_out(benches: Benches) -> None:
    benches.add("fake_one", "import fakely_missing.client\n")

    assert benches.run() == 0
    assert benches.ran == ["fake_two"]
    assert "the Python package fakely_missing" in benches.announced()


@pytest.mark.parametrize("module", ["mailroom.nowhere", "local.nowhere"])
def test_a_bench_that_imports_a_module_of_ours_that_is_gone_runs__and_fails_by_itself(
    module: str, benches: Benches
) -> None:
    benches.add("fake_one", f"import {module}\n")
    benches.run()

    assert benches.ran == ["fake_one", "fake_two"]


@pytest.mark.parametrize(
    ("only", "ran"),
    [("fake_two", ["fake_two"]), ("fake_two, fake_one", ["fake_two", "fake_one"]), (None, ["fake_one", "fake_two"])],
)
def test_only_what_is_named_runs(only: str | None, ran: Sequence[str], benches: Benches) -> None:
    benches.run(only)

    assert benches.ran == ran
    assert sorted(benches.table()) == sorted(ran)


def test_an_unknown_name_is_an_error_that_names_the_known(benches: Benches, runner: Any) -> None:
    with pytest.raises(runner.UnknownBench, match="no bench is called fake_tow; there are: fake_one, fake_two"):
        benches.run("fake_one,fake_tow")
    assert benches.ran == []


def test_ctrl_c_ends_the_run__and_says_what_was_not_reached(benches: Benches) -> None:
    benches.statuses["fake_one"] = KeyboardInterrupt

    assert benches.run() == 130
    assert benches.table() == {"fake_one": "interrupted 2.0", "fake_two": "not reached"}


def test_the_benches_of_this_folder_are_found(runner: Any) -> None:
    assert list(runner.find(BENCH)) == ["consumer", "dead_letters", "publishers", "relay", "report", "webhooks"]


@pytest.mark.parametrize(("installed", "left_out"), [(False, ["rabbitmq"]), (True, [])])
def test_the_publishers_run_without_a_rabbitmq_server(
    installed: bool, left_out: list[str], runner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = tmp_path / "rabbitmq-server"
    if installed:
        server.touch()
    monkeypatch.setattr("local.rabbitmq.SERVER", server)

    assert [lack.part for lack in runner.lacking("publishers")] == left_out
