"""`mailroom trace`: an event or a subject, from the outbox to every consumer."""

from __future__ import annotations

import pytest

from app.repos import Repo
from mailroom.idempotency import IdempotencyRow
from mailroom.outbox.event import shard_of_subject
from mailroom.outbox.table import pending
from mailroom.publishers.publisher import SENT
from mailroom.testing import transient

from ..conftest import CallCounter
from ..dead_letters.conftest import BEHAVE
from ..outbox.conftest import SHARD
from .conftest import CONSUMER, Command, Stage
from .test_dead_list import EVENT, fail_once

SUBJECT = next(f"repos/{number}" for number in range(1_000) if shard_of_subject(f"repos/{number}") == SHARD)


def repo(last_event_id: str) -> None:
    Repo(
        SUBJECT.partition("/")[2], name="n", owner_id="o", created_at="2030-01-01T00:00:00.000Z",
        last_event_id=last_event_id,
    ).save()  # fmt: skip


def steps(mailroom: Command, key: str, of: int = -1) -> list[tuple[str, str]]:
    event = mailroom("trace", key, "--json").json["events"][of]
    return [(step["where"], step["kind"]) for step in event["steps"]]


def test_an_event_is_followed_from_the_outbox_to_the_consumer(stage: Stage, mailroom: Command) -> None:
    stage.publisher.answer = lambda _: SENT
    event = stage.outbox.add(SUBJECT)
    stage.clock.advance(1)
    stage.relay.drain(SHARD)
    stage.clock.advance(1)
    stage.send(event)
    stage.deliver_and_delete()
    assert steps(mailroom, event) == [("outbox", "written"), ("outbox", "sent"), (CONSUMER, "handled")]
    answer = mailroom("trace", event)
    assert answer.code == 0
    assert f"{CONSUMER}  handled" in answer.out
    assert "2030-01-01T00:00:02Z  greeter: handled" in answer.out
    assert max(map(len, answer.out.splitlines())) <= 80


def test_a_redriven_event_tells_each_death_and_deed_in_order(stage: Stage, mailroom: Command) -> None:
    (event,) = stage.die_in_outbox(reason="first trouble")
    stage.clock.advance(10)
    mailroom("dead", "redrive", event, "--why", "receiver is back", "--yes")
    stage.clock.advance(10)
    stage.publisher.answer = lambda _: SENT
    stage.relay.drain(SHARD)
    assert steps(mailroom, event) == [("outbox", "written"), ("outbox", "redrive"), ("outbox", "sent")]
    assert "receiver is back; had failed: Test: first trouble" in mailroom("trace", event).words


def test_a_waiting_event_says_until_when_and_why(stage: Stage, mailroom: Command) -> None:
    stage.publisher.answer = lambda _: transient("busy")
    event = stage.outbox.add()
    stage.relay.drain(SHARD)
    assert steps(mailroom, event) == [("outbox", "written"), ("outbox", "waits")]
    assert "until then, after 1 attempt: Test: busy" in mailroom("trace", event).words


def state(mailroom: Command, event_id: str) -> str:
    (record,) = mailroom("trace", event_id, "--json").json["events"][0]["records"]
    return str(record["state"])


def test_what_a_consumer_still_tries_is_told(stage: Stage, mailroom: Command) -> None:
    fail_once(stage)
    assert state(mailroom, EVENT) == "retrying"
    assert "1 attempt: RuntimeError: not now" in mailroom("trace", EVENT).words


def test_what_a_consumer_gave_up_is_dead__and_sent_again_when_redriven(stage: Stage, mailroom: Command) -> None:
    stage.die_at_consumer(EVENT)
    assert state(mailroom, EVENT) == "dead"
    mailroom("dead", "redrive", EVENT, "--why", "x", "--yes")
    assert state(mailroom, EVENT) == "sent again"


def test_an_attempt_that_was_killed_is_told(stage: Stage, mailroom: Command) -> None:
    class Killed(BaseException):
        pass

    def kill(_: object) -> None:
        assert mailroom("trace", EVENT, "--json").json["events"][0]["records"][0]["state"] == "at work"
        raise Killed

    BEHAVE[:] = [kill]
    stage.send(EVENT)
    with pytest.raises(Killed):
        stage.deliver_and_delete()
    (row,) = IdempotencyRow.scan(consistent_read=True)
    row.update([IdempotencyRow.status.set("INPROGRESS")])  # as if the process had been gone at once
    stage.clock.advance(60)
    answer = mailroom("trace", EVENT)
    assert "retrying" in answer.out
    assert "timed out or was killed" in answer.words


# Subjects


def test_a_subject_is_followed_back_from_its_latest_event(stage: Stage, mailroom: Command) -> None:
    events = [stage.outbox.add(SUBJECT) for _ in range(3)]
    repo(events[-1])
    assert [each["id"] for each in mailroom("trace", SUBJECT, "--json").json["events"]] == events


def test_a_long_chain_is_followed_as_far_as_asked__and_says_where_it_goes_on(
    stage: Stage, mailroom: Command, calls: CallCounter
) -> None:
    events = [stage.outbox.add(SUBJECT) for _ in range(6)]
    repo(events[-1])
    calls.calls.clear()
    traced = mailroom("trace", SUBJECT, "--limit", "2", "--json").json
    assert [each["id"] for each in traced["events"]] == events[4:]
    assert traced["more"] == events[3]
    assert calls.counts["BatchGetItem"] == 4
    assert f"trace {events[3]}" in mailroom("trace", SUBJECT, "--limit", "2").words


def test_a_subject_whose_row_is_gone_is_found_by_its_newest_event(stage: Stage, mailroom: Command) -> None:
    events = [stage.outbox.add(SUBJECT) for _ in range(2)]
    stage.outbox.add()
    assert [each["id"] for each in mailroom("trace", SUBJECT, "--json").json["events"]] == events


def test_a_subject_of_which_nothing_tells_is_no_success(mailroom: Command) -> None:
    answer = mailroom("trace", "repos/none")
    assert answer.code == 1
    assert "repos/none has no row with an event" in answer.err


def test_a_subject_of_no_table_is_wrong_usage__and_the_tables_are_named(mailroom: Command) -> None:
    answer = mailroom("trace", "nothing/1")
    assert answer.code == 2
    assert "repos/…" in answer.err


def test_an_event_that_the_outbox_forgot_is_still_known_by_the_consumers(stage: Stage, mailroom: Command) -> None:
    stage.send(EVENT)
    stage.deliver_and_delete()
    event = mailroom("trace", EVENT, "--json").json["events"][0]
    assert (event["place"], event["records"][0]["state"]) == (None, "handled")
    assert "sent and forgotten" in mailroom("trace", EVENT).words


@pytest.mark.parametrize("key", ["01JDW3NDEKTSV4RRFFQ69G5FZZ-03", "nonsense", "message/1", ""])
def test_an_unknown_event_is_no_success(mailroom: Command, key: str) -> None:
    answer = mailroom("trace", key, "--json")
    assert answer.code == 1
    assert answer.json["error"]["type"] == "NothingKnown"


def test_tracing_writes_nothing(stage: Stage, mailroom: Command, calls: CallCounter) -> None:
    events = [stage.outbox.add(SUBJECT) for _ in range(2)]
    repo(events[-1])
    calls.calls.clear()
    mailroom("trace", SUBJECT)
    assert set(calls.counts) == {"DescribeTable", "Query", "BatchGetItem"}
    assert len(stage.outbox.ids(pending(SHARD))) == 2
