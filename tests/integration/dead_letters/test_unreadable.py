"""What operators do with a dead row that cannot be read: they see it, mend it or give it up, and send none unmended."""

from __future__ import annotations

import pytest

from mailroom import clients
from mailroom.dead_letters.letter import Fate, Result
from mailroom.dead_letters.mending import Mended
from mailroom.dead_letters.outbox import OutboxLetters
from mailroom.outbox.listing import find_event
from mailroom.outbox.table import DEAD, DISCARDED, OutboxRow, pending
from mailroom.publishers.publisher import SENT
from mailroom.reading import UNREADABLE

from ..outbox.conftest import SHARD
from ..outbox.test_unreadable import Typed, raw, spoil
from .conftest import DEED, Stage

OTHER_TIME = "2029-01-01T00:00:00.000Z"


def die(stage: Stage, about: str | None = None, /, **changes: Typed | None) -> str:
    """Let the relay set aside a row that was changed by hand; answer its id."""
    stage.publisher.answer = lambda _: SENT
    event_id = stage.outbox.add(about, payload='{"amount":17}')
    spoil(event_id, **changes)
    stage.relay.drain(SHARD)
    return event_id


def letters(stage: Stage) -> OutboxLetters:
    return OutboxLetters(stage.runtime)


def redrive(stage: Stage, event_id: str) -> Result:
    (result,) = letters(stage).redrive([event_id], DEED)
    return result


def mended_row(result: Result) -> OutboxRow:
    return OutboxRow.get(pending(SHARD), result.detail, consistent_read=True)


def test_it_is_listed_among_the_others_with_the_reason(stage: Stage) -> None:
    (before,) = stage.die_in_outbox()
    bad = die(stage, retry_count={"S": "0"})
    (after,) = stage.die_in_outbox()
    listed = stage.everything()
    assert [letter.id for letter in listed] == [before, bad, after]
    assert [letter.failure.type == UNREADABLE for letter in listed] == [False, True, False]
    assert "retry_count" in listed[1].failure.message


def test_it_is_listed__though_it_was_spoilt_after_it_died(stage: Stage) -> None:
    bad, good = stage.die_in_outbox(2)
    spoil(bad, DEAD, failure={"S": "?"}, died_at={"N": "1"})
    assert [(letter.id, letter.died_at != "") for letter in stage.everything()] == [(bad, False), (good, True)]


def test_sending_it_again_unmended_is_refused__and_the_others_go(stage: Stage) -> None:
    bad = die(stage, payload=None)
    (good,) = stage.die_in_outbox()
    results = {each.id: each for each in letters(stage).redrive([bad, good], DEED)}
    assert results[bad].fate is Fate.UNREADABLE
    assert results[bad].detail == "payload is missing: edit it, or discard it"
    assert results[good].ok
    assert stage.outbox.dead == [bad]


def test_one_that_was_mended_in_its_row_is_sent_again(stage: Stage) -> None:
    bad = die(stage, retry_count={"S": "0"})
    spoil(bad, DEAD, retry_count={"N": "0"})
    assert redrive(stage, bad).ok
    stage.relay.drain(SHARD)
    assert stage.publisher.ids == [bad]


def test_it_is_given_up_as_it_is_with_the_reason(stage: Stage) -> None:
    bad = die(stage, retry_count={"S": "0"}, newer={"S": "a"})
    (result,) = letters(stage).discard([bad], DEED)
    assert result.ok
    row = raw(bad, DISCARDED)
    assert (row["retry_count"], row["newer"]) == ({"S": "0"}, {"S": "a"})
    assert DEED.why in row["history"]["S"]
    assert "N" in row["expires_at"]


@pytest.mark.parametrize("died_at", [None, {"N": "1"}])
def test_it_is_given_up__though_when_it_died_cannot_be_read(stage: Stage, died_at: Typed | None) -> None:
    bad = die(stage, payload=None)
    spoil(bad, DEAD, died_at=died_at)
    assert [each.fate for each in letters(stage).discard([bad], DEED)] == [Fate.DONE]


