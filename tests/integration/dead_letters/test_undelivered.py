"""Events that EventBridge could not put into a consumer's queue: seen with the reason, sent without its envelope."""

from __future__ import annotations

import json

import pytest

from mailroom import clients
from mailroom.dead_letters.letter import Fate
from mailroom.dead_letters.redrive import Plan
from mailroom.idempotency import IdempotencyRow
from mailroom.sources.source import Message
from mailroom.sources.sqs import SqsSource
from tests.faults import Died, died, failing

from .conftest import DEED, Stage, as_eventbridge_leaves_it

SOURCE = "greeter-undelivered"


def fates(stage: Stage, deed: str, ids: list[str]) -> dict[str, Fate]:
    return {each.id: each.fate for each in getattr(stage.desk.of(SOURCE), deed)(ids, DEED)}


def test_they_are_listed_as_the_event_that_is_inside__with_the_reason_that_eventbridge_gave(stage: Stage) -> None:
    (event,) = stage.leave_undelivered(ERROR_CODE="NO_PERMISSIONS", ERROR_MESSAGE="not allowed", RETRY_ATTEMPTS="185")
    (letter,) = stage.everything()
    assert (letter.id, letter.source, letter.type, letter.subject) == (event, SOURCE, "repo.created", "repos/1")
    assert (letter.failure.type, letter.failure.message) == ("NO_PERMISSIONS", "not allowed")
    assert (letter.state, letter.attempts) == ("dead", 186)


def test_a_message_without_a_reason_says_so(stage: Stage) -> None:
    stage.send(event := stage.new_id(), queue=SOURCE)  # as a subscription with raw delivery leaves it
    (letter,) = stage.everything()
    assert (letter.id, letter.failure.type) == (event, "Undelivered")


def test_the_consumer_is_sent_the_event_alone__and_its_effect_happens_once(stage: Stage) -> None:
    events = stage.leave_undelivered(3)
    assert stage.redrive() == dict.fromkeys(events, "done")
    (message, *_) = SqsSource(stage.queues["greeter"]).receive(1, wait=0, hidden=0)
    assert json.loads(message["body"])["id"] in events
    assert json.loads(message["body"])["data"]["name"] == "tool é"
    stage.deliver_and_delete()
    assert (stage.effects, stage.everything(), stage.depth("greeter-dead")) == (3, [], 0)


def test_an_event_that_was_moved_by_hand_in_its_envelope_has_its_effect_once_all_the_same(stage: Stage) -> None:
    (event,) = stage.leave_undelivered()
    stage.redrive()
    SqsSource(stage.queues["greeter"]).put([Message(as_eventbridge_leaves_it(event))])
    stage.deliver_and_delete()
    assert (stage.effects, stage.depth("greeter")) == (1, 0)
    (record,) = IdempotencyRow.scan(consistent_read=True)
    assert record.event_id == event


def test_one_that_was_given_up_is_not_sent__and_its_reason_is_kept(stage: Stage) -> None:
    first, second = stage.leave_undelivered(2)
    assert fates(stage, "discard", [first]) == {first: Fate.DONE}
    assert [letter.id for letter in stage.everything()] == [second]
    (record,) = IdempotencyRow.scan(consistent_read=True)
    (deed,) = json.loads(record.history)
    assert (record.event_id, deed["action"], deed["why"]) == (first, "discard", DEED.why)


def test_a_crash_between_send_and_delete_makes_one_effect(stage: Stage) -> None:
    (event,) = stage.leave_undelivered()
    with failing("DeleteMessage", died), pytest.raises(Died):
        stage.redrive()
    stage.deliver_and_delete()
    stage.clock.advance(200)
    (copy,) = stage.everything()
    assert (copy.failure.type, copy.doubt) == ("HandledBefore", Fate.SUCCEEDED_BEFORE)
    assert fates(stage, "redrive", [event]) == {event: Fate.SUCCEEDED_BEFORE}
    assert fates(stage, "discard", [event]) == {event: Fate.DONE}
    assert stage.effects == 1


def test_a_queue_that_is_still_not_there_leaves_them_where_they_are(stage: Stage) -> None:
    (event,) = stage.leave_undelivered()
    clients.sqs().delete_queue(QueueUrl=stage.queues["greeter"])
    plan = Plan.matching(stage.desk, keep=lambda _: True)
    assert stage.redrive(plan) == {event: "failed"}
    assert [letter.id for letter in stage.everything()] == [event]


def test_what_died_at_the_consumer_stays_listed__when_an_undelivered_copy_is_sent(stage: Stage) -> None:
    (event,) = stage.leave_undelivered()
    stage.die_at_consumer(event)
    assert fates(stage, "redrive", [event]) == {event: Fate.DONE}
    stage.reads.catch_up_indexes()
    assert [letter.source for letter in stage.everything()] == ["greeter"]
