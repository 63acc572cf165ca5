"""`mailroom dead list`: what died, by why, and no further read than asked for."""

from __future__ import annotations

import json

import boto3
import pytest

from mailroom import clients
from mailroom.cli.durations import BadDuration, parse_duration, write_duration
from mailroom.outbox.table import DEAD, OutboxRow
from mailroom.testing import permanent

from ..conftest import CallCounter
from ..dead_letters.conftest import BEHAVE
from .conftest import CONSUMER, Command, Stage

EVENT = "01JDW3NDEKTSV4RRFFQ69G5FAA-03"
OTHER = "01JDW3NDEKTSV4RRFFQ69G5FAB-03"


def test_nothing_dead__says_so_and_is_no_error(mailroom: Command) -> None:
    answer = mailroom("dead", "list")
    assert answer.code == 0
    assert "No dead letters." in answer.out
    assert "All 4 dead-letter queues are empty." in answer.out


def test_letters_that_failed_alike_are_one_group(stage: Stage, mailroom: Command) -> None:
    stage.die_in_outbox(2, reason="user 1 is gone")
    stage.die_in_outbox(1, reason="another thing")
    groups = mailroom("dead", "list", "--json").json["groups"]
    assert [(group["count"], group["failure"]) for group in groups] == [
        (2, "Test: user 1 is gone"),
        (1, "Test: another thing"),
    ]
    assert groups[0]["first"] <= groups[0]["last"]


def test_a_list_for_people_fits_80_columns__and_cuts_no_id_off(stage: Stage, mailroom: Command) -> None:
    ids = stage.die_in_outbox(3, reason="the receiver says no " * 20)
    answer = mailroom("dead", "list")
    assert all(event_id in answer.out for event_id in ids)
    assert max(map(len, answer.out.splitlines())) <= 80
    assert "\x1b" not in answer.out


def test_of_a_large_group_a_few_ids_are_shown__and_all_of_them_by_its_fingerprint(
    stage: Stage, mailroom: Command
) -> None:
    ids = stage.die_in_outbox(7)
    fingerprint = mailroom("dead", "list", "--json").json["groups"][0]["fingerprint"]
    few, all_ = mailroom("dead", "list"), mailroom("dead", "list", "--fingerprint", fingerprint)
    assert sum(event_id in few.out for event_id in ids) == 5
    assert f"and 2 more: --fingerprint {fingerprint}" in few.out
    assert all(event_id in all_.out for event_id in ids)


def test_groups_alone_leave_the_ids_out(stage: Stage, mailroom: Command) -> None:
    (event,) = stage.die_in_outbox()
    assert event not in mailroom("dead", "list", "--groups").out
    assert mailroom("dead", "list", "--groups", "--json").json["letters"] == []


def test_filters__by_source_type_fingerprint_and_age(stage: Stage, mailroom: Command) -> None:
    (old,) = stage.die_in_outbox(reason="old trouble")
    stage.clock.advance(7_200)
    (new,) = stage.die_in_outbox(reason="new trouble")
    stage.die_at_consumer(EVENT)

    def listed(*options: str) -> list[str]:
        return [letter["id"] for letter in mailroom("dead", "list", "--json", *options).json["letters"]]

    assert listed() == [old, new, EVENT]
    assert listed("--source", "outbox") == [old, new]
    assert listed("--source", CONSUMER) == [EVENT]
    assert listed("--type", "repo.created") == [EVENT]
    assert listed("--older-than", "2h") == [old]
    assert listed("--fingerprint", permanent("new trouble").fingerprint) == [new]
    assert listed("--type", "no.such") == []


def test_pages_follow_each_other_through_every_source__and_none_is_left_out(stage: Stage, mailroom: Command) -> None:
    wanted = [*stage.die_in_outbox(4), EVENT, OTHER]
    stage.die_at_consumer(EVENT, OTHER)
    found, cursor = [], None
    for _ in range(10):
        page = mailroom("dead", "list", "--json", "--limit", "2", *(["--cursor", cursor] if cursor else [])).json
        found += [letter["id"] for letter in page["letters"]]
        assert len(page["letters"]) <= 2
        cursor = page["cursor"]
        if cursor is None:
            break
    assert sorted(found) == sorted(wanted)


