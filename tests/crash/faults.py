"""What strikes an AWS call, by the number of the call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from mailroom.clients import Call
from tests.faults import Died, is_conditional, refused, send_first, throttled, timed_out

from .partial_answers import AwsCall, PartialRefusal, refused_entry


class Fault(StrEnum):
    """What happens at one call."""

    DIES_BEFORE = "dies before it is sent"
    DIES_AFTER = "dies after it took effect"
    TIMES_OUT = "times out after it took effect"
    ANSWER_LOST = "sent again by the client, to which the answer was lost"
    REFUSED = "refused once"
    THROTTLED = "throttled twice"
    OUTAGE = "refused until the next try"
    STALLS = "stalls before it is sent, while another takes over"

    def strikes(self, call: Call) -> bool:
        """Answer whether it makes a difference to a call."""
        return self is not Fault.ANSWER_LOST or is_conditional(call)


Strike = Fault | PartialRefusal

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

    def __init__(self, strikes: Mapping[int, Strike], meanwhile: Callable[[], None]) -> None:
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

    def between(self, call: AwsCall, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """Stand between a client and AWS, and keep back an entry if the next call is to be refused one."""
        number = len(self.calls) + 1
        strike = None if self._paused or self.dead else self._strikes.get(number)
        if not isinstance(strike, PartialRefusal):
            return call(parameters)
        answer = refused_entry(strike, call, operation, parameters)
        if len(self.calls) < number:  # there was nothing left to send
            self.calls.append(Call("", operation, parameters))
            self.struck[number] = self.calls[-1]
        return answer

    def next_try(self) -> None:
        """Begin another try: of a new process if the last one died."""
        self.dead, self._down = False, None

    def pause(self) -> None:
        """Strike nothing from here on."""
        self._paused = True

    def _strike(self, call: Call, fault: Strike | None) -> None:
        if fault is Fault.DIES_BEFORE:
            self._die()
        if fault is Fault.STALLS:
            self._undisturbed(self._meanwhile)
        if fault is Fault.ANSWER_LOST and is_conditional(call):
            self._undisturbed(lambda: send_first(call))
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

    def _undisturbed(self, act: Callable[[], None]) -> None:
        self._paused = True
        try:
            act()
        finally:
            self._paused = False

    def _die(self) -> None:
        self.dead = True
        raise Died
