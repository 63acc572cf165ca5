"""Rates: moments are given out evenly, and what has none soon lines up. No AWS, and no time passes but the test's."""

from __future__ import annotations

import heapq
from collections import deque
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailroom.rate import Moment, Rate, Taken, give
from mailroom.timings import Timings

NOW = 1_893_456_000_000_000
SECOND = 1_000_000


def waits(moments: list[Moment]) -> list[float]:
    return [moment.wait for moment in moments]


@pytest.mark.parametrize(("count", "per"), [(0, 1), (1, 0), (-1, 1), (1, -1), (float("nan"), 1)])
def test_a_rate_is_more_than_nothing(count: float, per: float) -> None:
    with pytest.raises(ValueError, match="more than nothing"):
        Rate(count, per=per)


def test_an_interval_is_rounded_up__so_that_the_rate_is_never_exceeded() -> None:
    assert Rate(14, per=1).interval == 71_429
    assert Rate(1, per=60).interval == 60 * SECOND
    assert Rate(0.5, per=1).interval == 2 * SECOND


def test_the_messages_of_a_batch_go_one_after_the_other() -> None:
    taken, moments = give(Taken(), Rate(4, per=1), now=NOW, within=10, firsts=[True] * 3)
    assert waits(moments) == [0, 0.25, 0.5]
    assert taken.free_at == NOW + 750_000


def test_the_next_batch_goes_after_it__and_time_that_went_by_unused_is_not_made_up_for() -> None:
    taken, _ = give(Taken(), Rate(4, per=1), now=NOW, within=10, firsts=[True] * 3)
    _, moments = give(taken, Rate(4, per=1), now=NOW + 250_000, within=10, firsts=[True])
    assert waits(moments) == [0.5]
    _, moments = give(taken, Rate(4, per=1), now=NOW + 60 * SECOND, within=10, firsts=[True] * 2)
    assert waits(moments) == [0, 0.25]


def test_what_would_wait_for_too_long_is_handed_back__until_its_turn_in_the_line() -> None:
    taken, moments = give(Taken(), Rate(1, per=1), now=NOW, within=1.5, firsts=[True] * 5)
    assert [(moment.wait, moment.handed_back) for moment in moments] == [
        (0, False),
        (1, False),
        (3, True),
        (4, True),
        (5, True),
    ]
    assert taken.free_at == NOW + 2 * SECOND, "no moment is taken for what comes again"


def test_who_comes_for_the_first_time_goes_behind_the_line__and_who_was_in_it_takes_a_moment() -> None:
    taken, _ = give(Taken(), Rate(1, per=1), now=NOW, within=1.5, firsts=[True] * 5)
    _, moments = give(taken, Rate(1, per=1), now=NOW + 3 * SECOND, within=1.5, firsts=[False, True])
    assert [(moment.wait, moment.handed_back) for moment in moments] == [(0, False), (3, True)]


@given(
    batches=st.lists(st.tuples(st.integers(0, 5_000_000), st.lists(st.booleans(), min_size=1)), max_size=30),
    within=st.floats(0, 20),
    count=st.floats(0.01, 1_000),
)
def test_no_two_moments_are_closer_than_the_rate_allows(
    batches: list[tuple[int, list[bool]]], within: float, count: float
) -> None:
    rate, taken, now, given_out = Rate(count, per=1), Taken(), NOW, list[int]()
    for later, firsts in batches:
        now += later
        taken, moments = give(taken, rate, now=now, within=within, firsts=firsts)
        given_out += [now + round(each.wait * SECOND) for each in moments if not each.handed_back]
        assert all(each.wait <= within + 1e-6 for each in moments if not each.handed_back)
        assert all(each.wait > within for each in moments if each.handed_back)
    assert all(later - earlier >= rate.interval for earlier, later in pairwise(given_out))


class RatedService:
    """Takes so many in any second, and refuses the rest."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._latest: deque[int] = deque()
        self.taken = self.refused = 0

    def call(self, at: int) -> None:
        while self._latest and self._latest[0] <= at - SECOND:
            self._latest.popleft()
        if len(self._latest) >= self._limit:
            self.refused += 1
            return
        self._latest.append(at)
        self.taken += 1


@pytest.mark.parametrize("invocations", [5, 10])
def test_a_hundred_thousand_mails_all_go__and_none_is_refused(invocations: int) -> None:
    """SES takes 14 a second; so many invocations take ten each, and the next ten when they are through."""
    service, rate, taken, left = RatedService(14), Rate(14, per=1), Taken(), 100_000
    within = (Timings().consumer_timeout - Timings().stop_margin) / 2
    handed_back, ends = 0, [(NOW + number, number) for number in range(invocations)]
    calls: list[int] = []
    while left:
        now, number = heapq.heappop(ends)
        taken, moments = give(taken, rate, now=now, within=within, firsts=[True] * min(10, left))
        calls += [now + round(each.wait * SECOND) for each in moments if not each.handed_back]
        handed_back += sum(each.handed_back for each in moments)
        left -= len(moments)
        heapq.heappush(ends, (max(now, calls[-1]) + 1, number))
    for at in sorted(calls):
        service.call(at)
    assert (service.taken, service.refused, handed_back) == (100_000, 0, 0)
    assert (max(calls) - NOW) / SECOND == pytest.approx(100_000 / 14, rel=0.001)