def test_a_page_that_is_not_the_last_says_how_to_go_on(stage: Stage, mailroom: Command) -> None:
    stage.die_in_outbox(3)
    answer = mailroom("dead", "list", "--limit", "2")
    cursor = next(line for line in answer.out.splitlines() if line.startswith("--cursor ")).split()[1]
    assert len(mailroom("dead", "list", "--json", "--cursor", cursor).json["letters"]) == 1
    assert len(mailroom("dead", "list", "--json", "--limit", "2", "--all").json["letters"]) == 3


@pytest.mark.parametrize("cursor", ["x", "outbox", "outbox:x", "nobody:", "outbox:e30=", "greeter:eyJpZCI6IDF9", ":"])
def test_a_forged_cursor_is_refused__as_wrong_usage(mailroom: Command, cursor: str) -> None:
    answer = mailroom("dead", "list", "--cursor", cursor, "--json")
    assert answer.code == 2
    assert answer.json["error"]["type"] == "BadCursor"


def test_a_cursor_of_one_source_is_refused_for_another(stage: Stage, mailroom: Command) -> None:
    stage.die_in_outbox(2)
    cursor = mailroom("dead", "list", "--json", "--limit", "1").json["cursor"]
    assert mailroom("dead", "list", "--source", CONSUMER, "--cursor", cursor).code == 2


def test_an_unknown_source_is_wrong_usage__and_those_there_are_are_named(mailroom: Command) -> None:
    answer = mailroom("dead", "list", "--source", "nobody")
    assert answer.code == 2
    assert answer.out == ""
    assert "'nobody' has no dead letters; these may have: outbox, greeter" in answer.err


@pytest.mark.parametrize("age", ["", "2", "h", "2x", "-1h", "1m1h", "٣h"])
def test_an_age_that_is_none_is_wrong_usage(mailroom: Command, age: str) -> None:
    assert mailroom("dead", "list", "--older-than", age).code == 2


def test_durations_are_read_and_written() -> None:
    assert parse_duration("1d2h3m4s").total_seconds() == 93_784
    assert [write_duration(seconds) for seconds in (0, 59, 3_600, 93_784, -5)] == ["0s", "59s", "1h", "1d 2h", "0s"]
    with pytest.raises(BadDuration, match="longer than time"):
        parse_duration("9" * 20 + "d")


def test_an_age_beyond_all_time_keeps_nothing(stage: Stage, mailroom: Command) -> None:
    stage.die_in_outbox()
    assert mailroom("dead", "list", "--older-than", "900000d", "--json").json["letters"] == []


# Depths


def test_a_queue_whose_messages_are_all_listed_says_so(stage: Stage, mailroom: Command) -> None:
    stage.die_at_consumer(EVENT)
    assert "greeter-dead 1 message, all listed" in mailroom("dead", "list").words


def test_a_message_that_was_not_come_upon_shows_as_a_difference(stage: Stage, mailroom: Command) -> None:
    stage.die_at_consumer(EVENT)
    clients.sqs().send_message(QueueUrl=stage.queues["greeter-dead"], MessageBody="?")
    clients.sqs().receive_message(QueueUrl=stage.queues["greeter-dead"], MaxNumberOfMessages=10)
    answer = mailroom("dead", "list")
    assert "2 messages, 1 listed: 1 of which no record tells and that were not come upon" in answer.words
    depth = mailroom("dead", "list", "--json").json["queues"]["greeter-dead"]
    assert (depth["messages"], depth["listed"]) == (2, 1)


def test_a_letter_without_its_message_shows_as_a_difference(stage: Stage, mailroom: Command) -> None:
    stage.die_at_consumer(EVENT)
    clients.sqs().purge_queue(QueueUrl=stage.queues["greeter-dead"])
    assert "0 messages, 1 listed: 1 not in the queue" in mailroom("dead", "list").words