def test_of_two_who_give_it_up_one_does(stage: Stage) -> None:
    bad = die(stage, payload=None)
    assert [each.fate for each in letters(stage).discard([bad], DEED)] == [Fate.DONE]
    assert [each.fate for each in letters(stage).discard([bad], DEED)] == [Fate.NOT_DEAD]


def test_a_mended_copy_takes_its_place__with_its_own_payload_where_that_can_be_read(stage: Stage) -> None:
    bad = die(stage, "things/1", retry_count={"S": "0"})
    result = letters(stage).edit(bad, None, DEED)
    assert result.ok
    copy = mended_row(result)
    assert (copy.payload, copy.type, copy.subject, copy.parent) == (
        '{"amount":17}', "thing.happened", "things/1", bad,
    )  # fmt: skip
    stage.relay.drain(SHARD)
    assert stage.publisher.ids == [copy.event_id]
    assert raw(bad, DISCARDED)["retry_count"] == {"S": "0"}


def test_a_mended_copy_takes_the_payload_that_is_given(stage: Stage) -> None:
    bad = die(stage, payload={"S": "{"})
    assert mended_row(letters(stage).edit(bad, '{"amount":18}', DEED)).payload == '{"amount":18}'


@pytest.mark.parametrize(
    ("changes", "mended", "said"),
    [
        ({"payload": None}, Mended(), "its payload cannot be read: say one"),
        ({"type": None}, Mended(), "its type cannot be read: say it"),
        ({"subject": {"N": "1"}}, Mended(), "its subject cannot be read: say it"),
        ({"payload": None}, Mended(type="other.thing"), "its type can be read"),
    ],
)
def test_it_is_not_mended__while_it_is_not_known_what_it_is(
    stage: Stage, changes: dict[str, Typed | None], mended: Mended, said: str
) -> None:
    bad = die(stage, **changes)
    result = letters(stage).edit(bad, None, DEED, mended)
    assert (result.fate, result.detail) == (Fate.FAILED, said)
    assert stage.outbox.dead == [bad]


@pytest.mark.parametrize(("said", "subject"), [("things/9", "things/9"), ("", None)])
def test_what_cannot_be_read_of_it_is_said_by_who_mends_it(stage: Stage, said: str, subject: str | None) -> None:
    bad = die(stage, type=None, source=None, subject={"N": "1"})
    result = letters(stage).edit(bad, None, DEED, Mended(type="thing.happened", subject=said))
    assert result.ok
    waiting = find_event(result.detail)
    assert isinstance(waiting, OutboxRow)
    assert (waiting.type, waiting.subject, waiting.source) == (
        "thing.happened", subject, stage.runtime.settings.source,
    )  # fmt: skip


def test_a_row_whose_key_is_no_events_id_is_shown_mended_and_gone(stage: Stage) -> None:
    good = stage.outbox.add()
    item = raw(good, pending(SHARD))
    spoil(good, **{name: None for name in item if name not in {"partition", "event_id"}})
    stage.relay.drain(SHARD)

    clients.dynamodb().put_item(
        TableName=OutboxRow.table_name(), Item={**item, "partition": {"S": DEAD}, "event_id": {"S": "by hand"}}
    )
    letter = letters(stage).get("by hand")
    assert letter is not None
    assert letter.failure.message == "event_id is no event id"
    assert redrive(stage, "by hand").fate is Fate.UNREADABLE
    assert letters(stage).edit("by hand", None, DEED).ok
    assert letters(stage).get("by hand") is None


def test_what_became_of_it_is_known(stage: Stage) -> None:
    bad = die(stage, payload=None)
    fate = letters(stage).fate(bad)
    assert fate is not None
    assert not isinstance(fate, bool)
    assert fate.type == UNREADABLE
