"""Log lines: what is written for many events at once reads as if each had been logged by itself."""

from __future__ import annotations

import json
import logging
from random import Random
from typing import Any

import pytest
from aws_lambda_powertools.logging.formatter import LambdaPowertoolsFormatter

from mailroom import telemetry
from mailroom.failures import Failure, FailureKind
from mailroom.telemetry import LogEvent
from tests.log_lines import Lines

FACTS = {"event_id": "01-03", "subject": "repos/ü\n", "attempt": 1, "correlation_id": None, "odd": {1}}


def without_place_and_time(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name not in ("location", "timestamp")}


def test_each_of_many_is_a_line_of_its_own__the_same_as_one_logged_alone(logs: Lines) -> None:
    telemetry.log(LogEvent.EVENT_SENT, **FACTS)
    telemetry.log_each(LogEvent.EVENT_SENT, [FACTS, {**FACTS, "event_id": "02-03"}])
    alone, first, second = map(without_place_and_time, logs())
    assert first == alone
    assert second == {**alone, "event_id": "02-03"}


def test_nothing_is_written_for_none(logs: Lines) -> None:
    telemetry.log_each(LogEvent.EVENT_SENT, [])
    assert logs() == []


@pytest.mark.parametrize("failure", [None, Failure(FailureKind.TRANSIENT, "Test", "not now")])
def test_a_line_is_what_powertools_would_write(
    logs: Lines, monkeypatch: pytest.MonkeyPatch, failure: Failure | None
) -> None:
    """Powertools' own formatter is the oracle: it gets the record with its facts as attributes."""
    monkeypatch.setenv("_X_AMZN_TRACE_ID", "Root=1-67891233-abcdef012345678912345678;Sampled=1")
    ours = telemetry.logger.registered_handler.formatter
    assert isinstance(ours, LambdaPowertoolsFormatter)
    expected = []

    def format_both(record: logging.LogRecord) -> str:
        written = ours.format(record)
        flat = logging.makeLogRecord({**vars(record), **record.each[0]})  # type: ignore[attr-defined]
        del flat.each
        expected.append(LambdaPowertoolsFormatter.format(ours, flat))
        return written

    monkeypatch.setattr(telemetry.logger.registered_handler, "format", format_both)
    with telemetry.traced(None, Random(1)):  # noqa: S311 - repeatable on purpose
        telemetry.log(LogEvent.EVENT_RETRIED, failure=failure, **FACTS)
    assert [list(json.loads(line).items()) for line in expected] == [list(line.items()) for line in logs()]


def test_an_error_keeps_its_traceback(logs: Lines) -> None:
    telemetry.log_error(LogEvent.RELAY_FAILED, ValueError("boom"), shard=3)
    (line,) = logs()
    assert (line["level"], line["message"], line["shard"]) == ("ERROR", "relay failed", 3)
    assert line["exception_name"] == "ValueError"
