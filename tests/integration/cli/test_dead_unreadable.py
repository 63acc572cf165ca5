"""What the command says of a dead row that cannot be read, and how one is mended by it."""

from __future__ import annotations

from mailroom.consumer import record_prefix
from mailroom.idempotency import IdempotencyRow, record_id
from mailroom.job import lease_name as job_lease
from mailroom.lease import Lease, LeaseRow
from mailroom.outbox.listing import find_event
from mailroom.outbox.relay import lease_name
from mailroom.outbox.table import OutboxRow
from mailroom.reading import UNREADABLE
from tests.lagging_reads import LaggingReads
from tests.spoilt import spoil_row

from ..dead_letters.test_unreadable import die
from ..outbox.conftest import SHARD
from .conftest import CONSUMER, JOB, Command, Stage
from .test_dead_list import EVENT

OTHER = EVENT.replace("-03", "-05")
RECORD = record_id(record_prefix(CONSUMER), EVENT)
WHY = ("--why", "its count was written by hand")


def test_it_is_listed_with_the_reason(stage: Stage, mailroom: Command) -> None:
    stage.die_in_outbox()
    bad = die(stage, retry_count={"S": "0"})
    answer = mailroom("dead", "list")
    assert answer.code == 0
    assert bad in answer.out
    assert f"{UNREADABLE}: retry_count is a text (S) and must be a number (N)" in answer.words


def test_it_is_shown_as_it_is__without_its_payload(stage: Stage, mailroom: Command) -> None:
    bad = die(stage, retry_count={"S": "0"}, created_at=None)
    answer = mailroom("dead", "show", bad)
    assert answer.code == 0
    assert 'retry_count {"S": "0"}' in answer.words
    assert "created_at is missing" in answer.words
    assert "amount" not in answer.out
    assert mailroom("dead", "show", bad, "--json").json["event"]["row"]["retry_count"] == {"S": "0"}
    assert mailroom("dead", "show", bad, "--json", "--payload").json["event"]["row"]["payload"] == {
        "S": '{"amount":17}'
    }


def test_a_payload_that_cannot_be_read_is_shown_in_the_row(stage: Stage, mailroom: Command) -> None:
    bad = die(stage, payload={"S": "{amount"})
    assert '{"S": "{amount"}' in mailroom("dead", "show", bad, "--payload").words
    assert "amount" not in mailroom("dead", "show", bad).out


def test_it_is_traced(stage: Stage, mailroom: Command) -> None:
    bad = die(stage, created_at={"S": "yesterday"})
    assert "outbox: died" in mailroom("trace", bad).words


def test_sending_it_again_unmended_says_what_to_do(stage: Stage, mailroom: Command) -> None:
    bad = die(stage, retry_count={"S": "0"})
    answer = mailroom("dead", "redrive", bad, *WHY, "--yes")
    assert answer.code == 1
    assert "cannot be read: retry_count is a text (S) and must be a number (N): edit it, or discard it" in answer.words


def test_it_is_mended_with_its_own_payload(stage: Stage, mailroom: Command) -> None:
    bad = die(stage, retry_count={"S": "0"})
    answer = mailroom("dead", "edit", bad, *WHY, "--json")
    assert answer.code == 0
    copy = find_event(answer.json["new_id"])
    assert isinstance(copy, OutboxRow)
    assert copy.payload == '{"amount":17}'


def test_what_cannot_be_read_of_it_is_asked_for__and_taken(stage: Stage, mailroom: Command) -> None:
    bad = die(stage, type=None)
    answer = mailroom("dead", "edit", bad, *WHY)
    assert answer.code == 1
    assert "its type cannot be read: say it" in answer.words
    assert mailroom("dead", "edit", bad, *WHY, "--type", "thing.happened").code == 0


def test_an_event_that_can_be_read_is_not_edited_without_a_payload(stage: Stage, mailroom: Command) -> None:
    (event,) = stage.die_in_outbox()
    answer = mailroom("dead", "edit", event, *WHY)
    assert answer.code == 1
    assert "say its mended payload, or redrive it" in answer.words


def test_it_is_given_up(stage: Stage, mailroom: Command) -> None:
    bad = die(stage, payload=None)
    assert mailroom("dead", "discard", bad, *WHY).code == 0
    assert "No dead letters" in mailroom("dead", "list").out


# A consumer's record


def die_unreadably(stage: Stage) -> str:
    """Let a message die at the consumer whose record is spoilt after; answer its event's id."""
    stage.die_at_consumer(EVENT)
    spoil_row(IdempotencyRow, RECORD, failure={"S": "?"}, attempts={"S": "1"})
    stage.reads.catch_up_indexes()
    return EVENT


def test_a_record_that_cannot_be_read_is_listed_as_such__and_the_others_as_they_are(
    stage: Stage, mailroom: Command
) -> None:
    bad = die_unreadably(stage)
    stage.die_at_consumer(OTHER)
    letters = {each["id"]: each for each in mailroom("dead", "list", "--json").json["letters"]}
    assert letters[bad]["failure"]["type"] == UNREADABLE
    assert letters[OTHER]["failure"]["type"] == "Permanent"


def test_what_its_record_cannot_tell_is_sent_again_by_force_alone__and_afresh(stage: Stage, mailroom: Command) -> None:
    bad = die_unreadably(stage)
    assert "cannot be read" in mailroom("dead", "redrive", bad, "--source", CONSUMER, *WHY, "--yes").words
    assert mailroom("dead", "redrive", bad, "--source", CONSUMER, *WHY, "--yes", "--force").code == 0
    stage.deliver_and_delete()
    assert stage.effects == 1


def test_a_record_that_cannot_be_read_is_shown(stage: Stage, mailroom: Command) -> None:
    answer = mailroom("dead", "show", die_unreadably(stage))
    assert answer.code == 0
    assert f"{CONSUMER} cannot be read" in answer.words


# Status


def test_a_lease_that_cannot_be_read_is_told__with_the_other_shards(
    stage: Stage, mailroom: Command, lagging_tables: LaggingReads
) -> None:
    stage.deploy_functions()
    die(stage, payload=None)
    spoil_row(LeaseRow, lease_name(SHARD), held_until={"S": "0"})
    lagging_tables.forget()
    answer = mailroom("status")
    assert answer.code == 0
    assert "The lease of shard 03 cannot be read: held_until is a text (S) and must be a number (N)" in answer.words
    assert "1 dead" in answer.words


def test_a_jobs_lease_that_cannot_be_read_is_told(stage: Stage, mailroom: Command) -> None:
    stage.deploy_functions()
    held = Lease(job_lease(JOB), stage.runtime).acquire()
    assert held is not None
    held.release(clean=True)
    spoil_row(LeaseRow, job_lease(JOB), held_until={"S": "0"})
    assert f"{JOB} failed: its lease cannot be read: held_until is a text (S)" in mailroom("jobs").words
