"""What operators see and do: every source in one view, each deed once, each letter with an outcome."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from mailroom import clients
from mailroom.clients import Call
from mailroom.cursor import BadCursor, write_cursor
from mailroom.dead_letters.consumer import ConsumerLetters
from mailroom.dead_letters.desk import UnknownSource, groups
from mailroom.dead_letters.letter import Deed, Fate
from mailroom.dead_letters.outbox import OutboxLetters
from mailroom.dead_letters.redrive import Plan
from mailroom.failures import Permanent
from mailroom.history import MAX_HISTORY
from mailroom.idempotency import COMPLETED, IdempotencyRow
from mailroom.outbox.table import DEAD, DISCARDED, OutboxRow, pending, sent
from mailroom.publishers.publisher import SENT
from mailroom.sources.source import TENANT
from mailroom.sources.sqs import SqsSource
from mailroom.testing import permanent, transient
from tests.faults import Died, answer_lost, died, failing, throttled
from tests.lagging_reads import TABLE_LAG

from ..conftest import CallCounter
from ..outbox.conftest import SHARD
from .conftest import BEHAVE, DEED, Stage

IDS = [f"01JDW3NDEKTSV4RRFFQ69G5FA{letter}-03" for letter in "ABCDEFGH"]


def rows(partition: str) -> list[OutboxRow]:
    return list(OutboxRow.query(partition, consistent_read=True))


def outbox_of(stage: Stage) -> OutboxLetters:
    letters = stage.desk.of("outbox")
    assert isinstance(letters, OutboxLetters)
    return letters


# What is seen


def test_both_sources_are_in_one_view__with_the_reason(stage: Stage) -> None:
    (event,) = stage.die_in_outbox()
    stage.die_at_consumer(IDS[0])
    letters = {letter.source: letter for letter in stage.everything()}
    assert (letters["outbox"].id, letters["outbox"].failure.message) == (event, "refused")
    assert (letters["greeter"].id, letters["greeter"].failure.message) == (IDS[0], "the receiver is gone")
    assert {letter.state for letter in letters.values()} == {"dead"}


def test_listing_receives_from_no_queue(stage: Stage, calls: CallCounter) -> None:
    stage.die_at_consumer(IDS[0])
    calls.calls.clear()
    stage.everything()
    assert set(calls.counts) == {"Query", "GetQueueAttributes"}


def test_what_a_consumer_still_retries_is_listed_as_such(stage: Stage) -> None:
    def fail(_: object) -> None:
        raise ValueError("not yet")

    BEHAVE[:] = [fail]
    stage.send(IDS[0])
    stage.deliver_and_delete()
    (letter,) = stage.everything()
    assert (letter.state, letter.attempts) == ("retrying", 1)


def test_a_message_that_is_no_event_is_listed_by_its_message_id(stage: Stage) -> None:
    sent_message = clients.sqs().send_message(QueueUrl=stage.queues["greeter"], MessageBody="not json")
    stage.deliver_and_delete()
    (letter,) = stage.everything()
    assert letter.id == f"message/{sent_message['MessageId']}"


def test_what_succeeds_is_listed_no_more(stage: Stage) -> None:
    def fail(_: object) -> None:
        raise ValueError("not yet")

    BEHAVE[:] = [fail]
    stage.send(IDS[0])
    stage.deliver_and_delete()
    stage.clock.advance(3600)
    BEHAVE.clear()
    stage.send(IDS[0])
    stage.deliver_and_delete()
    assert stage.everything() == []


def test_letters_that_failed_alike_are_one_group(stage: Stage) -> None:
    stage.die_in_outbox(3, "no bus 42")
    stage.die_in_outbox(2, "no bus 43")
    stage.die_in_outbox(1, "too large")
    assert [(group.count, group.failure) for group in groups(iter(stage.everything()))] == [
        (5, "Test: no bus 42"),
        (1, "Test: too large"),
    ]


def test_pages_follow_each_other__to_the_end(stage: Stage) -> None:
    ids = stage.die_in_outbox(5)
    found, cursor = [], None
    while True:
        page, cursor = stage.desk.of("outbox").page(cursor, limit=2)
        found += [letter.id for letter in page]
        if cursor is None:
            break
    assert found == ids


@pytest.mark.parametrize(
    "cursor",
    ["", "nonsense", "e30=", "bnVsbA==", write_cursor({"partition": {"S": "pending#03"}, "event_id": {"S": "x"}})],
)
def test_a_forged_cursor_is_refused(stage: Stage, cursor: str) -> None:
    with pytest.raises(BadCursor):
        stage.desk.of("outbox").page(cursor)


def test_an_unknown_source_is_refused__naming_the_known(stage: Stage) -> None:
    with pytest.raises(UnknownSource, match="outbox, greeter"):
        stage.desk.of("nobody")


def test_depths_count_what_is_in_flight_too(stage: Stage) -> None:
    stage.die_at_consumer(IDS[0])
    stage.receive("greeter-dead")
    assert stage.desk.depths() == {"greeter-dead": 1, "greeter-undelivered": 0}


def test_the_dead_are_counted_no_further_than_asked(stage: Stage) -> None:
    stage.die_in_outbox(5)
    stage.clock.advance(TABLE_LAG)
    assert outbox_of(stage).count(up_to=10_000) == 5
    assert outbox_of(stage).count(up_to=3) == 3


# Redrive, outbox


def test_a_redriven_event_starts_afresh__and_keeps_its_history(stage: Stage) -> None:
    (event,) = stage.die_in_outbox()
    assert stage.redrive() == {event: "done"}
    (row,) = rows(pending(SHARD))
    assert (row.retry_count, row.failure, row.died_at, row.redriven) == (None, None, None, 1)
    (deed,) = json.loads(row.history)
    assert (deed["action"], deed["by"], deed["why"]) == ("redrive", "operator", "the receiver is back")
    assert deed["failure"]["message"] == "refused"
    stage.publisher.answer = lambda _: SENT
    stage.relay.drain(SHARD)
    assert rows(sent(SHARD))[0].history == row.history


@pytest.mark.parametrize("place", ["pending", "sent", "discarded"])
def test_what_is_not_dead_is_left_alone(stage: Stage, place: str) -> None:
    if place == "discarded":
        (event,) = stage.die_in_outbox()
        list(stage.desk.of("outbox").discard([event], DEED))
    else:
        event = stage.outbox.add()
        if place == "sent":
            stage.relay.drain(SHARD)
    (result,) = stage.desk.of("outbox").redrive([event], DEED)
    assert result.fate is Fate.NOT_DEAD
    assert place in result.detail


@pytest.mark.parametrize("event_id", ["nonsense", "", IDS[0], "01JDW3NDEKTSV4RRFFQ69G5FAV-99"])
def test_an_unknown_event_is_called_so(stage: Stage, event_id: str) -> None:
    (result,) = stage.desk.of("outbox").redrive([event_id], DEED)
    assert result.fate is Fate.UNKNOWN


def test_the_second_press_of_the_button_does_nothing(stage: Stage) -> None:
    (event,) = stage.die_in_outbox()
    plan = Plan.matching(stage.desk, keep=lambda _: True)
    assert stage.redrive(plan) == {event: "done"}
    assert stage.redrive(plan) == {event: "not dead"}


def test_of_two_operators_at_once_one_wins_each_letter(stage: Stage) -> None:
    events = stage.die_in_outbox(10)
    plan = Plan.matching(stage.desk, keep=lambda _: True)
    with ThreadPoolExecutor(2) as threads:
        outcomes = list(threads.map(lambda _: stage.redrive(plan), range(2)))
    for event in events:
        assert sorted(outcome[event] for outcome in outcomes) == ["done", "not dead"]
    assert len(rows(pending(SHARD))) == 10


def test_a_plan_is_frozen__whatever_dies_meanwhile(stage: Stage) -> None:
    first = stage.die_in_outbox()
    plan = Plan.matching(stage.desk, keep=lambda _: True)
    later = stage.die_in_outbox()
    assert list(stage.redrive(plan)) == first
    assert [row.event_id for row in rows(DEAD)] == later


def test_one_bad_letter_stops_no_other(stage: Stage) -> None:
    events = stage.die_in_outbox(5)
    plan = Plan.matching(stage.desk, keep=lambda _: True)
    list(stage.desk.of("outbox").discard(events[2:3], DEED))
    outcomes = stage.redrive(plan)
    assert [outcomes[event] for event in events] == ["done", "done", "not dead", "done", "done"]


def test_a_letter_that_aws_refuses_says_so__and_stays(stage: Stage) -> None:
    events = stage.die_in_outbox(2)
    with failing("TransactWriteItems", throttled, times=5):
        outcomes = stage.redrive()
    assert list(outcomes.values()) == ["failed", "done"]
    assert [row.event_id for row in rows(DEAD)] == events[:1]


def test_an_interrupted_redrive_is_run_again__and_nothing_doubles(stage: Stage) -> None:
    events = stage.die_in_outbox(4)

    def third(call: Call) -> bool:
        return call.operation == "TransactWriteItems" and events[2] in str(call.parameters)

    with failing(third, died, after=True), pytest.raises(Died):
        stage.redrive()
    stage.redrive()
    assert [row.event_id for row in rows(pending(SHARD))] == events
    assert [row.redriven for row in rows(pending(SHARD))] == [1, 1, 1, 1]


def test_an_event_may_die_and_be_redriven_often__its_history_stays_bounded(stage: Stage) -> None:
    (event,) = stage.die_in_outbox(1, "x" * 5000)
    for _ in range(MAX_HISTORY + 3):
        stage.redrive()
        stage.relay.drain(SHARD)
    (row,) = rows(DEAD)
    assert row.redriven == MAX_HISTORY + 3
    assert len(json.loads(row.history)) == MAX_HISTORY
    assert len(row.history) < 20 * 1024
    assert row.event_id == event


def test_a_rate_is_kept__by_the_clock(stage: Stage) -> None:
    stage.die_in_outbox(6)
    began = stage.clock.monotonic()
    stage.redrive(rate=2)
    assert stage.clock.monotonic() - began == pytest.approx(3)


def test_a_canary_stops__when_the_same_failure_comes_back(stage: Stage) -> None:
    stage.die_in_outbox(12, "still broken")
    stage.publisher.answer = lambda _: permanent("still broken")
    sleep = stage.clock.sleep
    stage.clock.sleep = lambda seconds: (sleep(seconds), stage.relay.drain(SHARD))  # type: ignore[assignment,method-assign,func-returns-value]
    outcomes = list(stage.redrive(canary=True).values())
    assert outcomes == ["done"] + ["not tried"] * 11
    assert len(rows(DEAD)) == 12


def test_a_canary_goes_on__when_all_is_well(stage: Stage) -> None:
    stage.die_in_outbox(12)
    stage.publisher.answer = lambda _: SENT
    sleep = stage.clock.sleep
    stage.clock.sleep = lambda seconds: (sleep(seconds), stage.relay.drain(SHARD))  # type: ignore[assignment,method-assign,func-returns-value]
    assert set(stage.redrive(canary=True).values()) == {"done"}


def test_a_canary_stops__when_its_first_letter_comes_to_no_end(stage: Stage) -> None:
    stage.die_in_outbox(3)
    outcomes = list(stage.redrive(canary=True, patience=30).values())
    assert outcomes == ["done", "not tried", "not tried"]


# Edit and discard


def test_an_edited_event_is_a_new_one_that_names_its_parent(stage: Stage) -> None:
    (event,) = stage.die_in_outbox()
    result = outbox_of(stage).edit(event, '{"mended":true}', DEED)
    assert result.fate is Fate.DONE
    (copy,) = rows(pending(SHARD))
    assert (copy.event_id, copy.parent, copy.payload) == (result.detail, event, '{"mended":true}')
    assert copy.event_id > event
    (gone,) = rows(DISCARDED)
    assert gone.event_id == event
    assert gone.expires_at is not None
    assert json.loads(gone.history)[0]["action"] == "edit"


def test_a_discarded_event_keeps_its_reason__and_is_never_sent(stage: Stage) -> None:
    (event,) = stage.die_in_outbox()
    deed = Deed("operator", "2030-01-01T00:00:00.000Z", "a test event")
    (result,) = stage.desk.of("outbox").discard([event], deed)
    assert result.ok
    assert json.loads(rows(DISCARDED)[0].history)[0]["why"] == "a test event"
    stage.publisher.answer = lambda _: SENT
    stage.relay.drain(SHARD)
    assert stage.publisher.ids == []


# Redrive, consumer


def test_a_message_moves_back__and_its_effect_happens_once(stage: Stage) -> None:
    stage.die_at_consumer(IDS[0])
    assert stage.redrive() == {IDS[0]: "done"}
    assert (stage.depth("greeter"), stage.depth("greeter-dead")) == (1, 0)
    stage.deliver_and_delete()
    assert (stage.effects, stage.everything(), stage.depth("greeter")) == (1, [], 0)


def test_only_the_chosen_messages_move__and_the_others_are_visible_again(stage: Stage) -> None:
    stage.die_at_consumer(*IDS[:5])
    plan = Plan.matching(stage.desk, keep=lambda letter: letter.id in IDS[1:3])
    assert stage.redrive(plan) == {IDS[1]: "done", IDS[2]: "done"}
    assert len(stage.receive("greeter-dead")) == 3


def test_a_redriven_message_remembers_who_and_why(stage: Stage) -> None:
    stage.die_at_consumer(IDS[0])
    stage.redrive()
    letters = stage.desk.of("greeter")
    assert isinstance(letters, ConsumerLetters)
    record = letters.records.get(IDS[0])
    assert record is not None
    (deed,) = json.loads(record.history)
    assert (deed["by"], deed["failure"]["message"]) == ("operator", "the receiver is gone")


@pytest.mark.parametrize("tenant", ["owner-1", None])
def test_a_redriven_message_is_still_its_tenants(stage: Stage, tenant: str | None) -> None:
    stage.die_at_consumer(IDS[0], tenant=tenant)
    stage.redrive()
    (record,) = SqsSource(stage.queues["greeter"]).receive(10, wait=0, hidden=30)
    assert record["attributes"].get(TENANT) == tenant


def test_what_dies_again_is_listed_again__with_its_history(stage: Stage) -> None:
    stage.die_at_consumer(IDS[0])
    stage.redrive()

    def refuse(_: object) -> None:
        raise Permanent("gone again")

    BEHAVE[:] = [refuse]
    stage.deliver_and_delete()
    (letter,) = stage.everything()
    assert (letter.failure.message, letter.attempts, letter.redriven) == ("gone again", 1, 1)
    assert letter.history[0]["action"] == "redrive"


def test_a_message_that_sqs_has_not_moved_yet_is_not_in_the_queue(stage: Stage) -> None:
    def refuse(_: object) -> None:
        raise Permanent("never")

    BEHAVE[:] = [refuse]
    stage.send(IDS[0])
    stage.deliver_and_delete()
    assert stage.redrive() == {IDS[0]: "not in the dead-letter queue"}


def test_a_crash_between_send_and_delete_makes_one_effect_all_the_same(stage: Stage) -> None:
    stage.die_at_consumer(IDS[0])
    with failing("DeleteMessage", died), pytest.raises(Died):
        stage.redrive()
    stage.deliver_and_delete()
    assert stage.effects == 1
    assert stage.depth("greeter-dead") == 1, "the copy is still there"
    (result,) = stage.desk.of("greeter").redrive(IDS[:1], DEED)
    assert result.fate is Fate.SUCCEEDED_BEFORE
    assert stage.effects == 1


def test_what_succeeded_runs_again_only_by_force(stage: Stage) -> None:
    stage.die_at_consumer(IDS[0])
    with failing("DeleteMessage", throttled):
        stage.redrive()
    stage.deliver_and_delete()
    stage.clock.advance(200)
    plan = Plan.naming(stage.desk, "greeter", IDS[:1])
    assert plan.succeeded == {IDS[0]}


def test_what_nobody_remembers_runs_only_by_force(stage: Stage) -> None:
    stage.die_at_consumer(IDS[0])
    for record in IdempotencyRow.scan(consistent_read=True):
        record.delete()
    plan = Plan.naming(stage.desk, "greeter", IDS[:1])
    assert plan.forgotten == {IDS[0]}
    assert stage.redrive(plan) == {IDS[0]: "record expired"}
    assert stage.redrive(plan, force=True) == {IDS[0]: "done"}
    stage.deliver_and_delete()
    assert stage.effects == 1


def test_a_success_is_forgotten_by_force__though_the_answer_to_that_was_lost(stage: Stage) -> None:
    stage.die_at_consumer(IDS[0])
    (record,) = IdempotencyRow.scan(consistent_read=True)
    record.update([IdempotencyRow.status.set(COMPLETED)])
    with answer_lost("DeleteItem"):
        (result,) = stage.desk.of("greeter").redrive([IDS[0]], DEED, force=True)
    assert result.ok


def test_a_discarded_message_leaves_the_queue_and_the_list(stage: Stage) -> None:
    stage.die_at_consumer(*IDS[:2])
    (result,) = stage.desk.of("greeter").discard(IDS[:1], DEED)
    assert result.ok
    stage.reads.catch_up_indexes()
    assert [letter.id for letter in stage.everything()] == [IDS[1]]
    assert stage.depth("greeter-dead") == 1


def test_messages_that_expire_within_two_days_are_pointed_out(stage: Stage) -> None:
    stage.die_at_consumer(IDS[0])
    assert Plan.matching(stage.desk, keep=lambda _: True).expiring == frozenset()
    stage.clock.advance(stage.runtime.timings.dead_letter_retention - 47 * 3600)
    assert Plan.matching(stage.desk, keep=lambda _: True).expiring == {IDS[0]}


def test_the_days_that_a_letter_has_count_from_when_its_message_was_sent__however_late_it_failed_first(
    stage: Stage,
) -> None:
    stage.send(IDS[0])
    sent_at = stage.clock.now()
    stage.clock.advance(6 * 3_600)  # moto lets nobody hide a message that is older than twelve hours
    stage.die_at_consumer()
    (letter,) = stage.everything()
    assert letter.expires_at == sent_at + timedelta(seconds=stage.runtime.timings.dead_letter_retention)


def test_what_was_redriven_has_its_days_anew__since_it_was_sent_anew(stage: Stage) -> None:
    stage.die_at_consumer(IDS[0])
    stage.clock.advance(3 * 86_400)
    stage.redrive()
    stage.die_at_consumer()
    (letter,) = stage.everything()
    assert letter.expires_at is not None
    left = letter.expires_at - stage.clock.now()
    assert left.total_seconds() == pytest.approx(stage.runtime.timings.dead_letter_retention, abs=1)


def test_what_is_being_retried_is_in_no_plan(stage: Stage) -> None:
    stage.publisher.answer = lambda _: transient()
    stage.outbox.add()
    stage.relay.drain(SHARD)
    assert Plan.matching(stage.desk, keep=lambda _: True).letters == ()


def test_a_deep_queue_is_looked_through_no_longer_than_there_is_time__and_nothing_stays_hidden(stage: Stage) -> None:
    stage.die_at_consumer(*IDS[:3])
    looks = iter([False, True])
    (result,) = stage.desk.of("greeter").redrive([IDS[7]], DEED, force=True, stop=lambda: next(looks))
    assert result.fate is Fate.NOT_TRIED
    assert len(stage.receive("greeter-dead")) == 3
