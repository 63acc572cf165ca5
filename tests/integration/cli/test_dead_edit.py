"""`mailroom dead show`, `edit` and `discard`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mailroom.outbox.room import MAX_EVENT_BYTES
from mailroom.outbox.table import DEAD, DISCARDED, OutboxRow, pending
from mailroom.publishers.publisher import SENT
from mailroom.registry import Registry

from ..dead_letters.conftest import greeter
from ..outbox.conftest import SHARD
from .conftest import CONSUMER, Command, Stage
from .test_dead_list import EVENT

WHY = ("--why", "a field was missing")
UNKNOWN = "01JDW3NDEKTSV4RRFFQ69G5FZZ-03"


# Show


def test_a_letter_is_shown_with_its_failure__and_without_its_payload(stage: Stage, mailroom: Command) -> None:
    (event,) = stage.die_in_outbox(reason="the receiver refused it")
    OutboxRow(DEAD, event).update([OutboxRow.payload.set('{"secret":"s3cret"}')])
    answer = mailroom("dead", "show", event)
    assert answer.code == 0
    assert "Test: the receiver refused it" in answer.words
    assert "attempts 1" in answer.words
    assert "s3cret" not in answer.out + mailroom("dead", "show", event, "--json").out
    assert '"secret": "s3cret"' in mailroom("dead", "show", event, "--payload").out
    assert mailroom("dead", "show", event, "--payload", "--json").json["event"]["payload"] == '{"secret":"s3cret"}'


def test_a_letter_is_shown_in_every_source(stage: Stage, mailroom: Command) -> None:
    (event,) = stage.die_in_outbox()
    stage.die_at_consumer(event)
    assert [each["source"] for each in mailroom("dead", "show", event, "--json").json["letters"]] == [
        "outbox",
        CONSUMER,
    ]


def test_an_event_that_is_not_dead_is_shown_where_it_is(stage: Stage, mailroom: Command) -> None:
    waits = stage.outbox.add()
    answer = mailroom("dead", "show", waits)
    assert "pending#03" in answer.out
    assert "It is no dead letter." in answer.out


@pytest.mark.parametrize("unknown", [UNKNOWN, "nonsense", "message/1"])
def test_an_unknown_id_is_said_to_be_unknown(mailroom: Command, unknown: str) -> None:
    answer = mailroom("dead", "show", unknown)
    assert answer.code == 1
    assert f"nothing tells of {unknown}" in answer.err


# Edit


def test_an_edited_event_is_a_new_one__that_both_its_parent_and_its_trace_name(
    stage: Stage, mailroom: Command, tmp_path: Path
) -> None:
    (event,) = stage.die_in_outbox()
    (tmp_path / "fixed.json").write_text('{ "mended": "é" }')
    answer = mailroom("dead", "edit", event, "--payload", str(tmp_path / "fixed.json"), *WHY, "--json")
    assert answer.code == 0
    (copy,) = OutboxRow.query(pending(SHARD), consistent_read=True)
    assert (copy.event_id, copy.parent, copy.payload) == (answer.json["new_id"], event, '{"mended":"é"}')
    assert copy.event_id in mailroom("trace", event).words
    traced = mailroom("trace", copy.event_id, "--json").json["events"]
    assert [(each["id"], each["became"], each["parent"]) for each in traced] == [
        (event, copy.event_id, None),
        (copy.event_id, None, event),
    ]


def test_a_payload_may_come_from_stdin(stage: Stage, mailroom: Command) -> None:
    (event,) = stage.die_in_outbox()
    answer = mailroom("dead", "edit", event, "--payload", "-", *WHY, answers='{"mended": true}')
    assert answer.code == 0
    assert "takes its place" in answer.words


@pytest.mark.parametrize(
    "payload",
    ["", "[1]", '"text"', "null", '{"a": NaN}', '{"a": 1, "a": 2}', '{"a": 9007199254740993}', '{"a": "\\ud800"}', "{"],
)
def test_a_payload_that_is_no_strict_json_object_is_refused__and_nothing_is_changed(
    stage: Stage, mailroom: Command, payload: str
) -> None:
    (event,) = stage.die_in_outbox()
    answer = mailroom("dead", "edit", event, "--payload", "-", *WHY, answers=payload)
    assert answer.code == 2
    assert "the payload is refused" in answer.err
    assert [row.event_id for row in OutboxRow.query(DEAD, consistent_read=True)] == [event]


def test_a_payload_that_cannot_be_read_is_wrong_usage(stage: Stage, mailroom: Command, tmp_path: Path) -> None:
    (tmp_path / "latin.json").write_bytes(b'{"a":"\xe9"}')
    assert mailroom("dead", "edit", EVENT, "--payload", str(tmp_path / "none.json"), *WHY).code == 2
    assert "not UTF-8" in mailroom("dead", "edit", EVENT, "--payload", str(tmp_path / "latin.json"), *WHY).err


def test_a_payload_that_is_too_large_for_the_outbox_is_refused(stage: Stage, mailroom: Command) -> None:
    (event,) = stage.die_in_outbox()
    payload = json.dumps({"a": "x" * MAX_EVENT_BYTES})
    answer = mailroom("dead", "edit", event, "--payload", "-", *WHY, answers=payload)
    assert answer.code == 1
    assert "which holds" in answer.words
    assert [row.event_id for row in OutboxRow.query(DEAD, consistent_read=True)] == [event]


def test_a_consumers_letter_is_edited_where_it_died__and_both_events_are_traced(
    stage: Stage, mailroom: Command, with_greeter: None
) -> None:
    stage.die_at_consumer(EVENT)
    payload = '{"repo_id": "1", "name": "mended", "owner_id": "owner-1"}'
    answer = mailroom("dead", "edit", EVENT, "--payload", "-", *WHY, "--json", answers=payload)
    assert (answer.code, answer.json["counts"]) == (0, {"done": 1})
    new_id = answer.json["new_id"]
    assert stage.depth("greeter-dead") == 0
    assert f"became {new_id}" in mailroom("dead", "show", EVENT).words
    assert f"mended copy of {EVENT}" in mailroom("dead", "show", new_id).words
    assert "greeter replaced" in mailroom("trace", EVENT).words
    assert [each["id"] for each in mailroom("trace", new_id, "--json").json["events"]] == [EVENT, new_id]
    stage.deliver_and_delete()
    assert stage.effects == 1


@pytest.mark.parametrize("source", [[], ["--source", CONSUMER]], ids=len)
def test_the_second_press_is_told_what_took_its_place(
    stage: Stage, mailroom: Command, with_greeter: None, source: list[str]
) -> None:
    stage.die_at_consumer(EVENT)
    payload = '{"repo_id": "1", "name": "mended", "owner_id": "owner-1"}'
    press = ("dead", "edit", EVENT, "--payload", "-", *WHY, "--json", *source)
    new_id = mailroom(*press, answers=payload).json["new_id"]
    again = mailroom(*press, answers=payload)
    assert (again.code, again.json["counts"], again.json["new_id"]) == (1, {"replaced": 1}, None)
    assert again.json["results"][0]["detail"] == f"{new_id} took its place already"
    assert stage.depth("greeter") == 1


def test_a_payload_that_the_consumer_cannot_read_is_refused__with_the_field(
    stage: Stage, mailroom: Command, with_greeter: None
) -> None:
    stage.die_at_consumer(EVENT)
    answer = mailroom("dead", "edit", EVENT, "--payload", "-", *WHY, answers='{"name": "x"}')
    assert answer.code == 1
    assert "owner_id: Field required" in answer.words
    assert stage.depth("greeter-dead") == 1


def test_an_event_that_died_at_several_is_edited_where_it_is_said(
    stage: Stage, mailroom: Command, with_greeter: None
) -> None:
    (event,) = stage.die_in_outbox()
    stage.die_at_consumer(event)
    payload = '{"repo_id": "1", "name": "mended", "owner_id": "owner-1"}'
    chosen = ("dead", "edit", event, "--payload", "-", *WHY)
    assert "--source outbox or --source greeter" in mailroom(*chosen, answers=payload).err
    assert mailroom(*chosen, "--source", CONSUMER, answers=payload).code == 0
    assert [row.event_id for row in OutboxRow.query(DEAD, consistent_read=True)] == [event]


def test_a_consumer_that_the_application_does_not_have_cannot_read_a_copy(stage: Stage, mailroom: Command) -> None:
    stage.die_at_consumer(EVENT)
    answer = mailroom("dead", "edit", EVENT, "--payload", "-", *WHY, answers="{}")
    assert answer.code == 2
    assert "there is no consumer 'greeter'" in answer.err
    assert stage.depth("greeter-dead") == 1


def test_of_a_consumers_letter_only_the_payload_is_mended(stage: Stage, mailroom: Command) -> None:
    stage.die_at_consumer(EVENT)
    for options in ([], ["--payload", "-", "--type", "x"]):
        answer = mailroom("dead", "edit", EVENT, *options, *WHY, answers="{}")
        assert answer.code == 2
        assert f"{EVENT} died at {CONSUMER}: say its mended payload" in answer.err


def test_a_payload_is_shown_that_lies_in_a_dead_letter_queue_alone(stage: Stage, mailroom: Command) -> None:
    stage.die_at_consumer(EVENT)
    (unseen,) = stage.die_unseen()
    for event in (EVENT, unseen):
        assert '"owner_id": "owner-1"' in mailroom("dead", "show", event, "--payload").out
        assert "owner-1" not in mailroom("dead", "show", event).out + mailroom("dead", "show", event, "--json").out
    assert "owner-1" not in mailroom("dead", "list", "--json").out


@pytest.fixture
def with_greeter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the application have the consumer at which events die here."""
    registry = Registry(consumers=(greeter,), jobs=(), settings=())
    monkeypatch.setattr(Registry, "of", lambda _package: registry)


