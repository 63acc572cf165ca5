"""Single flight: one run of a name in this process and in all others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event

import pytest

from mailroom.heartbeat import heartbeat
from mailroom.lease import HeldLease, Lease, LeaseLost, LeaseRow
from mailroom.runtime import Runtime
from mailroom.single_flight import single_flight
from mailroom.testing import ManualClock
from tests.faults import Died, failing, throttled

from .conftest import CallCounter, Process

NAME = "the-job"


@pytest.fixture
def beats(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], bool]]:
    """The beats of every heartbeat, for the test to call instead of a thread."""
    gathered: list[Callable[[], bool]] = []

    @contextmanager
    def gathering(beat: Callable[[], bool], *, period: float, name: str) -> Iterator[None]:
        gathered.append(beat)
        yield

    monkeypatch.setattr("mailroom.single_flight.heartbeat", gathering)
    return gathered


def fly(runtime: Runtime, during: Callable[[HeldLease], object] = lambda _: None) -> bool:
    """Answer whether the run took place."""
    with single_flight(NAME, runtime, at_most=300) as lease:
        if lease is not None:
            during(lease)
        return lease is not None


def test_a_run_skipped_in_its_own_process_costs_no_call(runtime: Runtime, calls: CallCounter) -> None:
    def meanwhile(_: HeldLease) -> None:
        before = calls.counts.total()
        assert not fly(runtime)
        assert calls.counts.total() == before

    assert fly(runtime, meanwhile)


def test_a_run_is_skipped__while_another_process_has_one(runtime: Runtime, another: Process) -> None:
    assert fly(runtime, lambda _: fly(another()) is False or pytest.fail("both ran"))


def test_runs_of_other_names_go_side_by_side(runtime: Runtime) -> None:
    def another_name(_: HeldLease) -> None:
        with single_flight("another", runtime, at_most=300) as lease:
            assert lease is not None

    assert fly(runtime, another_name)


def test_the_next_run_goes_at_once__after_one_that_ended(runtime: Runtime, another: Process) -> None:
    assert [fly(runtime), fly(another()), fly(runtime)] == [True, True, True]
    assert LeaseRow.get(NAME).token == 3


def test_a_run_that_raised_leaves_it_unclean__and_the_way_free(runtime: Runtime) -> None:
    def fail(_: HeldLease) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fly(runtime, fail)
    assert fly(runtime, lambda lease: lease.was_clean and pytest.fail("it was left clean"))


def test_a_process_that_died_gives_nothing_back__until_its_lease_is_over(
    runtime: Runtime, another: Process, clock: ManualClock
) -> None:
    def die(_: HeldLease) -> None:
        raise Died

    with pytest.raises(Died):
        fly(runtime, die)
    assert not fly(another())
    clock.advance(61)
    assert fly(another())


def test_a_lease_that_cannot_be_had_is_an_error__and_the_next_run_may_try_again(runtime: Runtime) -> None:
    with failing("UpdateItem", throttled, times=99), pytest.raises(Exception, match="injected"):
        fly(runtime)
    assert fly(runtime)


def test_a_run_that_cannot_give_it_back_has_ended_well_all_the_same(
    runtime: Runtime, another: Process, clock: ManualClock
) -> None:
    def lose_the_release(_: HeldLease) -> None:
        fault.__enter__()

    fault = failing("UpdateItem", throttled, times=99)
    try:
        assert fly(runtime, lose_the_release)
    finally:
        fault.__exit__(None, None, None)
    assert not fly(another())
    clock.advance(61)
    assert fly(another())


def test_the_lease_is_renewed__while_the_run_says_nothing(
    runtime: Runtime, clock: ManualClock, beats: list[Callable[[], bool]]
) -> None:
    def long_run(_: HeldLease) -> None:
        for _ in range(10):
            clock.advance(20)
            assert beats[0]()
        assert Lease(NAME, runtime).acquire() is None

    assert fly(runtime, long_run)


def test_a_run_that_hangs_past_its_time_loses_it(
    runtime: Runtime, another: Process, clock: ManualClock, beats: list[Callable[[], bool]]
) -> None:
    def hang(lease: HeldLease) -> None:
        for _ in range(14):
            clock.advance(20)
            assert beats[0]()
        clock.advance(20)
        assert not beats[0]()
        clock.advance(61)
        assert fly(another())
        with pytest.raises(LeaseLost):
            lease.ensure()

    assert fly(runtime, hang)


def test_the_heartbeat_ends__when_another_has_the_lease(
    runtime: Runtime, another: Process, clock: ManualClock, beats: list[Callable[[], bool]]
) -> None:
    def stall(_: HeldLease) -> None:
        clock.advance(61)
        assert fly(another())
        assert not beats[0]()

    assert fly(runtime, stall)


def test_a_heartbeat_beats_until_it_is_told_that_it_was_the_last_time() -> None:
    beaten = []

    def beat() -> bool:
        beaten.append(len(beaten))
        if len(beaten) == 3:
            third.set()
        return len(beaten) < 3

    third = Event()
    with heartbeat(beat, period=0.001, name="test"):
        assert third.wait(10)
    assert len(beaten) == 3
