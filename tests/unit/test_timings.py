"""The timing contract: both stages keep it, and each line that is broken is named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mailroom.retry import Backoff
from mailroom.sources.source import MAX_RECEIVES
from mailroom.timings import DAY, HOUR, TimingError, Timings, timings_of

STAGES = ["local", "dev", "prod"]


@pytest.mark.parametrize("stage", STAGES)
def test_every_stages_timings_keep_the_contract(stage: str) -> None:
    assert timings_of(stage).check() == timings_of(stage)


def test_only_a_laptop_is_impatient() -> None:
    assert timings_of("dev") == timings_of("prod") == Timings()
    assert timings_of("local").outage_to_outlive < Timings().outage_to_outlive


@pytest.mark.parametrize(
    ("broken", "line"),
    [
        ({"api_timeout": 30}, "api_timeout <= 29 s"),
        ({"operations_timeout": 30}, "operations_timeout <= 29 s"),
        ({"export_timeout": 60}, "export_timeout < EventBridge's floor of a minute"),
        ({"wake_up_age": 59}, "wake_up_age >= 60 s"),
        ({"job_start_within": 59}, "60 s <= job_start_within <= 6 h"),
        ({"job_start_within": 6 * HOUR + 1}, "60 s <= job_start_within <= 6 h"),
        ({"sweep_timeout": 60}, "sweep_timeout < sweep_period"),
        ({"sweep_timeout": 20, "sweep_period": 30}, "sweep_period >= EventBridge's floor of a minute"),
        (
            {"broker_timeout": 11.1},
            "broker_timeout + one try at reading its secret <= the longest call, for which the lease has room",
        ),
        ({"lease": 54.9}, "lease (54.9 s) >= 2 x clock_skew + 3 x the longest call (55 s)"),
        ({"clock_skew": 8}, "lease (60 s) >= 2 x clock_skew + 3 x the longest call (61 s)"),
        ({"read_timeout": 4}, "lease (60 s) >= 2 x clock_skew + 3 x the longest call (64 s)"),
        ({"call_attempts": 4}, "lease (60 s) >= 2 x clock_skew + 3 x the longest call (67 s)"),
        ({"call_backoff": 5}, "lease (60 s) >= 2 x clock_skew + 3 x the longest call (61 s)"),
        (
            {"consumer_backoff": Backoff(base=8.1 * HOUR, cap=9 * HOUR, attempts=2)},
            "the consumer's whole retry span <= what a message may stay hidden (43200 s)",
        ),
        (
            {"consumer_backoff": Backoff(base=HOUR, cap=2 * HOUR, attempts=6)},
            "the consumer's whole retry span <= what a message may stay hidden (43200 s)",
        ),
        ({"source_retention": HOUR}, "source_retention > the consumer's whole retry span + visibility"),
        ({"source_retention": 14 * DAY}, "dead_letter_retention > source_retention"),
        ({"dead_letter_retention": 4 * DAY}, "dead_letter_retention > source_retention"),
        (
            {"dead_letter_retention": 6 * DAY},
            "dead_letter_retention > source_retention + 2 d, or the alarm on expiring dead letters would always sound",
        ),
        ({"dead_letter_retention": 15 * DAY, "consumer_record_life": 99 * DAY}, "dead_letter_retention <= 14 d"),
        (
            {"consumer_record_life": 26 * DAY - 1},
            "consumer_record_life >= source_retention + dead_letter_retention + 7 d",
        ),
        ({"poll_wait": 0}, "1 s <= poll_wait <= 20 s"),
        ({"poll_wait": 21, "process_grace": 60}, "1 s <= poll_wait <= 20 s"),
        ({"poll_wait": 12, "process_grace": 16}, "process_grace (16 s) > the longest poll (16 s)"),
        ({"idempotency_key_life": DAY - 1}, "24 h <= idempotency_key_life <= 7 d"),
        ({"idempotency_key_life": 7 * DAY + 1}, "24 h <= idempotency_key_life <= 7 d"),
        (
            {"outbound_connect_timeout": 15},
            "outbound_connect_timeout and outbound_read_timeout < outbound_timeout",
        ),
        ({"outbound_read_timeout": 15}, "outbound_connect_timeout and outbound_read_timeout < outbound_timeout"),
        ({"outbound_timeout": 25}, "outbound_timeout + stop_margin < consumer_timeout"),
        (
            {"longest_retry_after": 3 * HOUR + 1},
            "longest_retry_after x the consumer's repetitions <= what a message may stay hidden (43200 s)",
        ),
        ({"saga_stall": 12 * HOUR + 180}, "saga_stall > what a message may stay hidden (43200 s) + visibility"),
        ({"saga_retention": 26 * DAY - 1}, "saga_retention >= consumer_record_life"),
        ({"sent_retention": HOUR - 1}, "sent_retention >= 1 h"),
        (
            {"signing_overlap": 4 * DAY - 1},
            "signing_overlap >= source_retention, the longest that a webhook is tried",
        ),
        ({"signing_key_cache": 7 * DAY}, "signing_key_cache < signing_overlap"),
        ({"signing_rotation": 7 * DAY}, "signing_overlap < signing_rotation"),
        ({"file_life": DAY - 1}, "file_life is whole days, as S3 counts"),
        ({"file_life": 36 * HOUR}, "file_life is whole days, as S3 counts"),
        ({"link_life": 901}, "link_life <= 15 min, what a role's new credentials last"),
        ({"link_life": 0}, "link_life <= 15 min, what a role's new credentials last"),
        ({"outage_to_outlive": HOUR + 1}, "the consumer's back-offs sum to at least outage_to_outlive"),
        (
            {"consumer_backoff": Backoff(base=60, cap=HOUR, attempts=5)},
            "the consumer's back-offs sum to at least outage_to_outlive",
        ),
    ],
    ids=str,
)
def test_a_broken_line_is_named(broken: dict[str, Any], line: str) -> None:
    with pytest.raises(TimingError) as caught:
        replace(Timings(), **broken).check()

    complaints = str(caught.value).removeprefix("these timings contradict each other: ").split("; ")
    assert line in complaints


@pytest.mark.parametrize(
    "kept",
    [
        {"api_timeout": 29},
        {"lease": 55},
        {"wake_up_age": 60},
        {"job_start_within": 60},
        {"job_start_within": 6 * HOUR},
        {"consumer_backoff": Backoff(base=8 * HOUR, cap=8 * HOUR, attempts=2), "saga_stall": 25 * HOUR},
        {"dead_letter_retention": 7 * DAY + 1},
        {"dead_letter_retention": 14 * DAY, "consumer_record_life": 26 * DAY},
        {"idempotency_key_life": 7 * DAY},
        {"idempotency_key_life": DAY},
        {"saga_stall": 12 * HOUR + 90 * 60 + 181},
        {"patience": 5 * DAY - 90 * 60 - 181},
        {"saga_retention": 26 * DAY},
        {"sent_retention": HOUR},
        {"outbound_timeout": 24},
        {"longest_retry_after": 3 * HOUR},
        {"outage_to_outlive": HOUR},
    ],
    ids=str,
)
def test_a_line_is_kept__up_to_its_very_limit(kept: dict[str, Any]) -> None:
    replace(Timings(), **kept).check()


@pytest.mark.parametrize("stage", STAGES)
def test_a_queue_outlasts_a_consumers_attempts__so_that_each_of_them_is_made(stage: str) -> None:
    assert timings_of(stage).consumer_backoff.attempts < MAX_RECEIVES


def test_every_broken_line_is_named__not_only_the_first() -> None:
    with pytest.raises(TimingError, match=r"api_timeout.*; .*sent_retention"):
        replace(Timings(), api_timeout=30, sent_retention=0).check()


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("function_timeout", [3, 30, 900])
def test_a_message_stays_hidden__for_six_timeouts_of_its_function_and_the_window(
    stage: str, function_timeout: int
) -> None:
    timings = replace(timings_of(stage), batching_window=20)

    assert timings.visibility(function_timeout) == 6 * function_timeout + 20


@pytest.mark.parametrize("stage", STAGES)
def test_a_lease_outlives_three_calls__after_its_holder_saw_half_of_it_pass(stage: str) -> None:
    timings = timings_of(stage)

    assert timings.lease / 2 > 2 * timings.clock_skew + timings.longest_call


@pytest.mark.parametrize("stage", STAGES)
def test_a_consumer_ends_in_time__for_its_stop_margin(stage: str) -> None:
    timings = timings_of(stage)

    assert timings.stop_margin < min(timings.consumer_timeout, timings.sweep_timeout, timings.job_timeout)


@pytest.mark.parametrize(("timeout", "line"), [(900, None), (7201, "counts: 6 x its timeout <= 43200 s")])
def test_what_a_consumer_declares_for_itself_is_held_to_the_contract_too(timeout: int, line: str | None) -> None:
    if line is None:
        Timings().check({"counts": timeout})
        return
    with pytest.raises(TimingError, match=line):
        Timings().check({"counts": timeout})


@pytest.mark.parametrize("stage", STAGES)
def test_an_event_that_no_queue_takes_is_tried_until_an_outage_is_over(stage: str) -> None:
    timings = timings_of(stage)
    assert timings.unroutable_after * (timings.relay_backoff.attempts - 1) >= timings.outage_to_outlive
