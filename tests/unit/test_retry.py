"""Back-off and the loop on it: bounded waits, no wait past a deadline, nothing permanent tried again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from threading import Event, Thread

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mailroom.clock import NAP, SystemClock
from mailroom.failures import Permanent, RetryAfter, Unavailable
from mailroom.retry import Backoff, retry
from mailroom.testing import ManualClock

BACKOFF = Backoff(base=1, cap=10, attempts=5)


class Dice(Random):
    """Jitter that falls the same way each time."""


class LowDice(Random):
    """No jitter."""

    def uniform(self, a: float, b: float) -> float:
        return a


class HighDice(Random):
    """All the jitter there is."""

    def uniform(self, a: float, b: float) -> float:
        return b


class Scripted:
    """An operation that raises these errors in turn and then answers."""

    def __init__(self, errors: Iterable[Exception]) -> None:
        self._errors = iter(errors)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        for error in self._errors:
            raise error
        return "done"


def always(error: Exception) -> Scripted:
    return Scripted(error for _ in range(1000))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


# The arithmetic


@given(
    base=st.floats(0.001, 1e6),
    cap=st.floats(0.001, 1e6),
    attempt=st.integers(0, 10_000),
    seed=st.integers(0, 2**32),
)
@example(base=5, cap=300, attempt=5000, seed=1)
@example(base=1e300, cap=1e6, attempt=5000, seed=1)
def test_a_delay_is_the_capped_power_of_two__and_up_to_half_of_it_more(
    base: float, cap: float, attempt: int, seed: int
) -> None:
    full = min(cap, base * 2 ** min(attempt, 50))

    assert full <= Backoff(base, cap, 5).delay(attempt, Dice(seed)) <= 1.5 * full


@pytest.mark.parametrize(("attempt", "delay"), [(0, 1), (1, 2), (2, 4), (3, 8), (4, 10), (5000, 10)])
def test_a_delay_doubles__up_to_the_cap(attempt: int, delay: float) -> None:
    assert BACKOFF.delay(attempt, LowDice()) == delay


def test_delays_differ__so_that_many_do_not_come_back_at_once() -> None:
    random = Dice(1)

    assert len({BACKOFF.delay(3, random) for _ in range(100)}) == 100


@pytest.mark.parametrize(
    ("dice", "span"), [(LowDice(), BACKOFF.shortest_span()), (HighDice(), BACKOFF.longest_span())], ids=["low", "high"]
)
def test_a_span_is_what_the_loop_waits_in_all(dice: Random, span: float, clock: ManualClock) -> None:
    with pytest.raises(Unavailable):
        retry(always(Unavailable("down")), backoff=BACKOFF, clock=clock, random=dice)

    assert sum(clock.slept) == span


# The loop


def test_the_answer_comes_through__as_soon_as_there_is_one(clock: ManualClock) -> None:
    operation = Scripted([Unavailable("down"), ValueError("odd")])

    assert retry(operation, backoff=BACKOFF, clock=clock, random=LowDice()) == "done"
    assert (operation.calls, clock.slept) == (3, [1, 2])


def test_nothing_is_waited_for__when_it_goes_well_at_once(clock: ManualClock) -> None:
    retry(Scripted([]), backoff=BACKOFF, clock=clock, random=LowDice())

    assert clock.slept == []


def test_exactly_the_attempts_are_made__and_no_wait_follows_the_last(clock: ManualClock) -> None:
    operation = always(Unavailable("down"))

    with pytest.raises(Unavailable):
        retry(operation, backoff=BACKOFF, clock=clock, random=LowDice())

    assert (operation.calls, clock.slept) == (5, [1, 2, 4, 8])


def test_a_permanent_failure_ends_it__at_once(clock: ManualClock) -> None:
    operation = Scripted([Unavailable("down"), Permanent("never")])

    with pytest.raises(Permanent):
        retry(operation, backoff=BACKOFF, clock=clock, random=LowDice())

    assert (operation.calls, clock.slept) == (2, [1])


def test_another_error_passes_through__than_those_worth_an_attempt(clock: ManualClock) -> None:
    operation = always(ValueError("odd"))

    with pytest.raises(ValueError, match="odd"):
        retry(operation, backoff=BACKOFF, clock=clock, random=LowDice(), on=Unavailable)

    assert operation.calls == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)], ids=repr)
def test_the_end_of_the_process_passes_through(error: BaseException, clock: ManualClock) -> None:
    def operation() -> None:
        raise error

    with pytest.raises(type(error)):
        retry(operation, backoff=BACKOFF, clock=clock, random=LowDice())

    assert clock.slept == []


@given(deadline=st.floats(0, 40), seed=st.integers(0, 1000))
def test_no_wait_reaches_the_deadline(deadline: float, seed: int) -> None:
    clock = ManualClock()

    with pytest.raises(Unavailable):
        retry(always(Unavailable("down")), backoff=BACKOFF, clock=clock, random=Dice(seed), deadline=deadline)

    assert clock.monotonic() == 0 or clock.monotonic() < deadline


def test_all_attempts_are_made__when_the_deadline_leaves_room(clock: ManualClock) -> None:
    operation = always(Unavailable("down"))

    with pytest.raises(Unavailable):
        retry(operation, backoff=BACKOFF, clock=clock, random=LowDice(), deadline=15.001)

    assert operation.calls == 5


def test_one_attempt_is_made__even_past_the_deadline(clock: ManualClock) -> None:
    clock.advance(10)

    assert retry(Scripted([]), backoff=BACKOFF, clock=clock, random=LowDice(), deadline=5) == "done"


def test_nothing_is_tried_any_more__once_until_says_so(clock: ManualClock) -> None:
    operation = always(Unavailable("down"))

    with pytest.raises(Unavailable):
        retry(operation, backoff=BACKOFF, clock=clock, random=LowDice(), until=lambda: operation.calls == 2)

    assert (operation.calls, clock.monotonic()) == (2, pytest.approx(1))


def test_a_wait_ends_at_once_when_it_is_called_off__and_nothing_is_tried_again(clock: ManualClock) -> None:
    cause = ConnectionError("no route")
    error = RetryAfter(30)
    error.__cause__ = cause
    operation = always(error)

    with pytest.raises(RetryAfter) as raised:
        retry(operation, backoff=BACKOFF, clock=clock, random=HighDice(), until=lambda: clock.monotonic() >= 1)

    assert (operation.calls, clock.monotonic()) == (1, pytest.approx(1, abs=NAP))
    assert raised.value.__cause__ is cause


def test_a_wait_ends_at_once__when_another_thread_calls_it_off() -> None:
    called_off = Event()
    operation = always(RetryAfter(30))
    waits = SystemClock()

    def retried() -> None:
        with pytest.raises(RetryAfter):
            retry(operation, backoff=BACKOFF, clock=waits, random=LowDice(), until=called_off.is_set)

    thread = Thread(target=retried)
    thread.start()
    called_off.set()
    thread.join(timeout=10)

    assert not thread.is_alive()
    assert operation.calls <= 1


def test_nothing_is_tried_again__when_the_process_stood_still_past_the_deadline(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = always(Unavailable("down"))
    monkeypatch.setattr(clock, "sleep", lambda seconds: clock.advance(seconds + 60))

    with pytest.raises(Unavailable):
        retry(operation, backoff=BACKOFF, clock=clock, random=LowDice(), deadline=30)

    assert operation.calls == 1


def test_a_wait_is_as_long_as_the_other_side_asked__if_that_is_longer(clock: ManualClock) -> None:
    retry(Scripted([RetryAfter(60), RetryAfter(0.5)]), backoff=BACKOFF, clock=clock, random=LowDice())

    assert clock.slept == [60, 2]


def test_what_the_other_side_asks_for_respects_the_deadline(clock: ManualClock) -> None:
    with pytest.raises(RetryAfter):
        retry(always(RetryAfter(60)), backoff=BACKOFF, clock=clock, random=LowDice(), deadline=30)

    assert clock.slept == []


def test_the_last_error_keeps_its_cause(clock: ManualClock) -> None:
    error, cause = Unavailable("the call failed"), OSError("the wire broke")
    error.__cause__ = cause

    with pytest.raises(Unavailable) as caught:
        retry(always(error), backoff=BACKOFF, clock=clock, random=LowDice())

    assert caught.value.__cause__ is cause


@pytest.mark.parametrize(
    "errors",
    [lambda: [ValueError(n) for n in range(5)], lambda: [Unavailable(n) for n in range(5)]],
)
def test_the_error_that_is_raised_is_the_last__and_not_the_first(
    errors: Callable[[], list[Exception]], clock: ManualClock
) -> None:
    with pytest.raises(Exception, match="4"):
        retry(Scripted(errors()), backoff=BACKOFF, clock=clock, random=LowDice())
