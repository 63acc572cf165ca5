"""Leases: one holder, a token that only grows, and stale holders that write nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from app.owners import Owner
from mailroom.clients import Call, observed
from mailroom.lease import HeldLease, Lease, LeaseLost, LeaseRow, LeaseUnreadable
from mailroom.needs import Access
from mailroom.runtime import Runtime
from mailroom.testing import ManualClock
from mailroom.unit_of_work import UnitOfWork
from tests.faults import Died, died, failing, refused, timed_out
from tests.log_lines import Lines
from tests.spoilt import Typed, spoil_row

from .conftest import CallCounter

LEASE_OVER = 61


def take(runtime: Runtime) -> HeldLease:
    held = Lease("the-lease", runtime).acquire()
    assert held is not None
    return held


def test_one_holds_it__while_others_are_refused(runtime: Runtime) -> None:
    take(runtime)
    assert Lease("the-lease", runtime).acquire() is None


def test_it_is_free_at_once__after_a_release(runtime: Runtime) -> None:
    take(runtime).release(clean=True)
    assert take(runtime).token == 2


def test_the_token_grows_with_every_holder(runtime: Runtime, clock: ManualClock) -> None:
    tokens = []
    for _ in range(3):
        tokens.append(take(runtime).token)
        clock.advance(LEASE_OVER)
    assert tokens == [1, 2, 3]


def test_a_successor_learns_that_the_holder_before_died(runtime: Runtime, clock: ManualClock) -> None:
    assert take(runtime).was_clean
    clock.advance(LEASE_OVER)
    assert not take(runtime).was_clean


def test_a_release_that_was_not_clean_is_passed_on(runtime: Runtime) -> None:
    take(runtime).release(clean=False)
    assert not take(runtime).was_clean


def test_the_memo_passes_from_holder_to_holder(runtime: Runtime) -> None:
    held = take(runtime)
    held.memo["cursor"] = {"id": {"S": "x"}}
    held.release(clean=True)
    assert take(runtime).memo == {"cursor": {"id": {"S": "x"}}}


@pytest.mark.parametrize("skew", [-5, 5])
def test_two_never_hold_it_at_once__however_their_clocks_differ(
    runtime: Runtime, clock: ManualClock, skew: int
) -> None:
    clock.jump(-skew)
    held = take(runtime)
    while held.remaining() > 0:
        clock.jump(2 * skew)  # the taker's clock
        assert Lease("the-lease", runtime).acquire() is None
        clock.jump(-2 * skew)
        clock.advance(1)


def test_a_holder_whose_clock_was_set_back_stops_in_time_all_the_same(runtime: Runtime, clock: ManualClock) -> None:
    held = take(runtime)
    clock.advance(LEASE_OVER)
    clock.jump(-3600)
    with pytest.raises(LeaseLost):
        held.ensure()


def test_a_holder_whose_clock_was_set_forward_stops(runtime: Runtime, clock: ManualClock) -> None:
    held = take(runtime)
    clock.jump(3600)
    with pytest.raises(LeaseLost, match="ran out"):
        held.ensure()


def test_a_holder_stops_twice_the_skew_before_the_end(runtime: Runtime, clock: ManualClock, calls: CallCounter) -> None:
    held = take(runtime)
    timings = runtime.timings
    clock.advance(timings.lease - 2 * timings.clock_skew)
    assert held.remaining() == 0
    with pytest.raises(LeaseLost, match="ran out"):
        held.ensure()
    assert calls.counts == {"UpdateItem": 1}


def test_a_holder_goes_on__until_twice_the_skew_before_the_end(runtime: Runtime, clock: ManualClock) -> None:
    held = take(runtime)
    timings = runtime.timings
    clock.advance(timings.lease - 2 * timings.clock_skew - 0.5)
    assert held.remaining() == 0.5
    held.ensure()
    assert held.remaining() == timings.lease - 2 * timings.clock_skew


def test_it_is_not_renewed__before_half_of_it_is_used_up(
    runtime: Runtime, clock: ManualClock, calls: CallCounter
) -> None:
    clock.advance(3600)
    held = take(runtime)
    clock.advance(runtime.timings.lease / 2 - 1)
    held.ensure()
    assert calls.counts == {"UpdateItem": 1}


def test_it_is_renewed__when_half_of_it_is_used_up(runtime: Runtime, clock: ManualClock, calls: CallCounter) -> None:
    held = take(runtime)
    clock.advance(runtime.timings.lease / 2)
    held.ensure()
    assert calls.counts == {"UpdateItem": 2}


def test_it_is_renewed__once_half_of_it_is_used_up(runtime: Runtime, clock: ManualClock) -> None:
    held = take(runtime)
    for _ in range(10):
        clock.advance(20)
        held.ensure()
    assert Lease("the-lease", runtime).acquire() is None


def test_a_stalled_holder_cannot_renew__once_another_has_it(runtime: Runtime, clock: ManualClock) -> None:
    stalled = take(runtime)
    clock.advance(LEASE_OVER)
    take(runtime)
    with pytest.raises(LeaseLost):
        stalled.renew()


def test_a_late_release_does_not_free_anothers_lease(runtime: Runtime, clock: ManualClock) -> None:
    stalled = take(runtime)
    clock.advance(LEASE_OVER)
    take(runtime)
    with pytest.raises(LeaseLost):
        stalled.release(clean=True)
    assert LeaseRow.get("the-lease").held_until > 0


def test_a_taker_whose_first_answer_was_lost_holds_it__and_is_cautious(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """botocore repeats a call that timed out; the repetition is refused by our own first success."""
    lease = Lease("the-lease", runtime)
    take_once = lease._take

    def take_twice(holder: str, until: int) -> object:
        take_once(holder, until)
        return take_once(holder, until)

    monkeypatch.setattr(lease, "_take", take_twice)
    held = lease.acquire()
    assert held is not None
    assert (held.token, held.was_clean) == (1, False)


def test_a_conflict_with_a_transaction_that_checks_it_is_tried_again(runtime: Runtime) -> None:
    held = take(runtime)
    with failing("UpdateItem", refused("TransactionConflictException")):
        held.renew()


def test_a_protected_write_under_a_lost_lease_is_refused(runtime: Runtime, clock: ManualClock) -> None:
    stalled = take(runtime)
    clock.advance(LEASE_OVER)
    take(runtime)
    work = UnitOfWork(runtime, Access(writes=(Owner,)))
    work.save(Owner("owner-1"))
    work.depend_on(stalled.note({}))
    with pytest.raises(LeaseLost):
        work.commit()
    assert list(Owner.scan()) == []


def test_a_dead_holders_lease_runs_out(runtime: Runtime, clock: ManualClock) -> None:
    with failing("UpdateItem", died, after=True), pytest.raises(Died):
        take(runtime)
    assert Lease("the-lease", runtime).acquire() is None
    clock.advance(LEASE_OVER)
    assert take(runtime).token == 2


def test_a_release_whose_answer_is_lost_says_so(runtime: Runtime) -> None:
    held = take(runtime)
    with failing("UpdateItem", timed_out, after=True), pytest.raises(Exception, match="Read timeout"):
        held.release(clean=True)
    assert take(runtime).token == 2


def test_a_renewal_that_arrives_after_the_release_takes_nothing(runtime: Runtime) -> None:
    """As when botocore repeats one whose first answer was slow: the lease stays free for others."""
    held = take(runtime)
    held.release(clean=True)
    with pytest.raises(LeaseLost):
        held.renew()
    assert take(runtime).token == 2


def test_a_release_waits_for_the_renewal_under_way__and_is_the_last_word(runtime: Runtime, clock: ManualClock) -> None:
    held = take(runtime)
    renewing, go_on = Event(), Event()

    class Slow:
        def before(self, call: Call) -> None:
            if call.parameters["UpdateExpression"] == "SET #held_until = :held_until":
                renewing.set()
                assert go_on.wait(10)

        def after(self, call: Call, answer: dict[str, Any]) -> None: ...

    clock.advance(31)
    with observed(Slow()), ThreadPoolExecutor() as threads:
        renewal = threads.submit(held.ensure)
        assert renewing.wait(10)
        release = threads.submit(held.release, clean=True)
        go_on.set()
        renewal.result(10)
        release.result(10)
    assert LeaseRow.get("the-lease").held_until == 0


def test_nothing_is_renewed__once_it_was_given_back(runtime: Runtime, calls: CallCounter) -> None:
    held = take(runtime)
    held.release(clean=True)
    with pytest.raises(LeaseLost, match="given back"):
        held.ensure()
    assert calls.counts == {"UpdateItem": 2}


def test_two_that_take_it_from_each_other_in_turn_never_hold_it_both(runtime: Runtime, clock: ManualClock) -> None:
    tokens: list[int] = []
    holders: list[HeldLease] = []
    for _ in range(4):
        held = take(runtime)
        tokens.append(held.token)
        holders.append(held)
        clock.advance(LEASE_OVER)
        for stalled in holders:
            with pytest.raises(LeaseLost):
                stalled.ensure()
    assert tokens == [1, 2, 3, 4]
    last = take(runtime)
    for stalled in holders:
        with pytest.raises(LeaseLost):
            stalled.release(clean=True)
    assert last.remaining() > 0
    assert Lease("the-lease", runtime).acquire() is None


def test_a_memo_is_stored_with_what_a_transaction_writes__or_not_at_all(runtime: Runtime, clock: ManualClock) -> None:
    held = take(runtime)

    def write_noting(memo: dict[str, str]) -> None:
        work = UnitOfWork(runtime, Access(writes=(Owner,)))
        work.save(Owner("owner-1"))
        work.depend_on(held.note(memo))
        work.commit()

    write_noting({"page": "1"})
    clock.advance(LEASE_OVER)
    assert take(runtime).memo == {"page": "1"}
    with pytest.raises(LeaseLost):
        write_noting({"page": "2"})
    clock.advance(LEASE_OVER)
    assert take(runtime).memo == {"page": "1"}


# Rows that cannot be read


@pytest.mark.parametrize("memo", [{"S": "{"}, {"S": "[]"}, {"N": "1"}])
def test_a_memo_that_cannot_be_read_is_forgotten__and_told(runtime: Runtime, memo: Typed, logs: Lines) -> None:
    take(runtime).release(clean=True)
    spoil_row(LeaseRow, "the-lease", memo=memo)
    held = take(runtime)
    assert (held.memo, held.was_clean) == ({}, True)
    assert [(line["message"], line["row"]) for line in logs()] == [("row unreadable", "leases the-lease")]


def test_whether_it_was_left_clean_is_doubted__where_the_row_does_not_say(runtime: Runtime) -> None:
    take(runtime).release(clean=True)
    spoil_row(LeaseRow, "the-lease", clean={"S": "true"})
    assert not take(runtime).was_clean


def test_a_lease_that_nobody_could_ever_take_is_loud__and_says_what_to_do(
    runtime: Runtime,
) -> None:
    take(runtime).release(clean=True)
    spoil_row(LeaseRow, "the-lease", held_until=None)  # moto cannot compare a text with a number
    with pytest.raises(LeaseUnreadable, match=r"held_until is .*; set it to the number 0"):
        Lease("the-lease", runtime).acquire()
    spoil_row(LeaseRow, "the-lease", held_until={"N": "0"})
    assert take(runtime).token == 2
