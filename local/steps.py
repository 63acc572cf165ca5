"""Shows the steps of a long set-up while they go on, and each with its seconds when it ends."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

_SILENCE = 10.0
"""Seconds after which a step that goes on is told of again, where there is no terminal."""

Ticker = Callable[[float, Callable[[], None]], AbstractContextManager[None]]
"""Calls a function every so many seconds for as long as the block lasts."""


@dataclass(eq=False, slots=True)
class Step:
    """A step that goes on.

    Parameters
    ----------
    what
        What is done.
    began
        When, by the clock.
    detail
        Returns how far it is, in a few words, or nothing.
    told
        When something was last said of it, by the clock.
    """

    what: str
    began: float
    detail: Callable[[], str]
    told: float


class _View(Protocol):
    every: float
    """Seconds between two ticks."""

    def begin(self, step: Step) -> None:
        """Show that a step began."""

    def tick(self, steps: list[Step]) -> None:
        """Show how far the steps are that go on."""

    def end(self, steps: list[Step], line: str) -> None:
        """Show that a step ended; the others go on."""


@contextmanager
def in_a_thread(every: float, act: Callable[[], None]) -> Iterator[None]:
    """Call `act` in a thread of its own, which has ended when the block has."""
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(every):
            act()

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Steps:
    """The steps of one run: a live line each on a terminal, else plain lines. A context manager.

    Parameters
    ----------
    console
        Where they are shown.
    clock
        Seconds, from wherever.
    ticker
        What has them shown again and again.
    """

    def __init__(
        self, console: Console, *, clock: Callable[[], float] = time.monotonic, ticker: Ticker = in_a_thread
    ) -> None:
        self._clock = clock
        self._view: _View = _LiveLines(console, clock) if console.is_terminal else _PlainLines(console, clock)
        self._ticking = ticker(self._view.every, self._tick)
        self._lock = threading.Lock()
        self._steps: list[Step] = []

    @contextmanager
    def step(self, what: str, detail: Callable[[], str] = str) -> Iterator[None]:
        """Show a step for as long as the block lasts; steps may overlap."""
        now = self._clock()
        step = Step(what, now, detail, told=now)
        with self._lock:
            self._steps.append(step)
            self._view.begin(step)
        ended = " (not finished)"
        try:
            yield
            ended = ""
        finally:
            with self._lock:
                self._steps.remove(step)
                self._view.end(self._steps, _line(self._clock() - step.began, what + ended))

    def _tick(self) -> None:
        with self._lock:
            self._view.tick(self._steps)

    def __enter__(self) -> Self:
        self._ticking.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._ticking.__exit__(*error)


@dataclass(slots=True)
class _PlainLines:
    """A line when a step begins, every ten seconds while it goes on, and when it ends."""

    console: Console
    clock: Callable[[], float]
    every: float = 1.0

    def begin(self, step: Step) -> None:
        self.console.print(f"==> {step.what} ...")

    def tick(self, steps: list[Step]) -> None:
        now = self.clock()
        for step in steps:
            if now - step.told >= _SILENCE:
                step.told = now
                self.console.print(f"... still {step.what}, {now - step.began:.0f} s{_after_a_colon(step.detail())}")

    def end(self, steps: list[Step], line: str) -> None:
        self.console.print(line)


@dataclass(slots=True)
class _LiveLines:
    """A line per step that is written anew several times a second, below those that ended."""

    console: Console
    clock: Callable[[], float]
    every: float = 0.2
    _live: Live = field(init=False)

    def __post_init__(self) -> None:
        self._live = Live(
            console=self.console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        )

    def begin(self, step: Step) -> None:
        self._live.start()

    def tick(self, steps: list[Step]) -> None:
        self._live.update(Text("\n").join(self._running(step) for step in steps), refresh=True)

    def end(self, steps: list[Step], line: str) -> None:
        self.tick(steps)
        self.console.print(line)
        if not steps:
            self._live.stop()

    def _running(self, step: Step) -> Text:
        text = Text(_line(self.clock() - step.began, f"{step.what}{_after_a_colon(step.detail())}"), "dim")
        # A line that the terminal breaks in two would not be written over.
        text.truncate(self.console.width - 1, overflow="ellipsis")
        return text


def _after_a_colon(detail: str) -> str:
    return f": {detail}" if detail else ""


def _line(seconds: float, what: str) -> str:
    return f"{seconds:6.1f} s  {what}"
