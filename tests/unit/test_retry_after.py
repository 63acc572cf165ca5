"""How long a receiver asks to be left alone: whatever it answers is read, or is nothing."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import example, given
from hypothesis import strategies as st

from mailroom.outbound import Answer

NOW = datetime(2030, 1, 1, tzinfo=UTC)

_NUMBERS = st.integers(min_value=0, max_value=10**25).map(str)
_DATES = st.tuples(
    st.sampled_from(["Mon, ", "Monday, ", ""]),
    _NUMBERS,
    st.sampled_from([" Jan ", "-Feb-", " dec ", " "]),
    _NUMBERS,
    st.sampled_from([" ", ""]),
    st.tuples(_NUMBERS, _NUMBERS, _NUMBERS).map(":".join),
    st.sampled_from([" GMT", " +", " -", " EST", ""]),
    st.one_of(_NUMBERS, st.just("")),
).map("".join)


@given(st.one_of(st.text(), _DATES))
@example("Mon, 01 Jan 2024 00:00:00 +99999999999999999999")
@example("Fri, 31 Dec 9999 23:59:59 -2359")
@example("Mon, 01 Jan 0001 00:00:00 +2359")
@example("9" * 10_000)
def test_no_answer_of_a_receiver_is_an_error_of_ours(asked: str) -> None:
    wait = Answer(503, asked).wait(NOW)
    assert wait is None or wait >= 0


@given(st.integers(min_value=0, max_value=10**9 - 1))
def test_seconds_are_what_they_are(seconds: int) -> None:
    assert Answer(503, str(seconds)).wait(NOW) == seconds
