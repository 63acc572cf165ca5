"""The rules of the protocol, each taken away: what a run must notice."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import uuid4

import pytest

from mailroom import clients, idempotency, transaction
from mailroom.failures import Failure, FailureKind
from mailroom.lease import HeldLease
from mailroom.outbox import event, turn
from mailroom.outbox.event import EventIds
from mailroom.outbox.lanes import Lanes
from mailroom.outbox.table import OutboxTable, PendingEvent
from mailroom.outbox.turn import Turn
from mailroom.outbox.walk import Walk
from mailroom.publishers.publisher import NotTaken

from .watch import Rule

Patch = pytest.MonkeyPatch


class AllAtOnce(Lanes):
    """A page without waves: all that can go, goes."""

    def wave(self) -> list[PendingEvent]:
        """Answer every event of every lane."""
        return [event for lane in self._lanes.values() for event in lane]

    def passed(self, event: PendingEvent) -> None:
        """Take the event out."""
        lane = self._lanes.get(event.lane, deque())
        if event in lane:
            lane.remove(event)
        if not lane:
            self._lanes.pop(event.lane, None)

    def hold(self, event: PendingEvent) -> None:
        """Take the event alone out."""
        self.passed(event)


def no_waves(patch: Patch) -> None:
    """Publish all events of a page at once."""
    patch.setattr(turn, "Lanes", AllAtOnce)


def no_after(patch: Patch) -> None:
    """Look only at the page for what an event comes after."""
    among = OutboxTable.among
    patch.setattr(
        OutboxTable,
        "among",
        lambda self, partition, ids: among(self, partition, [] if partition.startswith("pending") else ids),
    )


def always_clean(patch: Patch) -> None:
    """Release after a delete that failed as if all were well."""
    release = HeldLease.release
    patch.setattr(HeldLease, "release", lambda self, *, clean: release(self, clean=True))


def first_page_only(patch: Patch) -> None:
    """After an unclean lease, compare only the first page with what was sent."""
    deliver = Turn._deliver

    def once(self: Turn, events: list[PendingEvent]) -> None:
        deliver(self, events)
        self._walk.unclean = False

    patch.setattr(Turn, "_deliver", once)


def no_check_at_all(patch: Patch) -> None:
    """After an unclean lease, compare nothing with what was sent."""
    resume = Walk.resume

    def trusting(self: Walk, held: HeldLease) -> None:
        resume(self, held)
        self.unclean = False

    patch.setattr(Walk, "resume", trusting)


def clean_between_turns(patch: Patch) -> None:
    """Release clean although an unclean walk has not seen every page."""
    release = Turn.release

    def early(self: Turn) -> None:
        self._walk.finished = True
        release(self)

    patch.setattr(Turn, "release", early)


def delete_unconfirmed(patch: Patch) -> None:
    """Delete from pending whatever was to be marked, confirmed or not."""
    mark_sent = OutboxTable.mark_sent

    def hopeful(self: OutboxTable, shard: int, events: Sequence[PendingEvent], now: Any) -> set[str]:
        mark_sent(self, shard, events, now)
        return {event.id for event in events}

    patch.setattr(OutboxTable, "mark_sent", hopeful)


def ghosts(patch: Patch) -> None:
    """Note attempts without asking whether the row is there."""

    class Careless:
        def __init__(self, client: Any) -> None:
            self._client = client

        def __getattr__(self, name: str) -> Any:
            return getattr(self._client, name)

        def update_item(self, **asked: Any) -> Any:
            if asked["ConditionExpression"] == "attribute_exists(#id)":
                del asked["ConditionExpression"]
                del asked["ExpressionAttributeNames"]["#id"]
            return self._client.update_item(**asked)

    dynamodb = clients.dynamodb
    patch.setattr("mailroom.outbox.table.clients.dynamodb", lambda: Careless(dynamodb()))


def no_count_before(patch: Patch) -> None:
    """Count an attempt only after it, also where one before may have killed the relay."""
    patch.setattr(Turn, "_deliver_carefully", lambda self, lanes: True)


def down_costs_an_attempt(patch: Patch) -> None:
    """Take a destination that is down for the event's own failure."""
    judge = Turn._judge

    def strict(self: Turn, lanes: Any, done: Any, event: Any, outcome: Any, **more: Any) -> None:
        down = isinstance(outcome, Failure) and outcome.kind is FailureKind.UNAVAILABLE
        if down and not isinstance(outcome, NotTaken):
            outcome = Failure(FailureKind.TRANSIENT, outcome.type, outcome.message)
        judge(self, lanes, done, event, outcome, **more)

    patch.setattr(Turn, "_judge", strict)


