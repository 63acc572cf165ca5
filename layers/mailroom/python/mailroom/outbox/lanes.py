"""Lanes: the events of a page, one lane per subject, so that a subject's events go one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from mailroom.outbox.table import PendingEvent


class Lanes:
    """What of a page can be published now.

    An event that waits, for its time or for an event before it that is pending elsewhere, holds back all that
    comes after it in its lane.

    Parameters
    ----------
    events
        Pending events, oldest first.
    now
        The present moment, in the form of `timestamp`.
    blocked
        Ids of events outside the page that are still pending.
    """

    def __init__(self, events: Iterable[PendingEvent], *, now: str, blocked: set[str]) -> None:
        self.waiting_until: list[str] = []
        self._lanes: dict[str, deque[PendingEvent]] = {}
        held: set[str] = set()
        waiting = set(blocked)
        for event in events:
            if event.lane not in held:
                if event.due_at is not None and event.due_at > now:
                    self.waiting_until.append(event.due_at)
                elif event.after not in waiting:
                    self._lanes.setdefault(event.lane, deque()).append(event)
                    continue
            held.add(event.lane)
            waiting.add(event.id)  # its successor may have another lane: one of the two may not say its subject

    def wave(self) -> list[PendingEvent]:
        """Answer the first event of each lane: they are of different subjects and go side by side."""
        return [lane[0] for lane in self._lanes.values()]

    def oldest(self) -> PendingEvent | None:
        """Answer the oldest event that can go."""
        return min(self.wave(), key=lambda event: event.id, default=None)

    def passed(self, event: PendingEvent) -> None:
        """Let the next in the lane go: this one is sent or dead."""
        lane = self._lanes[event.lane]
        lane.popleft()
        if not lane:
            del self._lanes[event.lane]

    def hold(self, event: PendingEvent) -> None:
        """Hold back the lane: this event waits."""
        del self._lanes[event.lane]
