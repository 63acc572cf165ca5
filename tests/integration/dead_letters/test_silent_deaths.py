"""Messages that SQS moved to the dead-letter queue although their record tells of no last failure."""

from __future__ import annotations

from mailroom.clients import Call
from mailroom.failures import Permanent
from tests.faults import failing, throttled

from .conftest import BEHAVE, RECEIVES, Stage

EVENT = "01JDW3NDEKTSV4RRFFQ69G5FAV-03"
LONGER_THAN_ANY_WAIT = 2 * 3600


def die_without_a_last_word(stage: Stage) -> None:
    """Fail for good, and in the last delivery so that the record cannot be told of it."""

    def refuse(_: object) -> None:
        raise Permanent("the receiver is gone")

    BEHAVE[:] = [refuse]
    stage.send(EVENT)
    for _ in range(RECEIVES - 1):
        stage.deliver_and_delete()
    with failing(keeps, throttled):
        stage.deliver_and_delete()
    BEHAVE.clear()
    assert (stage.receive("greeter"), stage.depth("greeter-dead")) == ([], 1)


def keeps(call: Call) -> bool:
    return "first_failed_at" in str(call.parameters.get("ExpressionAttributeNames"))


def test_a_message_that_died_silently_is_listed_as_dead__once_no_delivery_can_come_any_more(stage: Stage) -> None:
    die_without_a_last_word(stage)
    (letter,) = stage.everything()
    assert letter.state == "retrying", "for all that anyone can know, it is"
    stage.clock.advance(LONGER_THAN_ANY_WAIT)
    (letter,) = stage.everything()
    assert (letter.state, letter.failure.message) == ("dead", "the attempt timed out or was killed")


def test_a_message_that_died_silently_is_in_the_plan_of_a_redrive__and_has_its_effect_once(stage: Stage) -> None:
    die_without_a_last_word(stage)
    stage.clock.advance(LONGER_THAN_ANY_WAIT)
    assert stage.redrive() == {EVENT: "done"}
    stage.deliver_and_delete()
    assert (stage.effects, stage.everything(), stage.depth("greeter-dead")) == (1, [], 0)
