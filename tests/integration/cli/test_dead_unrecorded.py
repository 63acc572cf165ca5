"""`mailroom dead …` with messages of which no record tells: what the function never saw is dealt with all the same."""

from __future__ import annotations

import pytest

from .conftest import CONSUMER, Command, Stage
from .test_dead_redrive import UNKNOWN, WHY, fates


def test_they_are_listed_as_a_group__and_the_queue_has_no_others(stage: Stage, mailroom: Command) -> None:
    events = stage.die_unseen(3)
    answer = mailroom("dead", "list")
    assert all(event in answer.out for event in events)
    assert "3 repo.created from greeter" in answer.words
    assert "NoRecord: no record tells of it: its function was never started for it" in answer.words
    assert "greeter-dead 3 messages, all listed" in answer.words
    depth = mailroom("dead", "list", "--json").json["queues"]["greeter-dead"]
    assert (depth["messages"], depth["listed"]) == (3, 3)


def test_filters_keep_them_like_others(stage: Stage, mailroom: Command) -> None:
    stage.die_unseen(3)
    assert len(mailroom("dead", "list", "--json", "--type", "repo.created").json["letters"]) == 3
    assert mailroom("dead", "list", "--json", "--type", "no.such").json["letters"] == []
    assert mailroom("dead", "list", "--json", "--older-than", "1h").json["letters"] == []
    stage.clock.advance(3_700)
    assert len(mailroom("dead", "list", "--json", "--older-than", "1h").json["letters"]) == 3


def test_pages_go_through_them(stage: Stage, mailroom: Command) -> None:
    stage.die_at_consumer(recorded := stage.new_id())
    wanted = [*stage.die_in_outbox(1), recorded, *stage.die_unseen(3)]
    found, cursor = [], None
    for _ in range(10):
        page = mailroom("dead", "list", "--json", "--limit", "2", *(["--cursor", cursor] if cursor else [])).json
        found += [letter["id"] for letter in page["letters"]]
        cursor = page["cursor"]
        if cursor is None:
            break
    assert found == wanted


def test_a_redrive_of_all_sends_them(stage: Stage, mailroom: Command) -> None:
    events = stage.die_unseen(3)
    answer = mailroom("dead", "redrive", "--all", *WHY, "--yes", "--json")
    assert (answer.code, fates(answer)) == (0, dict.fromkeys(events, "done"))
    stage.deliver_and_delete()
    assert (stage.effects, stage.depth("greeter-dead")) == (3, 0)


def test_one_is_shown_and_sent_by_its_id_alone(stage: Stage, mailroom: Command) -> None:
    event, other = stage.die_unseen(2)
    shown = mailroom("dead", "show", event)
    assert shown.code == 0
    assert "At greeter: dead" in shown.out
    assert "NoRecord" in shown.out
    answer = mailroom("dead", "redrive", event, *WHY, "--yes", "--json")
    assert (answer.code, fates(answer)) == (0, {event: "done"})
    assert [each["id"] for each in mailroom("dead", "list", "--json").json["letters"]] == [other]
    assert "the receiver is back" in mailroom("dead", "show", event).words


def test_one_is_discarded_by_its_id_alone__and_its_reason_is_shown(stage: Stage, mailroom: Command) -> None:
    (event,) = stage.die_unseen()
    assert mailroom("dead", "discard", event, *WHY).code == 0
    assert stage.depth("greeter-dead") == 0
    assert "given up" in mailroom("trace", event).out
    assert "the receiver is back" in mailroom("dead", "show", event).words


def test_a_dry_run_names_them__and_moves_nothing(stage: Stage, mailroom: Command) -> None:
    (event,) = stage.die_unseen()
    answer = mailroom("dead", "redrive", event, "--source", CONSUMER, "--dry-run")
    assert "NoRecord" in answer.out
    assert stage.depth("greeter-dead") == 1
    assert len(stage.receive("greeter-dead")) == 1


def test_what_is_not_found_says_how_far_was_looked(
    stage: Stage, mailroom: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mailroom.dead_letters.queue.SEARCHED", 20)
    stage.die_unseen(25)
    shown = mailroom("dead", "show", UNKNOWN)
    assert shown.code == 1
    assert "nor the first 20 of about 25 messages in dead-letter queues" in shown.err
    answer = mailroom("dead", "redrive", UNKNOWN, "--source", CONSUMER, "--force", *WHY, "--yes")
    assert answer.code == 1
    assert "not found among the first 20 of about 25 looked at" in answer.words


def test_looking_for_several_ids_takes_one_look(stage: Stage, mailroom: Command) -> None:
    events = stage.die_unseen(3)
    answer = mailroom("dead", "redrive", *events, *WHY, "--yes", "--json")
    assert fates(answer) == dict.fromkeys(events, "done")


def test_undelivered_events_are_a_source_of_their_own(stage: Stage, mailroom: Command) -> None:
    first, second, third = stage.leave_undelivered(3)
    answer = mailroom("dead", "list", "--source", "greeter-undelivered")
    assert "3 repo.created from greeter-undelivered" in answer.words
    assert "NO_PERMISSIONS: the queue's policy lets nobody in" in answer.words
    assert "greeter-undelivered 3 messages, a rule could not deliver them, all listed" in answer.words
    assert "NO_PERMISSIONS" in mailroom("dead", "show", first).out
    chosen = ("--source", "greeter-undelivered", *WHY, "--json")
    assert fates(mailroom("dead", "discard", first, *chosen)) == {first: "done"}
    assert fates(mailroom("dead", "redrive", *chosen, "--yes")) == {second: "done", third: "done"}
    stage.deliver_and_delete()
    assert (stage.effects, stage.depth("greeter-undelivered")) == (2, 0)
