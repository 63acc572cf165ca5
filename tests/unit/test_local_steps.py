"""The steps of the local stack: each is shown when it begins, while it goes on, and with its seconds."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO

import pytest
from rich.console import Console

from local.steps import Steps, in_a_thread


class Screen:
    """A console of 60 columns that is kept, a clock that is set, and a ticker that ticks when it is told to."""

    def __init__(self, *, terminal: bool) -> None:
        self.now = 100.0
        self.ticks: list[Callable[[], None]] = []
        self._file = StringIO()
        # `dumb` would take the terminal's control codes away again.
        environment = {"TERM": "xterm"}
        self.console = Console(
            file=self._file, force_terminal=terminal, width=60, highlight=False, soft_wrap=True, _environ=environment
        )
        self.steps = Steps(self.console, clock=lambda: self.now, ticker=self._ticker)

    @contextmanager
    def _ticker(self, _: float, act: Callable[[], None]) -> Iterator[None]:
        self.ticks.append(act)
        try:
            yield
        finally:
            self.ticks.remove(act)

    def later(self, seconds: float) -> None:
        self.now += seconds
        for tick in self.ticks:
            tick()

    def raw(self) -> str:
        """Return what was written."""
        return self._file.getvalue()

    @property
    def lines(self) -> list[str]:
        """Return what was written, without control codes."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.raw()).replace("\r", "\n").splitlines()

    def new_lines(self) -> list[str]:
        """Return what was written since the last call."""
        lines = self.lines
        self._file.truncate(0)
        self._file.seek(0)
        return lines


@pytest.fixture
def pipe() -> Screen:
    """A screen that is no terminal."""
    return Screen(terminal=False)


@pytest.fixture
def terminal() -> Screen:
    """A screen that is one."""
    return Screen(terminal=True)


def test_a_step_is_told_when_it_begins_and_with_its_seconds_when_it_ends__without_a_terminal(pipe: Screen) -> None:
    with pipe.steps as steps, steps.step("local AWS"):
        assert pipe.new_lines() == ["==> local AWS ..."]
        pipe.later(4.14)

    assert pipe.new_lines() == ["   4.1 s  local AWS"]


def test_a_step_that_goes_on_is_told_every_ten_seconds__without_a_terminal(pipe: Screen) -> None:
    with pipe.steps as steps, steps.step("stacks", lambda: "3/7 Bus"):
        pipe.new_lines()
        for _ in range(41):
            pipe.later(0.5)

    assert pipe.new_lines() == [
        "... still stacks, 10 s: 3/7 Bus",
        "... still stacks, 20 s: 3/7 Bus",
        "  20.5 s  stacks",
    ]


def test_a_step_without_a_detail_is_told_without_one(pipe: Screen) -> None:
    with pipe.steps as steps, steps.step("local AWS"):
        pipe.new_lines()
        pipe.later(10)

        assert pipe.new_lines() == ["... still local AWS, 10 s"]


def test_steps_that_overlap_are_told_each_by_its_own_ten_seconds(pipe: Screen) -> None:
    with pipe.steps as steps, steps.step("templates"):
        pipe.later(6)
        with steps.step("account"):
            pipe.new_lines()
            pipe.later(5)
            assert pipe.new_lines() == ["... still templates, 11 s"]
            pipe.later(5)
            assert pipe.new_lines() == ["... still account, 10 s"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_step_that_an_error_ends_says_so__and_the_error_goes_on(error: type[BaseException], pipe: Screen) -> None:
    def fail() -> None:
        with pipe.steps as steps, steps.step("stacks"):
            pipe.later(2)
            raise error

    with pytest.raises(error):
        fail()

    assert pipe.lines[-1] == "   2.0 s  stacks (not finished)"
    assert pipe.ticks == []


def test_a_step_is_shown_with_its_seconds_so_far__on_a_terminal(terminal: Screen) -> None:
    with terminal.steps as steps, steps.step("stacks", lambda: "3/7 Bus"):
        terminal.later(1)
        assert "   1.0 s  stacks: 3/7 Bus" in terminal.new_lines()
        terminal.later(1)
        assert "   2.0 s  stacks: 3/7 Bus" in terminal.new_lines()

    assert "   2.0 s  stacks" in terminal.new_lines()


def test_a_line_that_would_wrap_is_cut__on_a_terminal(terminal: Screen) -> None:
    with terminal.steps as steps, steps.step("stacks", lambda: "x" * 100):
        terminal.later(1)

        assert max(map(len, terminal.new_lines())) == 59


def test_the_cursor_is_shown_again__after_ctrl_c_on_a_terminal(terminal: Screen) -> None:
    with pytest.raises(KeyboardInterrupt), terminal.steps as steps, steps.step("stacks"):
        raise KeyboardInterrupt

    written = terminal.raw()
    assert -1 < written.rfind("\x1b[?25l") < written.rfind("\x1b[?25h")


def test_the_thread_that_ticks_has_ended_when_its_block_has() -> None:
    ticked = threading.Event()
    with in_a_thread(0.001, ticked.set):
        assert ticked.wait(10)
        running = threading.active_count()

    assert threading.active_count() == running - 1