def test_a_filtered_list_is_not_compared_with_the_depth(stage: Stage, mailroom: Command) -> None:
    stage.die_at_consumer(EVENT)
    assert mailroom("dead", "list", "--type", "no.such", "--json").json["queues"]["greeter-dead"]["listed"] is None


def test_what_rules_and_jobs_left_is_told__though_no_record_tells_of_it(stage: Stage, mailroom: Command) -> None:
    for name in ("greeter-undelivered", "sweep_up-dead"):
        clients.sqs().send_message(QueueUrl=stage.queues[name], MessageBody="{}")
    words = mailroom("dead", "list").words
    assert "greeter-undelivered 1 message, a rule could not deliver" in words
    assert "sweep_up-dead 1 message, runs that failed" in words


def test_listing_receives_from_no_queue(stage: Stage, mailroom: Command, calls: CallCounter) -> None:
    stage.die_at_consumer(EVENT)
    calls.calls.clear()
    mailroom("dead", "list", "--all")
    assert set(calls.counts) == {"Query", "GetQueueAttributes"}


# What is still tried


def test_what_a_consumer_still_tries_is_no_dead_letter__but_is_told(stage: Stage, mailroom: Command) -> None:
    fail_once(stage)
    answer = mailroom("dead", "list")
    assert "No dead letters" in answer.out
    assert "1 more is being retried" in answer.out
    (letter,) = mailroom("dead", "list", "--retrying", "--json").json["letters"]
    assert (letter["id"], letter["state"]) == (EVENT, "retrying")


def test_what_is_listed_as_being_retried_is_not_said_to_be_more(stage: Stage, mailroom: Command) -> None:
    fail_once(stage)
    for options in ((), ("--groups",)):
        out = mailroom("dead", "list", "--retrying", *options).out
        assert "Of these, 1 is still being retried." in out
        assert "more" not in out


def fail_once(stage: Stage) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("not now")

    BEHAVE[:] = [fail]
    stage.send(EVENT)
    stage.deliver_and_delete()
    BEHAVE.clear()


# Many


def test_of_many_dead_events_the_first_page_is_answered_without_reading_them(
    stage: Stage, mailroom: Command, calls: CallCounter
) -> None:
    bury(2_050)
    calls.calls.clear()
    page = mailroom("dead", "list", "--json").json
    assert len(page["letters"]) == 100
    assert page["cursor"]
    assert calls.counts == {"Query": 1, "GetQueueAttributes": 4}


def test_a_filter_that_keeps_nothing_stops_looking_after_a_thousand(
    stage: Stage, mailroom: Command, calls: CallCounter
) -> None:
    bury(1_200)
    calls.calls.clear()
    answer = mailroom("dead", "list", "--type", "no.such")
    assert calls.counts["Query"] == 10
    assert "No dead letters in this part of the list." in answer.out
    assert "1,000 letters were read, and there are more" in answer.words


def bury(count: int) -> None:
    """Write dead events past the hooks and checks that would make it slow."""
    dynamodb = boto3.client("dynamodb")
    written = {
        "partition": DEAD,
        "type": "thing.happened",
        "source": "test.service",
        "payload": "{}",
        "created_at": "2030-01-01T00:00:00.000Z",
        "died_at": "2030-01-01T00:00:00.000Z",
        "failure": permanent().to_json(),
    }
    for start in range(0, count, 1_000):
        requests = [
            {"PutRequest": {"Item": {k: {"S": v} for k, v in {**written, "event_id": f"01{number:024d}-03"}.items()}}}
            for number in range(start, min(start + 1_000, count))
        ]
        for first in range(0, len(requests), 25):
            dynamodb.batch_write_item(RequestItems={OutboxRow.table_name(): requests[first : first + 25]})


def test_json_is_one_document_and_nothing_else(stage: Stage, mailroom: Command) -> None:
    stage.die_in_outbox()
    answer = mailroom("dead", "list", "--json")
    assert json.loads(answer.out)["stage"] == "test"
    assert answer.err == ""
