"""What the signing secret may hold, and when its keys change."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailroom.failures import FailureKind, failure_of
from mailroom.master_keys import KEY_BYTES, Change, MalformedSecret, MasterKey, MasterKeys, next_change
from mailroom.timings import Timings

NOW = datetime(2030, 1, 1, tzinfo=UTC)
TIMINGS = Timings()
ROTATION, OVERLAP = timedelta(seconds=TIMINGS.signing_rotation), timedelta(seconds=TIMINGS.signing_overlap)
MOMENT = timedelta(microseconds=1)
SEED = "s3cr3t" * 10


def key(name: str, *, age: timedelta) -> MasterKey:
    return MasterKey.of(name, name.encode() * 32, NOW - age)


NEW = key("3", age=timedelta(0))


def change(*keys: MasterKey, now: datetime = NOW) -> Change | None:
    return next_change(MasterKeys(keys=keys), now=now, timings=TIMINGS, new_key=NEW)


def parse(text: str) -> MasterKeys:
    return MasterKeys.parse(text, version="version-1", created_at=NOW)


# What the secret holds


def test_a_seed_is_the_first_key__as_old_as_its_version() -> None:
    (only,) = parse(json.dumps({"seed": SEED})).keys
    assert only == MasterKey.of("version-1", SEED.encode(), NOW)


def test_a_seed_of_as_many_characters_as_a_key_has_bytes_is_long_enough() -> None:
    assert len(parse(json.dumps({"seed": "s" * KEY_BYTES})).keys) == 1


def test_the_key_of_an_endpoint_names_the_master_key_that_it_comes_from() -> None:
    assert key("1", age=ROTATION).endpoint_key("webhook-1").id == "1"


def test_what_is_written_is_read() -> None:
    keys = MasterKeys(keys=(key("1", age=ROTATION), key("2", age=MOMENT)))
    assert parse(keys.to_json()) == keys


def test_the_secret_is_what_the_documentation_says() -> None:
    written = json.loads(MasterKeys(keys=(key("1", age=timedelta(0)),)).to_json())
    encoded = base64.b64encode(b"1" * 32).decode()
    assert written == {"keys": [{"id": "1", "key": encoded, "made_at": "2030-01-01T00:00:00Z"}]}


SOUND: dict[str, Any] = {"id": "1", "key": base64.b64encode(b"s" * 32).decode(), "made_at": "2030-01-01T00:00:00Z"}
SHORT = base64.b64encode(b"s" * 31).decode()
MALFORMED = [
    "",
    SEED,
    "null",
    "[]",
    "{}",
    f'"{SEED}"',
    {"seed": SEED, "keys": [SOUND]},
    {"seed": "s3cr3t"},
    {"seed": 5},
    {"seed": "\ud800" + SEED},
    {"keys": []},
    {"keys": [SOUND] * 3},
    {"keys": {SEED: SEED}},
    {"keys": [SOUND], SEED: 1},
    {"keys": [SOUND | {SEED: 1}]},
    {"keys": [SOUND | {"id": ""}]},
    {"keys": [SOUND | {"key": SHORT}]},
    {"keys": [SOUND | {"key": SEED + "%"}]},
    {"keys": [SOUND | {"made_at": "2030-01-01T00:00:00"}]},
    {"keys": [SOUND | {"made_at": SEED}]},
]


@pytest.mark.parametrize("content", MALFORMED, ids=str)
def test_a_malformed_secret_is_an_error__that_tells_nothing_of_it(content: Any) -> None:
    with pytest.raises(MalformedSecret) as caught:
        parse(content if isinstance(content, str) else json.dumps(content))
    told = f"{caught.value} {caught.value!r} {failure_of(caught.value)}"
    assert "the signing secret" in told
    assert not any(secret in told for secret in ("s3cr3t", SHORT, SOUND["key"]))


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (None, "the whole: model_type"),
        ({"keys": [SOUND], SEED: 1}, "the whole: extra_forbidden"),
        ({"keys": [SOUND | {SEED: 1}]}, "keys.0: extra_forbidden; keys: too_short"),
        (
            {"keys": [SOUND | {"id": "", "key": SHORT}]},
            "keys.0.id: string_too_short; keys.0.key: too_short; keys: too_short",
        ),
    ],
    ids=str,
)
def test_a_malformed_secret_tells_where_what_is_wrong(content: Any, place: str) -> None:
    with pytest.raises(MalformedSecret) as caught:
        parse(json.dumps(content))
    assert str(caught.value) == f"the signing secret is malformed ({place}): put back its previous version"


def test_a_malformed_secret_is_nobodys_fault_who_wants_to_sign() -> None:
    assert failure_of(MalformedSecret("malformed")).kind is FailureKind.UNAVAILABLE


@given(st.text())
def test_any_text_is_keys_or_malformed__and_raises_nothing_else(text: str) -> None:
    with pytest.raises(MalformedSecret):
        parse(text)


def test_keys_do_not_show_their_bytes() -> None:
    keys = parse(json.dumps({"seed": SEED}))
    assert "s3cr3t" not in f"{keys!r} {keys} {keys.keys[0]!r} {Change(keys)!r}"


# When keys change


@pytest.mark.parametrize("age", [timedelta(days=-1), timedelta(0), ROTATION - MOMENT], ids=str)
def test_nothing_is_due__while_the_current_key_is_young(age: timedelta) -> None:
    assert change(key("1", age=age)) is None


def test_the_next_key_joins_an_old_one__behind_it() -> None:
    old = key("1", age=ROTATION)
    assert change(old) == Change(MasterKeys(keys=(old, NEW)), added=NEW.id)


@pytest.mark.parametrize("age", [timedelta(days=-1), timedelta(0), OVERLAP - MOMENT], ids=str)
def test_both_stay__until_the_overlap_is_over(age: timedelta) -> None:
    assert change(key("1", age=10 * ROTATION), key("2", age=age)) is None


def test_the_next_key_takes_over__once_the_overlap_is_over() -> None:
    following = key("2", age=OVERLAP)
    expected = Change(MasterKeys(keys=(following,)), promoted="2", retired="1")
    assert change(key("1", age=ROTATION), following) == expected


def test_no_two_rotations_run_at_once__though_the_next_key_is_old_itself() -> None:
    following = key("2", age=2 * ROTATION)
    due = change(key("1", age=4 * ROTATION), following)
    assert due is not None
    assert due.keys.keys == (following,)


jumps = st.sampled_from([timedelta(days=-1), timedelta(minutes=1), timedelta(days=1), timedelta(days=40)])


@given(st.lists(jumps, max_size=60))
def test_a_key_signs_for_the_whole_overlap_before_it_is_alone__however_the_clock_jumps(steps: list[timedelta]) -> None:
    now, keys = NOW, MasterKeys(keys=(key("first", age=timedelta(0)),))
    for number, step in enumerate(steps):
        now += step
        made = MasterKey.of(str(number), b"k" * 32, now)
        due = next_change(keys, now=now, timings=TIMINGS, new_key=made)
        if due is None:
            continue
        assert bool(due.added) != bool(due.retired)
        assert {each.id for each in due.keys.keys} & {each.id for each in keys.keys}
        if due.retired:
            assert now - due.keys.keys[0].made_at >= OVERLAP
        keys = due.keys


def test_the_figures_are_the_stages() -> None:
    hasty = replace(TIMINGS, signing_rotation=60)
    due = next_change(MasterKeys(keys=(key("1", age=timedelta(minutes=1)),)), now=NOW, timings=hasty, new_key=NEW)
    assert due is not None
