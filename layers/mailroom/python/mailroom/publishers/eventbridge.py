"""Delivery to an EventBridge bus.

Limits: https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-putevent-size.html
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mailroom import clients
from mailroom.clock import Clock
from mailroom.failures import FailureKind, Unavailable, failure_of, failure_of_code
from mailroom.needs import Need
from mailroom.outbox.event import Envelope
from mailroom.publishers.entries import advised, allow, by_itself, send_each
from mailroom.publishers.place import Place
from mailroom.publishers.publisher import SENT, Limits, Outcome

if TYPE_CHECKING:
    from mailroom.runtime import Runtime

_MEGABYTE = 1_000_000
_TIME_BYTES = 14
"""What `Time` counts in an entry's size, whatever it says."""
ACTIONS = ("events:DescribeEventBus", "events:PutEvents")
_BUS = re.compile(r"[\w./-]{1,256}|\$\{Token\[.*\]\}", re.ASCII)
"""A bus's name, or CDK's placeholder for one.
https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_CreateEventBus.html"""


class EventBridgePublisher:
    """Publishes to one bus, and looks at start and each minute whether it is there.

    PutEvents to a missing bus answers success, so the answer alone proves nothing.

    Parameters
    ----------
    refused_after
        Seconds after which an event is tried again that the bus refused by itself.
    """

    limits: ClassVar = Limits(entries=10, entry_bytes=_MEGABYTE, call_bytes=_MEGABYTE)
    layer: ClassVar[str | None] = None
    keeps_order = False

    def __init__(self, bus: str, *, clock: Clock, check_period: float, refused_after: float) -> None:
        self._bus = bus
        self._clock = clock
        self._check_period = check_period
        self._refused_after = refused_after
        self._checked_at: float | None = None
        self._lock = Lock()

    @classmethod
    def check_at(cls, place: Place) -> None:
        """See that the place is a bus's name."""
        if not _BUS.fullmatch(place.name):
            raise place.wrong("name a bus of this account and region: letters, digits, . - _ and /, no ARN")

    @classmethod
    def needs_at(cls, place: Place) -> tuple[Need, ...]:
        """Answer what publishing to the bus of this name needs."""
        return (Need(ACTIONS, f"events:event-bus/{place.name}"),)

    @classmethod
    def at(cls, place: Place, runtime: Runtime) -> Self:
        """Make the publisher for the bus of this name."""
        timings = runtime.timings
        return cls(
            place.name,
            clock=runtime.clock,
            check_period=timings.bus_check_period,
            refused_after=timings.unroutable_after,
        )

    @staticmethod
    def size(event: Envelope) -> int:
        """Answer an entry's size as EventBridge counts it."""
        detail = len(event.to_json().encode())
        return _TIME_BYTES + len(event.source.encode()) + len(event.type.encode()) + detail

    def publish(self, events: Sequence[Envelope]) -> list[Outcome]:
        """Put the events on the bus, up to ten of them and a megabyte in sum."""
        if not events:
            return []
        try:
            self._check_bus()
        except Exception as error:  # whatever it was, it is the bus's and no event's
            failure = replace(failure_of(error), kind=FailureKind.UNAVAILABLE)
            return [self._advised(failure)] * len(events)
        outcomes = send_each([self._entry(event) for event in events], self._send)
        return [self._advised(outcome) for outcome in outcomes]

    def _advised(self, outcome: Outcome) -> Outcome:
        place, remedy = f"the bus {self._bus}", allow(ACTIONS)
        return advised(outcome, place, remedy=remedy, refused_after=self._refused_after)

    def _entry(self, event: Envelope) -> dict[str, str]:
        return {
            "EventBusName": self._bus,
            "Source": event.source,
            "DetailType": event.type,
            "Detail": event.to_json(),
        }

    def _send(self, entries: Sequence[Any]) -> list[Outcome]:
        answered = clients.events().put_events(Entries=entries).get("Entries", [])
        if len(answered) != len(entries):
            raise Unavailable(f"PutEvents answered {len(answered)} of {len(entries)} entries")
        return [
            by_itself(failure_of_code(entry["ErrorCode"], entry.get("ErrorMessage", "")))
            if "ErrorCode" in entry
            else SENT
            for entry in answered
        ]

    def _check_bus(self) -> None:
        with self._lock:
            now = self._clock.monotonic()
            if self._checked_at is None or now - self._checked_at >= self._check_period:
                clients.events().describe_event_bus(Name=self._bus)
                self._checked_at = now
