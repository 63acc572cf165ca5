"""Events on their way: ids that sort by age, envelopes that any reader takes, payloads that can be sent."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from enum import Enum, StrEnum
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ulid import ULID

from mailroom.clock import timestamp
from mailroom.failures import FailureKind, Permanent, failure_of
from mailroom.outbox.event import (
    SHARDS,
    Envelope,
    Event,
    EventIds,
    EventRefused,
    first_unsendable,
    payload_of,
    shard_of_id,
    shard_of_subject,
)
from mailroom.testing import ManualClock


class Happened(Event, type="thing.happened"):
    value: Any


class Dice(Random):
    """Randomness that falls the same way each time."""


class AllOnes(Random):
    """Bytes at the end of their range, so that the next id carries into the clock's part."""

    def randbytes(self, n: int) -> bytes:
        return b"\xff" * n


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def ids(clock: ManualClock) -> EventIds:
    return EventIds(clock, Dice(1))


def an_envelope(**changes: Any) -> Envelope:
    attributes: dict[str, Any] = {
        "id": "01JDW3NDEKTSV4RRFFQ69G5FAV-03",
        "type": "thing.happened",
        "source": "test.service",
        "subject": "things/1",
        "time": "2030-01-01T00:00:00.000Z",
        "payload": '{"value":1}',
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "after": "01JDW3NDEKTSV4RRFFQ69G5FAT-03",
    }
    return Envelope(**(attributes | changes))


# Reading


def test_an_event_without_a_time_reads_as_one_of_no_time() -> None:
    assert Envelope.from_json('{"id":"1","type":"x","source":"y","data":{}}').time == ""


def test_a_message_with_half_a_character_is_refused__and_says_which() -> None:
    body = '{"id":"1","type":"x","source":"y","data":{"a":"\\ud800"}}'
    with pytest.raises(Permanent, match=r"the character U\+D800"):
        Envelope.from_json(body)


# Ids


def test_an_id_is_a_ulid_a_hyphen_and_the_shard(ids: EventIds) -> None:
    event_id, _ = ids.next("things/1", None)

    assert re.fullmatch(rf"[0-7][0-9A-HJKMNP-TV-Z]{{25}}-{shard_of_subject('things/1'):02d}", event_id)


def test_an_id_says_when_it_was_made__and_so_does_the_moment_beside_it(ids: EventIds, clock: ManualClock) -> None:
    event_id, moment = ids.next("things/1", None)

    assert ULID.from_str(event_id.rpartition("-")[0]).datetime == moment == clock.now()


@given(gaps=st.lists(st.timedeltas(timedelta(milliseconds=1), timedelta(days=365)), min_size=2, max_size=20))
def test_ids_sort_by_age(gaps: list[timedelta]) -> None:
    clock = ManualClock()
    ids, made = EventIds(clock, Dice(1)), []
    for gap in gaps:
        clock.advance(gap.total_seconds())
        made.append(ids.next(None, None)[0])

    assert sorted(made) == made


@given(jumps=st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=30), seed=st.integers(0, 1000))
@example(jumps=[0] * 30, seed=1)
@example(jumps=[-(10**6)] * 30, seed=1)
def test_an_id_is_later_than_the_one_before__whatever_the_clock_says(jumps: list[int], seed: int) -> None:
    clock = ManualClock()
    ids = EventIds(clock, Dice(seed))
    after = ids.next("things/1", None)[0]
    for jump in jumps:
        clock.jump(jump)
        later = ids.next("things/1", after)[0]
        assert later > after
        after = later


def test_an_id_is_later_than_another_machines__whose_clock_is_ahead(ids: EventIds) -> None:
    ahead = EventIds(ManualClock(datetime(2031, 1, 1, tzinfo=UTC)), Dice(2)).next("things/1", None)[0]

    assert ids.next("things/1", ahead)[0] > ahead


