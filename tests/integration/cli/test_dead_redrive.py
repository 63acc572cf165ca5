"""`mailroom dead redrive`: a plan first, an agreement, an outcome for each letter."""

from __future__ import annotations

from typing import Any

import boto3
import pytest

from mailroom import clients
from mailroom.clients import Call, observed
from mailroom.idempotency import COMPLETED, IdempotencyRow
from mailroom.outbox.table import DEAD, OutboxRow, pending
from mailroom.publishers.publisher import SENT
from mailroom.testing import permanent

from ..conftest import CallCounter
from ..outbox.conftest import SHARD
from .conftest import CONSUMER, Answer, Command, Stage
from .test_dead_list import EVENT, OTHER, bury

WHY = ("--why", "the receiver is back")
UNKNOWN = "01JDW3NDEKTSV4RRFFQ69G5FZZ-03"


def fates(answer: Answer) -> dict[str, str]:
    return {result["id"]: result["fate"] for result in answer.json["results"]}


def writes(calls: CallCounter) -> set[str]:
    reads = {"Query", "GetItem", "BatchGetItem", "GetQueueAttributes", "GetCallerIdentity"}
    return set(calls.counts) - reads


# What is meant


@pytest.mark.parametrize("options", [[], [EVENT, "--all"], [EVENT, "--type", "x"], ["--all", "--rate", "0"]])
def test_a_selection_that_is_unclear_is_wrong_usage(mailroom: Command, options: list[str]) -> None:
    assert mailroom("dead", "redrive", *options, *WHY, "--yes").code == 2


def test_a_reason_is_needed__and_not_a_blank_one(mailroom: Command) -> None:
    assert mailroom("dead", "redrive", "--all", "--yes").code == 2
    assert mailroom("dead", "redrive", "--all", "--yes", "--why", "  ").code == 2


def test_an_unknown_source_is_wrong_usage(mailroom: Command) -> None:
    assert mailroom("dead", "redrive", "--source", "nobody", *WHY, "--yes").code == 2
    assert mailroom("dead", "redrive", EVENT, "--source", "nobody", *WHY, "--yes").code == 2


def test_nothing_selected_is_no_error__but_says_so(mailroom: Command) -> None:
    answer = mailroom("dead", "redrive", "--all", *WHY, "--yes")
    assert answer.code == 0
    assert "there is nothing to redrive" in answer.out
    assert mailroom("dead", "redrive", "--all", *WHY, "--yes", "--json").json["plan"]["letters"] == 0


def test_a_filter_sends_those_it_keeps__and_no_others(stage: Stage, mailroom: Command) -> None:
    (old,) = stage.die_in_outbox(reason="old trouble")
    (new,) = stage.die_in_outbox(reason="new trouble")
    fingerprint = permanent("old trouble").fingerprint
    answer = mailroom("dead", "redrive", "--fingerprint", fingerprint, *WHY, "--yes", "--json")
    assert (answer.code, fates(answer)) == (0, {old: "done"})
    assert [row.event_id for row in OutboxRow.query(DEAD, consistent_read=True)] == [new]


def test_an_id_alone_finds_where_it_died(stage: Stage, mailroom: Command) -> None:
    (event,) = stage.die_in_outbox()
    stage.die_at_consumer(EVENT)
    answer = mailroom("dead", "redrive", event, EVENT, *WHY, "--yes", "--json")
    assert [(each["source"], each["fate"]) for each in answer.json["results"]] == [
        ("outbox", "done"),
        (CONSUMER, "done"),
    ]
    assert stage.depth("greeter") == 1


def test_an_id_that_died_at_several_needs_a_source(stage: Stage, mailroom: Command) -> None:
    (event,) = stage.die_in_outbox()
    stage.die_at_consumer(event)
    answer = mailroom("dead", "redrive", event, *WHY, "--yes")
    assert answer.code == 2
    assert "--source outbox or --source greeter" in answer.err
    assert fates(mailroom("dead", "redrive", event, "--source", CONSUMER, *WHY, "--yes", "--json")) == {event: "done"}
    assert [row.event_id for row in OutboxRow.query(DEAD, consistent_read=True)] == [event]


