"""What is done in one delivery, from what is known of the attempts before."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from mailroom.delivery import GiveUp, Run, Wait, decide
from mailroom.failures import Failure, FailureKind
from mailroom.idempotency import ENDED_SILENTLY, Taken
from mailroom.retry import Backoff

BACKOFF = Backoff(base=240, cap=3_600, attempts=5)
REFUSED = Failure(FailureKind.TRANSIENT, "HTTP 500", "refused")
NEVER = Failure(FailureKind.PERMANENT, "Gone", "gone")
NOW = 10_000_000


class NoChance(Random):
    """Adds nothing to a wait by chance."""

    def uniform(self, a: float, b: float) -> float:
        return a


def decided(**known: Any) -> Run | GiveUp | Wait:
    circumstances = {name: known.pop(name) for name in ("in_time", "receives") if name in known}
    claim = Taken("id", "taker", "fingerprint", **known)
    return decide(
        claim, **{"in_time": True, "receives": 1, **circumstances}, now_ms=NOW, backoff=BACKOFF, random=NoChance()
    )


def ended(seconds: float) -> dict[str, Any]:
    """Return what is known of an attempt in which the function died so many seconds ago, and nobody noticed yet."""
    return {"before": ENDED_SILENTLY, "ended_at": NOW - int(seconds * 1000)}


@pytest.mark.parametrize(
    ("known", "decision"),
    [
        ({}, Run()),
        ({"attempts": 5, "before": REFUSED}, Run()),
        ({"attempts": 6, "before": REFUSED}, GiveUp(REFUSED, settles=True)),
        ({"attempts": 2, "before": NEVER}, GiveUp(NEVER, settles=True)),
        ({"attempts": 6, "before": REFUSED, "in_time": False}, GiveUp(REFUSED, settles=True)),
        ({"attempts": 6, **ended(0)}, GiveUp(ENDED_SILENTLY, settles=True)),
        ({"attempts": 2, **ended(0)}, Wait(240)),
        ({"attempts": 2, **ended(180)}, Wait(60)),
        ({"attempts": 2, **ended(240)}, Run()),
        ({"attempts": 3, **ended(240)}, Wait(240)),
        ({"attempts": 5, **ended(1_900)}, Wait(20)),
        ({"attempts": 3, **ended(100), "noticed": True}, Wait(380)),
        ({"attempts": 3, **ended(480), "noticed": True}, Run()),
        ({"attempts": 2, **ended(240), "receives": 7}, Run()),
        ({"attempts": 2, **ended(240), "receives": 8}, Wait(1)),
        ({"attempts": 2, "before": ENDED_SILENTLY}, Run()),
        ({"attempts": 2, "before": ENDED_SILENTLY, "receives": 8}, Wait(1)),
        ({"attempts": 2, "before": REFUSED, "receives": 10}, Run()),
    ],
    ids=str,
)
def test_a_delivery_is_one_decision(known: dict[str, Any], decision: Run | GiveUp | Wait) -> None:
    assert decided(**known) == decision


def test_a_message_that_no_time_is_left_for_says_so__and_nothing_is_settled() -> None:
    decision = decided(in_time=False)
    assert isinstance(decision, GiveUp)
    assert (decision.failure.type, decision.settles) == ("NeverInTime", False)


def test_chance_lengthens_the_wait_after_a_silent_end_once() -> None:
    class Most(Random):
        def uniform(self, a: float, b: float) -> float:
            return b

    def waits(*, noticed: bool) -> Run | GiveUp | Wait:
        claim = Taken("id", "taker", "fingerprint", attempts=2, noticed=noticed, **ended(0))
        return decide(claim, in_time=True, receives=2, now_ms=NOW, backoff=BACKOFF, random=Most())

    assert (waits(noticed=False), waits(noticed=True)) == (Wait(360), Wait(240))