def one_speaks_for_all(patch: Patch) -> None:
    """Take a destination for down that does not take one event."""
    judge = Turn._judge

    def rash(self: Turn, lanes: Any, done: Any, event: Any, outcome: Any, **more: Any) -> None:
        if isinstance(outcome, NotTaken):
            outcome = Failure(FailureKind.UNAVAILABLE, outcome.type, outcome.message)
        judge(self, lanes, done, event, outcome, **more)

    patch.setattr(Turn, "_judge", rash)


def not_taken_costs_an_attempt(patch: Patch) -> None:
    """Count at once that an event is not taken."""
    patch.setattr(
        Turn,
        "_as_it_counts",
        lambda self, event, failure: Failure(FailureKind.TRANSIENT, failure.type, failure.message),
    )


def one_attempt_more(patch: Patch) -> None:
    """Give up after six attempts."""
    judge = Turn._judge

    def lenient(self: Turn, lanes: Any, done: Any, event: Any, outcome: Any, *, attempts: int | None = None) -> None:
        attempts = event.attempts + 1 if attempts is None else attempts
        judge(self, lanes, done, event, outcome, attempts=attempts - 1)

    patch.setattr(Turn, "_judge", lenient)


def no_margin(patch: Patch) -> None:
    """Trust the lease to its last second."""
    remaining = HeldLease.remaining
    patch.setattr(HeldLease, "remaining", lambda self: remaining(self) + 2 * self._runtime.timings.clock_skew)


def no_wall_clock(patch: Patch) -> None:
    """Measure the lease by a clock that may stand still."""

    def remaining(self: HeldLease) -> float:
        timings, clock = self._runtime.timings, self._runtime.clock
        return float(timings.lease - (clock.monotonic() - self._term[0]) - 2 * timings.clock_skew)

    patch.setattr(HeldLease, "remaining", remaining)


def no_look_before_marks(patch: Patch) -> None:
    """Mark what was published without a look at the lease."""
    mark = Turn._mark

    def blind(self: Turn, done: Sequence[PendingEvent]) -> bool:
        with pytest.MonkeyPatch.context() as look_away:
            look_away.setattr(self, "_ensure", lambda: None)
            return mark(self, done)

    patch.setattr(Turn, "_mark", blind)


def no_fence(patch: Patch) -> None:
    """Write without asking for the lease."""
    patch.setattr("mailroom.job.JobContext.depend_on", lambda self, check: None)


def late_completion(patch: Patch) -> None:
    """Complete a key's record whoever has it."""
    patch.setattr(idempotency.Taken, "is_ours", lambda self: idempotency.IdempotencyRow.id.exists())


def no_token(patch: Patch) -> None:
    """Send a commit in doubt again as a new one."""
    attempt = transaction._attempt
    patch.setattr(transaction, "_attempt", lambda operations, _: attempt(operations, str(uuid4())))


def next_id_is_one_more(patch: Patch) -> None:
    """Make the id that follows another by adding one."""
    patch.setattr(event, "_STEP_BYTES", 0)


def by_the_clock_alone(patch: Patch) -> None:
    """Make ids by the clock alone."""
    following = EventIds.next
    patch.setattr(EventIds, "next", lambda self, subject, after: following(self, subject, None))


RULES: dict[Callable[[Patch], None], Iterable[Rule]] = {
    no_waves: ("in order",),
    no_after: ("in order",),
    always_clean: ("sent once",),
    first_page_only: ("sent once",),
    no_check_at_all: ("sent once",),
    clean_between_turns: ("sent once",),
    delete_unconfirmed: ("nothing lost",),
    ghosts: ("no ghosts",),
    no_count_before: ("others go on",),
    down_costs_an_attempt: ("five attempts",),
    one_speaks_for_all: ("others go on",),
    not_taken_costs_an_attempt: ("five attempts",),
    one_attempt_more: ("five attempts",),
    no_margin: ("lease",),
    no_wall_clock: ("lease",),
    no_look_before_marks: ("lease",),
    no_fence: ("lease",),
    late_completion: ("one commit per key",),
    no_token: ("one commit per key",),
    next_id_is_one_more: ("in order", "sent once", "nothing lost"),
    by_the_clock_alone: ("in order",),
}
SHOWS_AT: dict[Callable[[Patch], None], int] = {first_page_only: 18, no_token: 26, no_wall_clock: 21}
"""The seed of a play in which the absence of a rule showed when this was written, where that takes more than a few."""
RARE = {clean_between_turns, ghosts, no_margin, late_completion, next_id_is_one_more}
"""Rules whose absence shows in one run of a hundred: each has a test of its own besides."""
