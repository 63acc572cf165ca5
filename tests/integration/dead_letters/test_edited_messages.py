"""A consumer's dead letter in whose place a mended copy is put: a new event of this consumer, and one however often."""

from __future__ import annotations

import json

import pytest

from mailroom.dead_letters.letter import Fate, Result
from mailroom.dead_letters.outbox import OutboxLetters
from mailroom.dead_letters.queued import QueuedLetters
from mailroom.dead_letters.redrive import Plan
from mailroom.idempotency import COMPLETED, IdempotencyRow
from mailroom.outbox.event import Envelope, shard_of_id
from mailroom.publishers.publisher import SENT
from mailroom.sources.sqs import SqsSource
from tests.faults import Died, died, failing, throttled

from .conftest import DEED, Stage, greeter

MENDED = '{"repo_id":"1","name":"mended","owner_id":"owner-1"}'
OTHERWISE = '{"repo_id":"1","name":"mended otherwise","owner_id":"owner-1"}'


def edit(stage: Stage, event_id: str, payload: str = MENDED, *, source: str = "greeter") -> Result:
    letters = stage.desk.of(source)
    assert isinstance(letters, QueuedLetters)
    return letters.edit(event_id, payload, DEED, read=greeter.read)


def waiting(stage: Stage) -> list[Envelope]:
    records = SqsSource(stage.queues["greeter"]).receive(10, wait=0, hidden=0)
    return [Envelope.from_json(record["body"]) for record in records]


def record_of(stage: Stage, event_id: str) -> IdempotencyRow:
    (record,) = (row for row in IdempotencyRow.scan(consistent_read=True) if row.event_id == event_id)
    return record


@pytest.fixture
def dead(stage: Stage) -> str:
    """An event that the consumer failed at."""
    stage.die_at_consumer(event := stage.new_id())
    return event


def test_the_copy_is_a_new_event_that_names_its_parent__and_goes_to_the_consumer_alone(stage: Stage, dead: str) -> None:
    result = edit(stage, dead)
    assert result.fate is Fate.DONE
    (copy,) = waiting(stage)
    assert (copy.id, copy.parent, copy.payload) == (result.detail, dead, MENDED)
    assert copy.id > dead
    assert (copy.type, copy.subject) == ("repo.created", "repos/1")
    stage.deliver_and_delete()
    assert stage.effects == 1


def test_the_old_letter_is_given_up__with_who_and_why_and_what_it_became(stage: Stage, dead: str) -> None:
    result = edit(stage, dead)
    stage.reads.catch_up_indexes()
    assert (stage.everything(), stage.depth("greeter-dead")) == ([], 0)
    (deed,) = json.loads(record_of(stage, dead).history)
    assert (deed["action"], deed["why"], deed["became"]) == ("edit", DEED.why, result.detail)
    assert deed["failure"]["message"] == "the receiver is gone"


def test_the_copy_dies_as_any_event_does__and_its_record_names_the_parent(stage: Stage, dead: str) -> None:
    result = edit(stage, dead)
    stage.die_at_consumer()
    (letter,) = stage.everything()
    assert letter.id == result.detail
    assert record_of(stage, result.detail).parent == dead


def test_pressing_twice_yields_one(stage: Stage, dead: str) -> None:
    first, second = edit(stage, dead), edit(stage, dead)
    assert (first.fate, second.fate) == (Fate.DONE, Fate.NOT_IN_QUEUE)
    assert len(waiting(stage)) == 1


@pytest.mark.parametrize("struck", ["SendMessage", "UpdateItem", "DeleteMessage"])
@pytest.mark.parametrize("after", [False, True])
def test_a_crash_anywhere_is_pressed_again__and_yields_one_effect(
    stage: Stage, dead: str, struck: str, after: bool
) -> None:
    with failing(struck, died, after=after), pytest.raises(Died):
        edit(stage, dead)
    stage.clock.advance(200)
    again = edit(stage, dead)
    if (struck, after) != ("DeleteMessage", True):
        assert again.fate is Fate.DONE
    stage.deliver_and_delete()
    stage.clock.advance(200)
    stage.deliver_and_delete()
    assert (stage.effects, stage.depth("greeter"), stage.depth("greeter-dead")) == (1, 0, 0)


