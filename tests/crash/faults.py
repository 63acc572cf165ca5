"""What strikes an AWS call, by the number of the call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from mailroom.clients import Call
from tests.faults import Died, refused, throttled, timed_out


class Fault(StrEnum):
    """What happens at one call."""

    DIES_BEFORE = "dies before it is sent"
    DIES_AFTER = "dies after it took effect"
    TIMES_OUT = "times out after it took effect"
    REFUSED = "refused once"
    THROTTLED = "throttled twice"
    OUTAGE = "refused until the next try"
    STALLS = "stalls before it is sent, while another takes over"


_REFUSALS = {
    "dynamodb": "InternalServerError",
    "events": "InternalException",
    "s3": "SlowDown",
    "secretsmanager": "InternalServiceError",
    "sns": "InternalError",
    "sqs": "AccessDenied",
}


class Strikes:
    """Counts our calls and strikes those with a number. It is a `CallObserver`.

    Once a process has died none of its calls gets through, whatever its `finally` blocks try.

    Parameters
    ----------
    meanwhile
        What others do while a call stalls.
    """

    def __init__(self, strikes: Mapping[int, Fault], meanwhile: Callable[[], None]) -> None:
        self.calls: list[Call] = []
        self.struck: dict[int, Call] = {}
        self.dead = False
        self._strikes = dict(strikes)
        self._meanwhile = meanwhile
        self._paused = False
        self._throttled: str | None = None
        self._down: str | None = None

    def before(self, call: Call) -> None:
        if self._paused:
            return
        if self.dead:
            raise Died
        self.calls.append(call)
        fault = self._strikes.get(len(self.calls))
        if fault is not None:
            self.struck[len(self.calls)] = call
        self._strike(call, fault)

    def after(self, call: Call, answer: dict[str, Any]) -> None:
        if self._paused:
            return
        fault = self._strikes.get(len(self.calls)) if call is self.calls[-1] else None
        if fault is Fault.DIES_AFTER:
            self._die()
        if fault is Fault.TIMES_OUT:
            raise timed_out(call)

    def next_try(self) -> None:
        """Begin another try: of a new process if the last one died."""
        self.dead, self._down = False, None

    def pause(self) -> None:
        """Strike nothing from here on."""
        self._paused = True

    def _strike(self, call: Call, fault: Fault | None) -> None:
        if fault is Fault.DIES_BEFORE:
            self._die()
        if fault is Fault.STALLS:
            self._stall()
        if fault is Fault.REFUSED:
            raise refused(_REFUSALS[call.service])(call)
        if fault is Fault.OUTAGE or self._down == call.operation:
            self._down = call.operation
            raise refused(_REFUSALS[call.service])(call)
        if fault is Fault.THROTTLED:
            self._throttled = call.operation
            raise throttled(call)
        if self._throttled == call.operation:
            self._throttled = None
            raise throttled(call)

    def _stall(self) -> None:
        self._paused = True
        try:
            self._meanwhile()
        finally:
            self._paused = False

    def _die(self) -> None:
        self.dead = True
        raise Died
