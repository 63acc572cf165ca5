"""Being told to end: the first signal asks, the second does not."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from mailroom.shutdown import FORCED, Shutdown

PATIENCE = 10

STUBBORN = """
import signal, threading
from mailroom.shutdown import Shutdown

shutdown = Shutdown()
shutdown.install()
threading.Thread(target=threading.Event().wait).start()
signal.raise_signal(signal.SIGTERM)
assert shutdown.wait(10)
print("asked", flush=True)
signal.raise_signal(signal.{second})
print("never said")
"""
"""A process with a thread that nothing ends."""


@pytest.fixture
def shutdown() -> Iterator[Shutdown]:
    asked = Shutdown()
    asked.install()
    yield asked
    asked.uninstall()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_for_the_end__and_interrupts_nothing(shutdown: Shutdown, number: signal.Signals) -> None:
    assert not shutdown.requested.is_set()
    signal.raise_signal(number)
    assert shutdown.wait(PATIENCE)
    assert shutdown.signals == 1


def test_a_signal_is_taken__while_the_main_thread_holds_the_very_lock(shutdown: Shutdown) -> None:
    with shutdown.requested._cond:  # type: ignore[attr-defined] - the moment that a signal must not deadlock in
        signal.raise_signal(signal.SIGTERM)
    assert shutdown.wait(PATIENCE)


def test_no_signal_is_nothing_asked(shutdown: Shutdown) -> None:
    assert not shutdown.wait(0)


def test_the_signals_are_given_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    asked = Shutdown()
    asked.install()
    asked.uninstall()
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


@pytest.mark.parametrize("second", ["SIGTERM", "SIGINT"])
def test_a_second_signal_ends_the_process_at_once__whatever_runs(second: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", STUBBORN.format(second=second)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (FORCED, "asked\n", "")