def test_two_ids_that_follow_the_same_one_differ__when_its_clock_was_ahead(ids: EventIds) -> None:
    """The successor of an event and its mended copy both follow it: with one id, the copy would replace the other."""
    ahead = EventIds(ManualClock(datetime(2031, 1, 1, tzinfo=UTC)), Dice(2)).next("things/1", None)[0]

    assert ids.next("things/1", ahead)[0] != ids.next("things/1", ahead)[0]


def test_an_id_is_later_than_the_one_before__when_its_random_part_is_used_up(clock: ManualClock) -> None:
    ids = EventIds(clock, AllOnes())
    last, _ = ids.next("things/1", None)

    following = ids.next("things/1", last)[0]

    assert following > last
    assert len(following) == len(last)


def test_an_id_follows_its_clock_again__once_that_has_caught_up(ids: EventIds, clock: ManualClock) -> None:
    first, _ = ids.next("things/1", None)
    clock.jump(3600)

    later, moment = ids.next("things/1", first)

    assert ULID.from_str(later.rpartition("-")[0]).datetime == moment


def test_ids_of_one_moment_differ(ids: EventIds) -> None:
    assert len({ids.next("things/1", None)[0] for _ in range(1000)}) == 1000


# Shards


@pytest.mark.parametrize(
    ("subject", "shard"),
    [("", 0), ("things/1", 3), ("things/2", 1), ("repos/01JDW3NDEKTSV4RRFFQ69G5FAV", 3), ("café/ü", 4)],
)
def test_a_subject_keeps_its_shard__for_the_tables_life(subject: str, shard: int) -> None:
    assert shard_of_subject(subject) == shard


@given(subject=st.text(st.characters(exclude_categories=["Cs"])))
def test_every_subject_has_a_shard(subject: str) -> None:
    assert 0 <= shard_of_subject(subject) < SHARDS


def test_subjects_spread_over_all_shards() -> None:
    assert {shard_of_subject(f"things/{number}") for number in range(100)} == set(range(SHARDS))


def test_events_without_a_subject_spread_over_all_shards(ids: EventIds) -> None:
    assert {shard_of_id(ids.next(None, None)[0]) for _ in range(200)} == set(range(SHARDS))


def test_an_id_tells_its_shard(ids: EventIds) -> None:
    assert an_envelope(id=ids.next("things/2", None)[0]).shard == shard_of_subject("things/2")


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "things",
        "01JDW3NDEKTSV4RRFFQ69G5FAV",
        "01JDW3NDEKTSV4RRFFQ69G5FAV-",
        "01JDW3NDEKTSV4RRFFQ69G5FAV-08",
        "01JDW3NDEKTSV4RRFFQ69G5FAV--1",
        "01JDW3NDEKTSV4RRFFQ69G5FAV-3",
        "01JDW3NDEKTSV4RRFFQ69G5FAV-003",
        "01JDW3NDEKTSV4RRFFQ69G5FAV-٠٣",
        "01JDW3NDEKTSV4RRFFQ69G5FA-03",
    ],
)
def test_what_is_no_event_id_has_no_shard(wrong: str) -> None:
    with pytest.raises(ValueError, match="is no event id"):
        shard_of_id(wrong)


# The envelope


def test_an_envelope_is_a_cloudevent() -> None:
    assert json.loads(an_envelope().to_json()) == {
        "specversion": "1.0",
        "id": "01JDW3NDEKTSV4RRFFQ69G5FAV-03",
        "type": "thing.happened",
        "source": "test.service",
        "subject": "things/1",
        "time": "2030-01-01T00:00:00.000Z",
        "datacontenttype": "application/json",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "after": "01JDW3NDEKTSV4RRFFQ69G5FAT-03",
        "data": {"value": 1},
    }


def test_attributes_that_are_not_there_are_left_out__as_cloudevents_wants_it() -> None:
    wire = json.loads(an_envelope(subject=None, traceparent=None, after=None).to_json())

    assert not {"subject", "traceparent", "after"} & wire.keys()