def test_pending_sent_and_unknown_ids_each_say_so__and_the_rest_is_sent(stage: Stage, mailroom: Command) -> None:
    (dead,) = stage.die_in_outbox()
    stage.publisher.answer = lambda _: SENT
    was_sent = stage.outbox.add()
    stage.relay.drain(SHARD)
    waits = stage.outbox.add()
    answer = mailroom("dead", "redrive", waits, was_sent, UNKNOWN, "nonsense", dead, *WHY, "--yes", "--json")
    assert answer.code == 1
    assert fates(answer) == {
        waits: "not dead", was_sent: "not dead", UNKNOWN: "unknown", "nonsense": "unknown", dead: "done",
    }  # fmt: skip
    told = mailroom("dead", "redrive", was_sent, *WHY, "--yes")
    assert f"{was_sent}  outbox  not dead: it is in sent#03" in told.out


# The plan


def test_a_dry_run_touches_nothing__and_tells_all(stage: Stage, mailroom: Command, calls: CallCounter) -> None:
    ids = stage.die_in_outbox(2)
    stage.die_at_consumer(EVENT)
    calls.calls.clear()
    answer = mailroom("dead", "redrive", "--all", "--dry-run", "--json")
    assert answer.code == 0
    assert writes(calls) == set()
    plan = answer.json["plan"]
    assert plan["by_source"] == {"outbox": 2, CONSUMER: 1}
    assert [each["id"] for each in plan["ids"]] == [*ids, EVENT]
    people = mailroom("dead", "redrive", "--all", "--dry-run")
    assert "Would redrive 3 letters" in people.out
    assert all(event_id in people.out for event_id in [*ids, EVENT])


def test_a_dry_run_shows_letters_that_failed_alike_as_one_group(stage: Stage, mailroom: Command) -> None:
    ids = stage.die_in_outbox(44, reason="the receiver says no")
    answer = mailroom("dead", "redrive", "--all", "--dry-run")
    assert answer.out.count("the receiver says no") == 1
    assert "and 39 more: --json names all" in answer.out
    assert len(answer.out.splitlines()) < 15
    plan = mailroom("dead", "redrive", "--all", "--dry-run", "--json").json["plan"]
    assert [each["id"] for each in plan["ids"]] == ids
    assert [group["count"] for group in plan["groups"]] == [44]


def test_whoever_is_asked_sees_what_failed_how(stage: Stage, mailroom: Command) -> None:
    stage.die_in_outbox(3, reason="the receiver says no")
    answer = mailroom("dead", "redrive", "--all", *WHY, answers="n\n")
    assert "3 thing.happened from outbox" in answer.err
    assert "the receiver says no" in answer.err


def test_a_dry_run_says_what_had_succeeded_and_what_is_forgotten(stage: Stage, mailroom: Command) -> None:
    stage.die_at_consumer(EVENT)
    succeed(stage, EVENT)
    answer = mailroom("dead", "redrive", EVENT, OTHER, "--source", CONSUMER, "--dry-run", "--json")
    assert (answer.json["plan"]["succeeded"], answer.json["plan"]["forgotten"]) == ([EVENT], [OTHER])
    words = mailroom("dead", "redrive", EVENT, OTHER, "--source", CONSUMER, "--dry-run").words
    assert "1 had succeeded already: they need --force" in words
    assert "1 left no record" in words


def test_a_dry_run_says_what_expires_soon(stage: Stage, mailroom: Command) -> None:
    stage.die_at_consumer(EVENT)
    stage.clock.advance(13 * 86_400)
    answer = mailroom("dead", "redrive", "--all", "--dry-run", "--json")
    assert answer.json["plan"]["expiring"] == [EVENT]
    assert "1 leave their queue for good within 48 h" in mailroom("dead", "redrive", "--all", "--dry-run").words


