"""Lanes: what of a page may go now, so that the events of a subject go one after the other."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailroom.outbox.lanes import Lanes
from mailroom.outbox.table import PendingEvent

NOW, EARLIER, LATER = "2030-01-01T00:00:00.000Z", "2029-12-31T23:59:59.999Z", "2030-01-01T00:00:00.001Z"


def pending(
    event_id: str, subject: str | None = None, *, after: str | None = None, due: str | None = None
) -> PendingEvent:
    return PendingEvent({}, id=event_id, subject=subject, after=after, due_at=due)


def lanes_of(*events: PendingEvent, blocked: Collection[str] = ()) -> Lanes:
    return Lanes(events, now=NOW, blocked=set(blocked))


def wave(lanes: Lanes) -> list[str]:
    return sorted(event.id for event in lanes.wave())


def test_a_wave_has_the_oldest_event_of_each_subject() -> None:
    lanes = lanes_of(pending("1", "a"), pending("2", "b"), pending("3", "a"), pending("4", "b"))

    assert wave(lanes) == ["1", "2"]


def test_events_without_a_subject_go_side_by_side() -> None:
    assert wave(lanes_of(pending("1"), pending("2"), pending("3"))) == ["1", "2", "3"]


def test_the_next_of_a_subject_goes__when_the_one_before_has_passed() -> None:
    first, second = pending("1", "a"), pending("2", "a", after="1")
    lanes = lanes_of(first, second)

    lanes.passed(first)

    assert wave(lanes) == ["2"]


def test_nothing_is_left__when_all_have_passed() -> None:
    event = pending("1", "a")
    lanes = lanes_of(event)

    lanes.passed(event)

    assert (lanes.wave(), lanes.oldest()) == ([], None)


def test_an_event_that_must_wait_holds_back_its_successors__and_nobody_else() -> None:
    first, second, other = pending("1", "a"), pending("2", "a"), pending("3", "b")
    lanes = lanes_of(first, second, other)

    lanes.hold(first)

    assert wave(lanes) == ["3"]


@pytest.mark.parametrize(("due", "goes"), [(EARLIER, True), (NOW, True), (LATER, False), (None, True)])
def test_an_event_goes__once_it_is_due(due: str | None, goes: bool) -> None:
    assert bool(lanes_of(pending("1", "a", due=due)).wave()) is goes


def test_an_event_that_is_not_due_holds_back_its_successors__and_tells_until_when() -> None:
    lanes = lanes_of(pending("1", "a", due=LATER), pending("2", "a"), pending("3", "b"))

    assert wave(lanes) == ["3"]
    assert lanes.waiting_until == [LATER]


def test_an_event_waits_for_one_that_is_pending_elsewhere__and_so_do_its_successors() -> None:
    lanes = lanes_of(pending("2", "a", after="1"), pending("3", "a", after="2"), pending("4", "b"), blocked=["1"])

    assert wave(lanes) == ["4"]


def test_an_event_goes__when_the_one_before_is_pending_nowhere() -> None:
    assert wave(lanes_of(pending("2", "a", after="1"))) == ["2"]


def test_a_younger_event_that_is_not_due_holds_back_what_comes_after_it__and_not_what_comes_before() -> None:
    first = pending("1", "a")
    lanes = lanes_of(first, pending("2", "a", due=LATER), pending("3", "a"))

    assert wave(lanes) == ["1"]
    lanes.passed(first)
    assert wave(lanes) == []


def test_the_oldest_is_the_oldest_that_may_go() -> None:
    lanes = lanes_of(pending("1", "a", due=LATER), pending("2", "b"), pending("3", "c"))

    oldest = lanes.oldest()

    assert oldest is not None
    assert oldest.id == "2"


events = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", None]), st.sampled_from([None, EARLIER, LATER])), max_size=30
)


@given(page=events, fails=st.sets(st.integers(0, 30)))
def test_what_passes_of_a_subject_is_the_beginning_of_its_page__whatever_waits_or_fails(
    page: list[tuple[str | None, str | None]], fails: set[int]
) -> None:
    made = [pending(f"{position:02d}", subject, due=due) for position, (subject, due) in enumerate(page)]
    lanes, passed = lanes_of(*made), list[str]()
    while going := lanes.wave():
        for event in going:
            if int(event.id) in fails:
                lanes.hold(event)
            else:
                lanes.passed(event)
                passed.append(event.id)

    for subject in ("a", "b", "c"):
        of_subject = [event.id for event in made if event.subject == subject]
        passed_of_subject = [event_id for event_id in passed if event_id in of_subject]
        assert passed_of_subject == of_subject[: len(passed_of_subject)]
    assert len(set(passed)) == len(passed)