def test_extension_attributes_are_lower_case_letters_and_digits__as_cloudevents_wants_it() -> None:
    assert all(re.fullmatch(r"[a-z0-9]{1,20}", name) for name in json.loads(an_envelope().to_json()))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)  # fmt: skip


@given(value=json_values, subject=st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_an_envelope_reads_back_as_it_was_written(value: object, subject: str | None) -> None:
    payload = json.dumps({"value": value}, ensure_ascii=False, separators=(",", ":"))
    envelope = an_envelope(payload=payload, subject=subject)

    assert Envelope.from_json(envelope.to_json()) == envelope


@given(value=json_values.filter(lambda value: first_unsendable(json.dumps(value, ensure_ascii=False)) is None))
def test_a_payload_arrives_as_it_was_published(value: object) -> None:
    try:
        envelope = an_envelope(payload=payload_of(Happened(value=value)))
    except EventRefused:
        return  # an unsendable character that JSON escapes
    received = Envelope.from_json(envelope.to_json())

    assert Happened.model_validate_json(received.payload).value == value


REQUIRED = {"id": "i", "type": "t", "source": "s", "data": {}}


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('{"n":' + "9" * 5_000 + "}", "is not JSON"),
        ("[]", "is no CloudEvent but list"),
        ('"text"', "is no CloudEvent but str"),
        ("null", "is no CloudEvent but NoneType"),
        ("{}", "lacks id, type, source, data"),
        ('{"id":"i","type":"t","data":{}}', "lacks source"),
        *((json.dumps(REQUIRED | {name: 7}), f"its {name} is no text") for name in ("id", "type", "source")),
        *((json.dumps(REQUIRED | {name: ""}), f"its {name} is no text") for name in ("id", "type", "source")),
        *((json.dumps(REQUIRED | {name: 7}), f"its {name} is no text") for name in ("subject", "time")),
        *((json.dumps(REQUIRED | {name: {}}), f"its {name} is no text") for name in ("traceparent", "after")),
        (json.dumps(REQUIRED | {"id": "\ud800"}), r"U\+D800"),
        (json.dumps(REQUIRED | {"data": {"k": "\udfff"}}), r"U\+DFFF"),
    ],
    ids=lambda text: text[:40],
)
def test_what_is_no_cloudevent_is_refused_for_good__and_says_why(body: str, complaint: str) -> None:
    with pytest.raises(Permanent, match=complaint) as caught:
        Envelope.from_json(body)

    assert failure_of(caught.value).kind is FailureKind.PERMANENT


@pytest.mark.parametrize("name", ["subject", "time", "traceparent", "after"])
def test_an_attribute_may_be_missing_or_null__where_cloudevents_lets_it(name: str) -> None:
    assert Envelope.from_json(json.dumps(REQUIRED | {name: None})) == Envelope.from_json(json.dumps(REQUIRED))


def test_attributes_of_others_are_no_obstacle() -> None:
    assert Envelope.from_json(json.dumps(REQUIRED | {"dataschema": "x", "partitionkey": 7})).id == "i"


# The payload


class Colour(StrEnum):
    RED = "red"


class Level(Enum):
    HIGH = 3