def test_what_had_succeeded_is_refused_without_force__and_runs_again_with_it(stage: Stage, mailroom: Command) -> None:
    stage.die_at_consumer(EVENT)
    succeed(stage, EVENT)
    again = ("dead", "redrive", EVENT, "--source", CONSUMER, *WHY, "--yes", "--json")
    assert (mailroom(*again).code, fates(mailroom(*again))) == (1, {EVENT: "succeeded before"})
    assert fates(mailroom(*again, "--force")) == {EVENT: "done"}


def succeed(stage: Stage, event_id: str) -> None:
    """Let the record say that the effect has happened, while the message still lies among the dead."""
    letters: Any = stage.desk.of(CONSUMER)
    row = letters.records.get(event_id)
    row.update([IdempotencyRow.status.set(COMPLETED), IdempotencyRow.failing.remove()])


# Agreement


def test_without_a_terminal_it_needs_yes__and_does_nothing(stage: Stage, mailroom: Command, calls: CallCounter) -> None:
    stage.die_in_outbox()
    calls.calls.clear()
    answer = mailroom("dead", "redrive", "--all", *WHY)
    assert answer.code == 2
    assert "add --yes" in answer.err
    assert writes(calls) == set()


def test_whoever_says_no_is_told_that_nothing_was_done(stage: Stage, mailroom: Command, calls: CallCounter) -> None:
    stage.die_in_outbox(2)
    calls.calls.clear()
    answer = mailroom("dead", "redrive", "--all", *WHY, "--canary", answers="n\n")
    assert answer.code == 1
    assert "To redrive 2 letters" in answer.err
    assert "In steps of 1, 10, 100 and the rest" in " ".join(answer.err.split())
    assert "Nothing was done." in answer.err
    assert writes(calls) == set()


def test_whoever_says_yes_gets_an_outcome_for_each(stage: Stage, mailroom: Command) -> None:
    ids = stage.die_in_outbox(2)
    answer = mailroom("dead", "redrive", "--all", *WHY, answers="y\n")
    assert answer.code == 0
    assert all(f"{event_id}  outbox  done" in answer.out for event_id in ids)
    assert "Of 2 letters: 2 done." in answer.out


# The job


def test_it_keeps_who_did_it_and_why(stage: Stage, mailroom: Command) -> None:
    (event,) = stage.die_in_outbox()
    mailroom("dead", "redrive", event, *WHY, "--yes")
    shown = mailroom("dead", "show", event)
    assert "by arn:aws:sts::" in shown.words
    assert "the receiver is back" in shown.words


def test_of_120_with_a_bad_one_all_others_are_sent__and_the_exit_code_tells(stage: Stage, mailroom: Command) -> None:
    bury(120)  # more than a page of them
    bad = [row.event_id for row in OutboxRow.query(DEAD, consistent_read=True)][113]

    class RefuseOne:
        def before(self, call: Call) -> None:
            if call.operation == "TransactWriteItems" and bad in str(call.parameters):
                raise RuntimeError("no")

        def after(self, call: Call, answer: dict[str, Any]) -> None: ...

    with observed(RefuseOne()):
        answer = mailroom("dead", "redrive", "--all", *WHY, "--yes", "--json")
    assert answer.code == 1
    assert answer.json["counts"] == {"done": 119, "failed": 1}
    assert fates(answer)[bad] == "failed"
    assert len(list(OutboxRow.query(pending(SHARD), consistent_read=True))) == 119
    assert [row.event_id for row in OutboxRow.query(DEAD, consistent_read=True)] == [bad]


def test_a_source_that_fails_in_the_middle_leaves_the_outcomes_so_far(stage: Stage, mailroom: Command) -> None:
    (event,) = stage.die_in_outbox()
    stage.die_at_consumer(EVENT)
    boto3.client("sqs").delete_queue(QueueUrl=stage.queues["greeter-dead"])
    answer = mailroom("dead", "redrive", "--all", *WHY, "--yes", "--json")
    assert answer.code == 1
    assert fates(answer) == {event: "done"}
    assert "NonExistentQueue" in answer.json["stopped"] or "QueueDoesNotExist" in answer.json["stopped"]