def test_a_copy_that_was_handled_is_not_sent_again__when_the_crash_is_pressed_again(stage: Stage, dead: str) -> None:
    with failing("DeleteMessage", died), pytest.raises(Died):
        edit(stage, dead)
    stage.deliver_and_delete()
    stage.clock.advance(200)
    assert edit(stage, dead, OTHERWISE).fate is Fate.DONE
    assert (stage.effects, stage.depth("greeter"), stage.depth("greeter-dead")) == (1, 0, 0)


def test_what_a_crash_left_says_what_took_its_place__and_is_sent_by_force_alone(stage: Stage, dead: str) -> None:
    with failing("DeleteMessage", died), pytest.raises(Died):
        edit(stage, dead)
    stage.clock.advance(200)
    stage.reads.catch_up_indexes()
    (left,) = stage.everything()
    assert (left.id, left.failure.type, left.doubt) == (dead, "Replaced", Fate.REPLACED)
    plan = Plan.matching(stage.desk, keep=lambda _: True)
    assert plan.succeeded == {dead}
    assert stage.redrive(plan) == {dead: "replaced"}


def test_a_copy_that_was_not_sent_leaves_the_letter_where_it_is(stage: Stage, dead: str) -> None:
    with failing("SendMessage", throttled):
        result = edit(stage, dead)
    assert (result.fate, result.detail) == (Fate.FAILED, "ThrottlingException: injected")
    assert [letter.id for letter in stage.everything()] == [dead]
    assert len(stage.receive("greeter-dead")) == 1


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        ('{"repo_id":"1","name":"x"}', "owner_id: Field required"),
        ('{"repo_id":1,"name":"x","owner_id":"s3cret"}', "repo_id: Input should be a valid string"),
        ('{"repo_id":"1","name":"\\u0000","owner_id":"x"}'.replace("\\u0000", "\x01"), "U+0001 cannot be sent"),
        ('{"repo_id":"1","owner_id":"1","name":"' + "x" * 1_048_576 + '"}', "a message holds 1048576"),
    ],
    ids=lambda text: text[:40],
)
def test_a_payload_that_the_consumer_could_not_read_is_refused__and_nothing_is_sent(
    stage: Stage, dead: str, payload: str, told: str
) -> None:
    result = edit(stage, dead, payload)
    assert result.fate is Fate.FAILED
    assert told in result.detail
    assert "s3cret" not in result.detail
    assert (stage.depth("greeter"), len(stage.receive("greeter-dead"))) == (0, 1)
    assert [letter.id for letter in stage.everything()] == [dead]


def test_a_message_that_no_record_tells_of_is_edited_too(stage: Stage) -> None:
    (event,) = stage.die_unseen()
    result = edit(stage, event)
    assert result.fate is Fate.DONE
    (deed,) = json.loads(record_of(stage, event).history)
    assert deed["became"] == result.detail


def test_an_undelivered_event_is_edited_too(stage: Stage) -> None:
    (event,) = stage.leave_undelivered()
    assert edit(stage, event, source="greeter-undelivered").fate is Fate.DONE
    stage.deliver_and_delete()
    assert (stage.effects, stage.everything()) == (1, [])


def test_a_message_in_which_no_event_can_be_read_is_not_edited(stage: Stage) -> None:
    stage.bury_text("no event")
    (letter,) = stage.everything()
    result = edit(stage, letter.id)
    assert (result.fate, stage.depth("greeter-dead")) == (Fate.FAILED, 1)
    assert "no event can be read" in result.detail


def test_what_had_its_effect_is_not_edited(stage: Stage, dead: str) -> None:
    record_of(stage, dead).update([IdempotencyRow.status.set(COMPLETED)])
    assert edit(stage, dead).fate is Fate.SUCCEEDED_BEFORE
    assert stage.depth("greeter-dead") == 1


def test_what_lies_in_no_queue_is_not_edited(stage: Stage) -> None:
    assert edit(stage, stage.new_id()).fate is Fate.NOT_IN_QUEUE


def test_the_copy_of_an_event_of_the_outbox_names_its_parent_on_its_way_too(stage: Stage) -> None:
    (event,) = stage.die_in_outbox()
    letters = stage.desk.of("outbox")
    assert isinstance(letters, OutboxLetters)
    copy = letters.edit(event, MENDED, DEED).detail
    stage.publisher.answer = lambda _: SENT
    stage.relay.drain(shard_of_id(event))
    assert [(each.id, each.parent) for each in stage.publisher.received] == [(copy, event)]
