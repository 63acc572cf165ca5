"""Messages in a dead-letter queue of which no record tells: seen by looking, and dealt with like any other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mailroom import clients
from mailroom.cursor import BadCursor
from mailroom.dead_letters.consumer import ConsumerLetters
from mailroom.dead_letters.letter import DeadLetter, Fate
from mailroom.dead_letters.redrive import Plan
from mailroom.idempotency import IdempotencyRow
from mailroom.timings import DAY
from tests.faults import Died, died, failing, throttled

from ..conftest import CallCounter
from .conftest import BEHAVE, DEED, RECEIVES, Stage

OLD = "01JDW3NDEKTSV4RRFFQ69G5FAA-03"
"""An event that is years older than any record gets."""


def letters_of(stage: Stage) -> ConsumerLetters:
    letters = stage.desk.of("greeter")
    assert isinstance(letters, ConsumerLetters)
    return letters


def results(stage: Stage, deed: str, ids: list[str], **options: Any) -> dict[str, Fate]:
    return {each.id: each.fate for each in getattr(letters_of(stage), deed)(ids, DEED, **options)}


# Seen


def test_a_message_that_the_function_never_saw_is_listed__with_its_event_and_when_it_leaves(stage: Stage) -> None:
    (event,) = stage.die_unseen()
    (letter,) = stage.everything()
    assert (letter.id, letter.source, letter.state, letter.attempts) == (event, "greeter", "dead", 0)
    assert (letter.type, letter.subject) == ("repo.created", "repos/1")
    assert "never started" in letter.failure.message
    assert letter.expires_at is not None
    until = (letter.expires_at - stage.clock.now()).total_seconds()
    assert until == pytest.approx(stage.runtime.timings.dead_letter_retention, abs=1)


def test_what_was_looked_at_is_visible_again_at_once(stage: Stage) -> None:
    stage.die_unseen(12)
    assert len(stage.everything()) == 12
    assert len(stage.receive("greeter-dead")) == 10, "as many as one receive takes"


def test_what_a_record_tells_of_is_listed_once__beside_what_none_does(stage: Stage) -> None:
    recorded = stage.new_id()
    stage.die_at_consumer(recorded)
    unseen = stage.die_unseen(2)
    listed = stage.everything()
    assert sorted(letter.id for letter in listed) == sorted([recorded, *unseen])
    assert {letter.id: letter.failure.type for letter in listed}[recorded] == "Permanent"


def test_nothing_is_received__as_long_as_records_tell_of_every_message(stage: Stage, calls: CallCounter) -> None:
    stage.die_at_consumer(stage.new_id(), stage.new_id())
    calls.calls.clear()
    stage.everything()
    assert "ReceiveMessage" not in calls.counts


def test_a_message_that_killed_its_function_each_time_says_so(stage: Stage) -> None:
    def kill(_: object) -> None:
        raise Died

    BEHAVE[:] = [kill]
    stage.send(event := stage.new_id())
    for _ in range(RECEIVES):
        with pytest.raises(Died):
            stage.deliver_and_delete()
        stage.clock.advance(6_000)
    BEHAVE.clear()
    assert (stage.receive("greeter"), stage.depth("greeter-dead")) == ([], 1)
    (letter,) = stage.everything()
    assert (letter.id, letter.failure.message) == (event, "the attempt timed out or was killed")
    assert letter.attempts == RECEIVES


def test_pages_follow_each_other_by_age__though_a_queue_knows_no_pages(stage: Stage) -> None:
    stage.die_at_consumer(recorded := stage.new_id())
    unseen = stage.die_unseen(5)
    pages, cursor = [], None
    while True:
        page, cursor = letters_of(stage).page(cursor, limit=2)
        pages.append([letter.id for letter in page])
        if cursor is None:
            break
    assert [event for page in pages for event in page] == [recorded, *unseen]
    assert max(map(len, pages)) == 2


def test_copies_of_one_event_are_one_letter(stage: Stage) -> None:
    (event,) = stage.die_unseen()
    stage.send(event, queue="greeter-dead")
    assert [letter.id for letter in stage.everything()] == [event]


def test_a_message_in_which_no_event_can_be_read_is_listed_by_its_message_id(stage: Stage) -> None:
    put = clients.sqs().send_message(QueueUrl=stage.queues["greeter-dead"], MessageBody="by hand")
    (letter,) = stage.everything()
    assert (letter.id, letter.type, letter.doubt) == (f"message/{put['MessageId']}", "?", None)


def test_a_queue_that_is_gone_hides_nothing_else(stage: Stage) -> None:
    (event,) = stage.die_in_outbox()
    clients.sqs().delete_queue(QueueUrl=stage.queues["greeter-dead"])
    assert [letter.id for letter in stage.everything()] == [event]


def test_a_forged_cursor_is_refused__of_the_queue_too(stage: Stage) -> None:
    stage.die_unseen(3)
    _, cursor = letters_of(stage).page(limit=1)
    assert cursor is not None
    for forged in (cursor[:-4], cursor[4:], f"{cursor}AAAA"):
        with pytest.raises(BadCursor):
            letters_of(stage).page(forged)


# Sent again


def test_they_are_in_the_plan_of_a_redrive_of_all__and_each_has_its_effect_once(stage: Stage) -> None:
    events = stage.die_unseen(3)
    plan = Plan.matching(stage.desk, keep=lambda _: True)
    assert [letter.id for letter in plan.letters] == events
    assert stage.redrive(plan) == dict.fromkeys(events, "done")
    stage.deliver_and_delete()
    assert (stage.effects, stage.everything(), stage.depth("greeter-dead")) == (3, [], 0)


def test_the_second_press_finds_nothing(stage: Stage) -> None:
    events = stage.die_unseen(2)
    plan = Plan.matching(stage.desk, keep=lambda _: True)
    stage.redrive(plan)
    assert stage.redrive(plan) == dict.fromkeys(events, "not in the dead-letter queue")
    assert Plan.matching(stage.desk, keep=lambda _: True).letters == ()
    assert stage.depth("greeter") == 2


def test_of_two_operators_at_once_one_has_each_message__and_the_other_is_told(stage: Stage) -> None:
    events = stage.die_unseen(3)
    first = letters_of(stage).redrive(events, DEED)
    assert next(first).fate is Fate.DONE
    told = list(letters_of(stage).redrive(events, DEED))
    assert {each.fate for each in told} == {Fate.NOT_IN_QUEUE}
    assert "2 more are in somebody's hands, try again in two minutes" in told[0].detail
    assert [each.fate for each in first] == [Fate.DONE, Fate.DONE]
    stage.deliver_and_delete()
    assert stage.effects == 3


def test_a_crash_between_send_and_delete_makes_one_effect__and_the_copy_says_that_it_is_one(stage: Stage) -> None:
    (event,) = stage.die_unseen()
    with failing("DeleteMessage", died), pytest.raises(Died):
        stage.redrive()
    stage.deliver_and_delete()
    stage.clock.advance(200)
    (copy,) = stage.everything()
    assert (copy.id, copy.failure.type, copy.doubt) == (event, "HandledBefore", Fate.SUCCEEDED_BEFORE)
    plan = Plan.matching(stage.desk, keep=lambda _: True)
    assert plan.succeeded == {event}
    assert stage.redrive(plan) == {event: "succeeded before"}
    assert results(stage, "discard", [event]) == {event: Fate.DONE}
    assert (stage.effects, stage.everything()) == (1, [])


def test_a_crash_before_the_copy_is_handled_is_pressed_again__and_makes_one_effect(stage: Stage) -> None:
    (event,) = stage.die_unseen()
    with failing("DeleteMessage", died), pytest.raises(Died):
        stage.redrive()
    stage.clock.advance(200)
    assert results(stage, "redrive", [event]) == {event: Fate.DONE}
    assert stage.depth("greeter") == 2
    stage.deliver_and_delete()
    assert stage.effects == 1


def test_what_was_sent_and_could_not_be_taken_out_says_both__in_the_outcome_and_in_the_list(stage: Stage) -> None:
    (event,) = stage.die_unseen()
    with failing("DeleteMessage", throttled):
        (result,) = letters_of(stage).redrive([event], DEED)
    assert (result.fate, result.detail) == (
        Fate.FAILED,
        "it is done, but its message is still there: ThrottlingException: injected",
    )
    (letter,) = stage.everything()
    assert (letter.id, letter.failure.type, letter.redriven) == (event, "LeftBehind", 1)


def test_what_dies_again_remembers_that_it_was_redriven(stage: Stage) -> None:
    (event,) = stage.die_unseen()
    stage.redrive()
    stage.die_at_consumer()  # the one that waits
    (letter,) = stage.everything()
    assert (letter.id, letter.redriven, letter.attempts) == (event, 1, 1)
    assert [deed["action"] for deed in letter.history] == ["redrive"]


def test_an_event_that_is_older_than_records_get_is_sent_by_force_alone__a_younger_one_without(stage: Stage) -> None:
    stage.send(OLD, queue="greeter-dead")
    (young,) = stage.die_unseen()
    plan = Plan.matching(stage.desk, keep=lambda _: True)
    assert plan.forgotten == {OLD}
    assert stage.redrive(plan) == {OLD: "record expired", young: "done"}
    assert stage.redrive(plan, force=True)[OLD] == "done"


@pytest.mark.parametrize(("days", "doubted"), [(23, False), (25, True)])
def test_an_event_is_doubted_from_the_day_on_from_which_its_record_may_be_gone(
    stage: Stage, days: int, doubted: bool
) -> None:
    (event,) = stage.die_unseen()
    stage.clock.advance(days * DAY)
    assert (letters_of(stage).doubt(event) is Fate.RECORD_EXPIRED) == doubted


# Given up


def test_a_message_that_is_given_up_leaves_its_reason_in_a_record(stage: Stage) -> None:
    (event,) = stage.die_unseen()
    assert results(stage, "discard", [event]) == {event: Fate.DONE}
    assert (stage.everything(), stage.depth("greeter-dead")) == ([], 0)
    (record,) = IdempotencyRow.scan(consistent_read=True)
    (deed,) = json.loads(record.history)
    assert (record.event_id, deed["action"], deed["why"]) == (event, "discard", DEED.why)
    assert record.expires_at > stage.clock.now()


def test_what_was_given_up_is_handled__should_it_be_sent_once_more(stage: Stage) -> None:
    (event,) = stage.die_unseen()
    results(stage, "discard", [event])
    stage.send(event)
    stage.deliver_and_delete()
    assert (stage.effects, stage.depth("greeter")) == (1, 0)


# Looked for


def test_one_is_found_by_its_id(stage: Stage) -> None:
    events = stage.die_unseen(3)
    found = stage.desk.search([events[1]])
    assert [letter.id for letter in found.letters] == [events[1]]
    assert len(stage.receive("greeter-dead")) == 3


def test_an_empty_queue_is_not_looked_into(stage: Stage, calls: CallCounter) -> None:
    assert stage.desk.search([OLD]).letters == ()
    assert "ReceiveMessage" not in calls.counts


def test_a_named_letter_that_no_list_has_is_in_the_plan_as_what_it_is(stage: Stage) -> None:
    (event,) = stage.die_unseen()
    (letter,) = Plan.naming(stage.desk, "greeter", [event]).letters
    assert isinstance(letter, DeadLetter)
    assert (letter.state, letter.type) == ("dead", "repo.created")