def test_a_canary_stops_at_the_old_failure__and_says_what_was_not_tried(stage: Stage, mailroom: Command) -> None:
    ids = stage.die_in_outbox(3)
    stage.publisher.answer = lambda _: permanent("refused")
    sleep = stage.clock.sleep

    def relay_meanwhile(seconds: float) -> None:
        sleep(seconds)
        stage.relay.drain(SHARD)

    stage.clock.sleep = relay_meanwhile  # type: ignore[method-assign]
    answer = mailroom("dead", "redrive", "--all", *WHY, "--yes", "--canary")
    assert answer.code == 1
    assert f"{ids[1]}  outbox  not tried: {ids[0]} came back with the same failure" in answer.out
    assert "Of 3 letters: 1 done, 2 not tried." in answer.out


def test_a_rate_is_kept(stage: Stage, mailroom: Command) -> None:
    stage.die_in_outbox(4)
    before = stage.clock.monotonic()
    assert mailroom("dead", "redrive", "--all", *WHY, "--yes", "--rate", "2").code == 0
    assert stage.clock.monotonic() - before == pytest.approx(2, abs=0.1)


def test_an_interruption_keeps_what_is_done__and_says_what_to_do(stage: Stage, mailroom: Command) -> None:
    ids = stage.die_in_outbox(2)

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    stage.clock.sleep = interrupt  # type: ignore[method-assign]
    answer = mailroom("dead", "redrive", "--all", *WHY, "--yes", "--rate", "1", "--json")
    assert answer.code == 1
    assert fates(answer) == {ids[0]: "done"}
    assert answer.json["stopped"].startswith("interrupted")


def test_messages_in_which_no_event_can_be_read_are_redriven_too(stage: Stage, mailroom: Command) -> None:
    clients.sqs().send_message(QueueUrl=stage.queues["greeter"], MessageBody="no event")
    while stage.depth("greeter"):
        stage.deliver_and_delete()
    (letter,) = mailroom("dead", "list", "--json").json["letters"]
    assert letter["id"].startswith("message/")
    answer = mailroom("dead", "redrive", letter["id"], *WHY, "--yes", "--json")
    assert fates(answer) == {letter["id"]: "done"}


# Filters and limits


def test_a_limit_sends_the_oldest__and_says_that_more_is_left(stage: Stage, mailroom: Command) -> None:
    ids = stage.die_in_outbox(3)
    assert (
        "Would redrive 2 letters, and leave more"
        in mailroom("dead", "redrive", "--all", "--limit", "2", "--dry-run").out
    )
    answer = mailroom("dead", "redrive", "--all", "--limit", "2", *WHY, "--yes", "--json")
    assert (answer.code, fates(answer), answer.json["plan"]["more"]) == (0, dict.fromkeys(ids[:2], "done"), True)
    assert mailroom("dead", "redrive", ids[2], "--limit", "2", *WHY, "--yes").code == 2


def test_filters__by_subject_and_by_moments(stage: Stage, mailroom: Command) -> None:
    (first,) = stage.die_in_outbox()
    stage.clock.advance(3_600)
    (second,) = stage.die_in_outbox()

    def meant(*options: str) -> list[str]:
        plan = mailroom("dead", "redrive", "--dry-run", "--json", *options).json["plan"]
        return [each["id"] for each in plan["ids"]]

    assert meant("--after", "2030-01-01T00:30Z") == [second]
    assert meant("--before", "2030-01-01T01:30+01:00") == [first]
    assert meant("--after", "2030-01-01T00:30Z", "--before", "2030-01-01T00:45Z") == []
    assert meant("--before", "2030-01-02T00:00Z", "--older-than", "30m") == [first]
    assert meant("--subject", "no/such") == []
    assert len(mailroom("dead", "list", "--json", "--after", "2030-01-01T00:30Z").json["letters"]) == 1


@pytest.mark.parametrize("moment", ["", "yesterday", "2030-01-01T00:00", "08:00Z"])
def test_a_moment_that_is_none_or_has_no_time_zone_is_wrong_usage(mailroom: Command, moment: str) -> None:
    assert mailroom("dead", "list", "--after", moment).code == 2
