"""Telemetry: fixed names, lines that say where and in which trace, metrics written once however it ends."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from io import StringIO
from random import Random
from threading import Thread
from typing import Any

import pytest
from pydantic import ValidationError

from mailroom import telemetry
from mailroom.failures import Failure, FailureKind
from mailroom.outbox.event import Event
from mailroom.telemetry import LogEvent, Metric, count, flushed_metrics, log, log_error, measure_seconds, traced
from tests.log_lines import Lines

INCOMING = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE_ID = INCOMING.split("-")[1]


class Dice(Random):
    """Randomness that falls the same way each time."""


class Counted(Event, type="thing.counted"):
    count: int


# Log lines


@pytest.mark.parametrize("event", LogEvent)
def test_a_line_has_a_fixed_message__two_or_three_lower_case_words(event: LogEvent, logs: Lines) -> None:
    log(event)

    assert logs()[0]["message"] == event.value
    assert re.fullmatch(r"[a-z]+( [a-z]+){1,2}", event.value)


def test_a_line_says_when_where_and_who__by_fixed_keys(logs: Lines) -> None:
    log(LogEvent.EVENT_SENT, event_id="e-1", attempt=2)

    (line,) = logs()
    assert set(line) == {"level", "location", "message", "timestamp", "service", "event_id", "attempt"}
    assert (line["level"], line["service"], line["event_id"], line["attempt"]) == ("INFO", "mailroom", "e-1", 2)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line["timestamp"])


@pytest.mark.parametrize(
    "write",
    [
        lambda: log(LogEvent.EVENT_SENT),
        lambda: log(LogEvent.EVENT_DEAD, failure=Failure(FailureKind.PERMANENT, "T", "m")),
        lambda: telemetry.log_each(LogEvent.EVENT_SENT, [{}]),
        lambda: log_error(LogEvent.JOB_FAILED, ValueError("odd")),
    ],
    ids=["a line", "a failure", "many lines", "an error"],
)
def test_a_line_says_which_code_wrote_it__and_not_that_telemetry_did(write: Callable[[], None], logs: Lines) -> None:
    write()

    assert logs()[0]["location"].startswith("<lambda>:")


def test_a_failure_is_a_warning__with_all_that_is_known_of_it(logs: Lines) -> None:
    failure = Failure(FailureKind.PERMANENT, "MalformedDetail", "no row 17")

    log(LogEvent.EVENT_DEAD, failure=failure, event_id="e-1")

    (line,) = logs()
    assert (line["level"], line["event_id"]) == ("WARNING", "e-1")
    assert (line["failure_kind"], line["failure_type"]) == ("permanent", "MalformedDetail")
    assert (line["failure"], line["fingerprint"]) == ("no row 17", failure.fingerprint)


def test_a_line_is_one_line__whatever_is_in_it(logs: Lines) -> None:
    log(LogEvent.EVENT_SENT, subject="a\nb\u2028c")

    assert [line["subject"] for line in logs()] == ["a\nb\u2028c"]


def test_a_payload_that_does_not_fit_stays_out_of_the_log__its_traceback_included(logs: Lines) -> None:
    secret = "-".join(("TOP", "SECRET"))  # the traceback shows this line, but not what it makes
    with pytest.raises(ValidationError) as caught:
        Counted.model_validate({"count": secret})

    log_error(LogEvent.JOB_FAILED, caught.value)

    assert logs()[0]["exception_name"] == "ValidationError"
    assert secret not in json.dumps(logs())


# Traces


def test_a_trace_that_comes_in_is_kept__as_it_came() -> None:
    with traced(INCOMING, Dice(1)) as traceparent:
        assert traceparent == telemetry.traceparent() == INCOMING


@pytest.mark.parametrize(
    "incoming",
    [
        None,
        "",
        "nonsense",
        INCOMING.upper(),
        INCOMING + "-01",
        INCOMING + "\n",
        " " + INCOMING,
        INCOMING.replace("00-", "ff-", 1),
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"00-{TRACE_ID}-{'0' * 16}-01",
        f"00-{TRACE_ID}-b7ad6b7169203331",
        f"00-{TRACE_ID[:-1]}-b7ad6b7169203331-01",
    ],
    ids=repr,
)
def test_a_new_trace_begins__when_none_comes_in_that_is_well_formed(incoming: str | None) -> None:
    with traced(incoming, Dice(1)) as traceparent:
        assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", traceparent)
        assert TRACE_ID not in traceparent


def test_new_traces_differ() -> None:
    random = Dice(1)
    with traced(None, random) as one:
        pass
    with traced(None, random) as other:
        pass

    assert one != other


def test_a_new_trace_is_never_all_zeros__which_would_be_none() -> None:
    class Zeros(Random):
        def getrandbits(self, k: int, /) -> int:
            return 0

    with traced(None, Zeros()) as traceparent:
        assert not re.search(r"-0+-", traceparent)


def test_lines_carry_the_trace_they_are_written_in__and_none_outside(logs: Lines) -> None:
    log(LogEvent.JOB_STARTED)
    with traced(INCOMING, Dice(1)):
        log(LogEvent.JOB_STARTED)
    log(LogEvent.JOB_STARTED)

    assert [line.get("correlation_id") for line in logs()] == [None, TRACE_ID, None]


def test_the_outer_trace_goes_on__when_an_inner_one_ends(logs: Lines) -> None:
    with traced(INCOMING, Dice(1)):
        with traced(None, Dice(1)):
            pass
        log(LogEvent.JOB_COMPLETED)
        assert telemetry.traceparent() == INCOMING

    assert logs()[0]["correlation_id"] == TRACE_ID


def test_a_trace_ends__when_its_block_raises() -> None:
    with pytest.raises(ValueError, match="odd"), traced(INCOMING, Dice(1)):
        raise ValueError("odd")

    assert telemetry.traceparent() is None


# Metrics


def emf(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_metrics_of_a_block_are_one_emf_line(capsys: pytest.CaptureFixture[str]) -> None:
    with flushed_metrics():
        count(Metric.EVENTS_PUBLISHED, 3)
        count(Metric.EVENTS_PUBLISHED, 4)
        measure_seconds(Metric.RELAY_LAG_SECONDS, 0.25)

    (line,) = emf(capsys)
    (directive,) = line["_aws"]["CloudWatchMetrics"]
    assert directive["Namespace"] == "Mailroom"
    assert {metric["Name"]: metric["Unit"] for metric in directive["Metrics"]} == {
        "events_published": "Count",
        "relay_lag_seconds": "Seconds",
    }
    assert (sum(line["events_published"]), line["relay_lag_seconds"]) == (7, [0.25])


def test_metrics_are_written_once__also_when_the_block_raises(capsys: pytest.CaptureFixture[str]) -> None:
    with suppress(ValueError), flushed_metrics():
        count(Metric.EVENTS_DEAD)
        raise ValueError("odd")
    with flushed_metrics():
        pass

    assert [line["events_dead"] for line in emf(capsys)] == [[1.0]]


def test_nothing_is_written__when_nothing_was_counted(capsys: pytest.CaptureFixture[str]) -> None:
    with flushed_metrics():
        pass

    assert emf(capsys) == []


def test_the_next_block_starts_from_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for value in (1, 2):
        with flushed_metrics():
            count(Metric.JOB_COMPLETED, value)

    assert [line["job_completed"] for line in emf(capsys)] == [[1.0], [2.0]]


def test_every_count_arrives__however_many_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with flushed_metrics():
        for _ in range(250):
            count(Metric.EVENTS_RETRIED)

    assert sum(sum(line["events_retried"]) for line in emf(capsys)) == 250


@pytest.mark.parametrize("metric", Metric)
def test_a_metric_is_known_to_cloudwatch_by_its_own_name(metric: Metric) -> None:
    assert metric.value == metric.name.lower()


class Interruptible(StringIO):
    """A stream that lets another thread write a log line right after the text of metrics."""

    def __init__(self) -> None:
        super().__init__()
        self._others: list[Thread] = []

    def write(self, text: str) -> int:
        written = super().write(text)
        if text.startswith('{"_aws"'):
            other = Thread(target=log, args=(LogEvent.EVENT_SENT,))
            self._others.append(other)
            other.start()
            other.join(0.05)  # it may not write yet, and then it waits for longer than this
        return written

    @property
    def lines(self) -> list[str]:
        for other in self._others:
            other.join()
        return [json.loads(line).get("message", "metrics") for line in self.getvalue().splitlines()]


@pytest.mark.parametrize("write", ["counted", "reported"])
def test_no_log_line_of_another_thread_comes_between_metrics_and_their_line_feed(
    write: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, handler = Interruptible(), telemetry.logger.registered_handler
    assert isinstance(handler, logging.StreamHandler)
    monkeypatch.setattr("sys.stdout", stream)
    before = handler.setStream(stream)
    if write == "counted":
        with flushed_metrics():
            count(Metric.JOB_COMPLETED)
    else:
        telemetry.report({Metric.OUTBOX_PENDING: 1})
    lines = stream.lines
    handler.setStream(before)
    assert lines == ["metrics", "event sent"]