def test_editing_an_unknown_or_a_sent_event_fails__and_says_why(stage: Stage, mailroom: Command) -> None:
    stage.publisher.answer = lambda _: SENT
    sent = stage.outbox.add()
    stage.relay.drain(SHARD)
    assert "not dead: it is in sent#03" in mailroom("dead", "edit", sent, "--payload", "-", *WHY, answers="{}").out
    assert mailroom("dead", "edit", UNKNOWN, "--payload", "-", *WHY, answers="{}").code == 1


# Discard


def test_discarded_letters_leave_the_list__and_their_reason_stays(stage: Stage, mailroom: Command) -> None:
    events = stage.die_in_outbox(2)
    answer = mailroom("dead", "discard", *events, "--source", "outbox", *WHY)
    assert answer.code == 0
    assert "Of 2 letters: 2 done." in answer.out
    assert [row.event_id for row in OutboxRow.query(DISCARDED, consistent_read=True)] == events
    assert "a field was missing" in mailroom("dead", "show", events[0]).words


def test_a_consumers_letter_is_discarded_with_its_message(stage: Stage, mailroom: Command) -> None:
    stage.die_at_consumer(EVENT)
    assert mailroom("dead", "discard", EVENT, *WHY).code == 0
    assert stage.depth("greeter-dead") == 0
    assert "given up" in mailroom("trace", EVENT).out


def test_discarding_what_is_not_dead_is_told__and_the_rest_is_discarded(stage: Stage, mailroom: Command) -> None:
    (event,) = stage.die_in_outbox()
    answer = mailroom("dead", "discard", event, UNKNOWN, *WHY, "--json")
    assert answer.code == 1
    assert answer.json["counts"] == {"done": 1, "unknown": 1}


def test_discarding_at_an_unknown_source_is_wrong_usage(mailroom: Command) -> None:
    assert mailroom("dead", "discard", EVENT, "--source", "nobody", *WHY).code == 2
