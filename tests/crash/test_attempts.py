"""An answer that is lost to the client, which sends its call again, makes no difference to a message's attempts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mailroom import idempotency
from mailroom.failures import Failure

from .attempts import ATTEMPTS, REASON, FailToTheEnd, _Handler
from .aws import Aws
from .faults import Fault
from .harness import Harness, Tally
from .ledger import Finding, Flaw
from .world import World


class FailExactlyFiveTimes(FailToTheEnd):
    """As where no answer is lost."""

    def judge(self, world: World) -> Iterator[Finding]:
        yield from super().judge(world)
        (record,) = world.records
        told = Failure.from_json(record["failure"]).message if "failure" in record else None
        if (_Handler.calls, int(record["attempts"]), told) != (ATTEMPTS, ATTEMPTS, REASON):
            yield Finding(Flaw.LOST, f"called {_Handler.calls} times, counted {record['attempts']}: {told}")


def test_a_message_dies_after_five_attempts_with_the_reason__whichever_answer_is_lost(harness: Harness) -> None:
    assert [run.report() for run in harness.every_call(FailExactlyFiveTimes, [Fault.ANSWER_LOST])] == []


def test_a_take_that_forgets_what_was_before_is_found(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(item: Any) -> dict[str, Any]:
        return {"attempts": {"N": str(int(item["attempts"]["N"]) - 1)}, "status": {"S": "FAILED"}}

    monkeypatch.setattr(idempotency, "_before_our_take", forgets)
    wrong = Harness(aws, Tally()).every_call(FailExactlyFiveTimes, [Fault.ANSWER_LOST])
    assert next(wrong).findings