@pytest.mark.parametrize(
    "value",
    [
        None, True, 0, -1.5, "text", "tab\tline\nreturn\r", "ünïcode 😀 \U0010fffd", [1, [2]], {"k": {"k": []}},
        2**53 - 1, -(2**53) + 1, Colour.RED, Level.HIGH, datetime(2030, 1, 1, tzinfo=UTC), b"bytes",
    ],
    ids=repr,
)  # fmt: skip
def test_a_payload_can_be_sent__of_whatever_json_has(value: object) -> None:
    assert "value" in json.loads(payload_of(Happened(value=value)))


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (2**53, r"Happened\.value is beyond"),
        (-(2**53), r"Happened\.value is beyond"),
        ({"n": [1, 2**60]}, r"Happened\.value\.n\[1\] is beyond"),
        (float("nan"), r"Happened\.value is nan"),
        (float("inf"), r"Happened\.value is inf"),
        ([float("-inf")], r"Happened\.value\[0\] is -inf"),
        ({float("nan"): 1}, r"a key of Happened\.value is nan"),
        ("\x00", r"Happened\.value has the character U\+0000"),
        ("a\x0bb", r"Happened\.value has the character U\+000B"),
        ("\ud800", r"Happened\.value has the character U\+D800"),
        (["\ufffe"], r"Happened\.value\[0\] has the character U\+FFFE"),
        ({"k": "\uffff"}, r"Happened\.value\.k has the character U\+FFFF"),
        ({"\x00": 1}, r"a key of Happened\.value has the character U\+0000"),
        ({"k": {"\udfff": 1}}, r"a key of Happened\.value\.k has the character U\+DFFF"),
        ({"\x00"}, r"Happened\.value\[0\] has the character U\+0000"),
        (b"\xff", r"Happened cannot be written as JSON"),
        pytest.param(object(), r"Happened cannot be written as JSON", id="object"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_payload_is_refused__that_cannot_be_sent_and_says_where(value: object, complaint: str) -> None:
    with pytest.raises(EventRefused, match=complaint):
        payload_of(Happened(value=value))


def nested(levels: int) -> object:
    value: object = "the innermost"
    for _ in range(levels):
        value = [value]
    return value


def test_a_payload_nests_as_deep_as_dynamodb_lets_it() -> None:
    payload_of(Happened(value=nested(30)))  # with the payload itself and the value in it, 32 levels


@pytest.mark.parametrize("levels", [31, 100, 5_000])
def test_a_payload_is_refused__that_nests_deeper(levels: int) -> None:
    with pytest.raises(EventRefused, match="deeper than 32 levels"):
        payload_of(Happened(value=nested(levels)))


@pytest.mark.parametrize("subject", ["things/\x00", "things/\ud800", "\ufffe"], ids=ascii)
def test_a_subject_is_refused__that_cannot_be_sent(subject: str, ids: EventIds) -> None:
    with pytest.raises(EventRefused, match="the subject has the character U"):
        ids.next(subject, None)


@given(text=st.text(st.characters(codec=None, exclude_categories=())))
@example(text="\ud7ff\ue000\ufffd\U00010000 ")
@example(text="ü\x1f")
@example(text="ü\ud800")
@example(text="ü\udfff")
def test_an_unsendable_character_is_found__exactly_if_sqs_would_refuse_it(text: str) -> None:
    refused = re.search("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", text)

    assert first_unsendable(text) == (refused and refused[0])


# Declarations of events


def test_an_event_knows_its_type__and_its_payload_does_not_repeat_it() -> None:
    assert Happened.type == "thing.happened"
    assert payload_of(Happened(value=1)) == '{"value":1}'


@pytest.mark.parametrize("length", [0, 129])
def test_a_type_is_refused_at_its_declaration__that_no_bus_takes(length: int) -> None:
    with pytest.raises(ValueError, match=f"Odd: an event's type has 1 to 128 characters, not {length}"):

        class Odd(Event, type="x" * length):
            pass


@pytest.mark.parametrize("length", [1, 128])
def test_a_type_is_taken__that_every_bus_takes(length: int) -> None:
    class Named(Event, type="t" * length): ...

    assert Named.type == "t" * length


def test_fields_that_are_new_are_ignored__by_consumers_that_are_not() -> None:
    assert Happened.model_validate_json('{"value":1,"added_later":2}').value == 1


def test_a_payload_that_does_not_fit_is_not_repeated__in_the_errors_own_text() -> None:
    class Counted(Event, type="thing.counted"):
        count: int

    with pytest.raises(ValueError, match="count") as caught:
        Counted.model_validate_json('{"count":"TOP-SECRET"}')

    assert "TOP-SECRET" not in str(caught.value)


def test_times_of_one_form__say_when_an_event_was_made(ids: EventIds) -> None:
    assert timestamp(ids.next(None, None)[1]) == "2030-01-01T00:00:00.000Z"
