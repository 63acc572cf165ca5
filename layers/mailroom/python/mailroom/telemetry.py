"""Logs and metrics: their names are fixed here, so that alarms, dashboards and tests import them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from logging import LogRecord
from random import Random
from threading import RLock
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.logging.formatter import LambdaPowertoolsFormatter
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.metrics.provider.cloudwatch_emf.cloudwatch import AmazonCloudWatchEMFProvider

from mailroom.failures import Failure, cut

NAMESPACE = "Mailroom"


class LogEvent(StrEnum):
    """What a log line can say: the `message` of each, word for word."""

    EVENT_SENT = "event sent"
    EVENT_RETRIED = "event retried"
    EVENT_DEAD = "event dead"
    RELAY_PAUSED = "relay paused"
    RELAY_FAILED = "relay failed"
    RELAY_LEASE_LOST = "relay lease lost"
    RELAY_LEFT_UNCLEAN = "relay left unclean"
    ROWS_UNCONFIRMED = "rows unconfirmed"
    RECORD_LEFT_OPEN = "record left open"
    SUSPECTS_UNKNOWN = "suspects unknown"
    RECORD_UNREAD = "record unread"
    MESSAGE_BEGUN = "message begun"
    MESSAGE_HANDLED = "message handled"
    MESSAGE_REPEATED = "message repeated"
    MESSAGE_FAILED = "message failed"
    MESSAGE_RENEWED = "message renewed"
    MESSAGE_NOT_RENEWED = "message not renewed"
    RATE_NOT_KEPT = "rate not kept"
    BREAKER_OPEN = "breaker open"
    BREAKER_PROBES = "breaker probes"
    BREAKER_CLOSED = "breaker closed"
    BREAKER_NOT_WRITTEN = "breaker not written"
    BREAKER_NOT_SWITCHED = "breaker not switched"
    WORKER_PAUSED = "worker paused"
    MESSAGE_GIVEN_UP = "message given up"
    NOT_GIVEN_UP = "not given up"
    MESSAGE_NOT_POSTPONED = "message not postponed"
    MESSAGE_NOT_KEPT = "message not kept"
    MESSAGE_NOT_RETURNED = "message not returned"
    MESSAGE_NOT_DELETED = "message not deleted"
    MESSAGE_CUT_OFF = "message cut off"
    HANDLER_FAILED = "handler failed"
    RECEIVE_FAILED = "receive failed"
    WORKER_STARTED = "worker started"
    WORKER_STOPPING = "worker stopping"
    WORKER_STOPPED = "worker stopped"
    LEASE_NOT_RENEWED = "lease not renewed"
    LEASE_NOT_RELEASED = "lease not released"
    JOB_STARTED = "job started"
    JOB_COMPLETED = "job completed"
    JOB_FAILED = "job failed"
    JOB_SKIPPED = "job skipped"
    FIRING_FAILED = "firing failed"
    SCHEDULER_STARTED = "scheduler started"
    SCHEDULER_STOPPED = "scheduler stopped"
    ROWS_CLEANED = "rows cleaned"
    ROW_UNREADABLE = "row unreadable"
    REQUEST_FAILED = "request failed"
    REQUEST_REFUSED = "request refused"
    EMAIL_SKIPPED = "email skipped"
    REPORT_WRITTEN = "report written"
    REPORT_SKIPPED = "report skipped"
    UPLOAD_NOT_ABORTED = "upload not aborted"
    WEBHOOK_DELIVERED = "webhook delivered"
    WEBHOOK_FAILED = "webhook failed"
    WEBHOOK_DISABLED = "webhook disabled"
    WEBHOOK_SKIPPED = "webhook skipped"
    LETTERS_REDRIVEN = "letters redriven"
    SAGA_STARTED = "saga started"
    SAGA_STEP_DONE = "saga step done"
    SAGA_COMPENSATING = "saga compensating"
    SAGA_COMPLETED = "saga completed"
    SAGA_COMPENSATED = "saga compensated"
    SAGA_STUCK = "saga stuck"
    SAGA_RESUMED = "saga resumed"
    SAGA_NOT_RESUMED = "saga not resumed"
    SAGA_REQUEST_IGNORED = "saga request ignored"
    SIGNING_KEY_ADDED = "signing key added"
    SIGNING_KEY_PROMOTED = "signing key promoted"
    SIGNING_KEY_RETIRED = "signing key retired"
    SIGNING_KEYS_OVERTAKEN = "signing keys overtaken"
    SIGNING_KEYS_UNREAD = "signing keys unread"


class Metric(StrEnum):
    """Every metric, by the name that CloudWatch knows."""

    EVENTS_PUBLISHED = "events_published"
    EVENTS_RETRIED = "events_retried"
    EVENTS_DEAD = "events_dead"
    RELAY_LAG_SECONDS = "relay_lag_seconds"
    RELAY_PAUSED = "relay_paused"
    BREAKERS_OPEN = "breakers_open"
    BREAKERS_NOT_SWITCHED = "breakers_not_switched"
    MESSAGES_FAILED = "messages_failed"
    MESSAGES_CUT_OFF = "messages_cut_off"
    MESSAGES_NOT_DELETED = "messages_not_deleted"
    RECEIPTS_STALE = "receipts_stale"
    RECEIVES_FAILED = "receives_failed"
    REPLAYED_REQUESTS = "replayed_requests"
    JOB_SKIPPED = "job_skipped"
    JOB_FAILED = "job_failed"
    JOB_COMPLETED = "job_completed"
    ROWS_CLEANED = "rows_cleaned"
    ROWS_UNREADABLE = "rows_unreadable"
    SHARDS_FAILED = "shards_failed"
    EMAILS_SKIPPED = "emails_skipped"
    WEBHOOKS_DELIVERED = "webhooks_delivered"
    WEBHOOKS_FAILED = "webhooks_failed"
    WEBHOOKS_DISABLED = "webhooks_disabled"
    SIGNING_KEYS_UNREAD = "signing_keys_unread"
    SAGA_STARTED = "saga_started"
    SAGA_COMPLETED = "saga_completed"
    SAGA_COMPENSATED = "saga_compensated"
    SAGA_STUCK = "saga_stuck"
    SAGAS_NOT_RESUMED = "sagas_not_resumed"
    DLQ_EVENTS_TOTAL = "dlq_events_total"
    OUTBOX_DEAD = "outbox_dead"
    OUTBOX_PENDING = "outbox_pending"
    OUTBOX_OLDEST_PENDING_SECONDS = "outbox_oldest_pending_seconds"


_write_json = json.JSONEncoder(default=str, separators=(",", ":"), ensure_ascii=False).encode


class LineFormatter(LambdaPowertoolsFormatter):
    """Powertools' format, and a record with `each` is a line for each of its facts.

    The relay writes a line per event. Line by line through `logging` they would take a third of the CPU that the
    AWS calls take; what they share is made once here.
    """

    def format(self, record: LogRecord) -> str:
        """Write a record as lines of JSON."""
        each: Iterable[Mapping[str, Any]] | None = getattr(record, "each", None)
        if each is None:
            return super().format(record)
        shared = {
            **self.log_format,
            "level": record.levelname,
            "location": f"{record.funcName}:{record.lineno}",
            "message": record.msg,
            "timestamp": self.formatTime(record),
            **self.thread_safe_get_current_keys(),
        }
        trace = {"xray_trace_id": self._get_latest_trace_id()}
        return "\n".join(_write_json(self._strip_none_records({**shared, **facts, **trace})) for facts in each)

    @staticmethod
    def _strip_none_records(records: dict[str, Any]) -> dict[str, Any]:
        """Leave out what is None, as Powertools does for every line, and cut what is too long."""
        return {name: _short(name, value) for name, value in records.items() if value is not None}


_MAX_FIELD = 2048
"""Characters of a field from which on it is cut: a line is there to be read."""
_WHOLE = frozenset({"exception", "stack_trace"})
"""Tracebacks, whose end says most."""


def _short(name: str, value: Any) -> Any:
    if isinstance(value, str) and len(value) > _MAX_FIELD and name not in _WHOLE:
        return cut(value, _MAX_FIELD)
    return value


logger = Logger(service="mailroom", logger_formatter=LineFormatter(use_rfc3339=True, utc=True))
"""Writes JSON lines. No payloads and no secrets go in."""

metrics = Metrics(namespace=NAMESPACE, service="mailroom")
"""Gathers metrics until the edge flushes them as one EMF line."""

_gathering = RLock()
"""Outside Lambda many threads gather at once, and flushing is not made for that."""

_CALLER = 3
"""How far up the stack a line's `location` is: past Powertools and past the functions below."""


def log(event: LogEvent, *, failure: Failure | None = None, **facts: Any) -> None:
    """Write one log line with a fixed message; a failure makes it a warning."""
    if failure is None:
        logger.info(event.value, each=(facts,), stacklevel=_CALLER)
    else:
        described = {
            "failure_kind": failure.kind.value,
            "failure_type": failure.type,
            "failure": failure.message,
            "fingerprint": failure.fingerprint,
            **_unsaid(failure.excerpt),
        }
        logger.warning(event.value, each=({**described, **facts},), stacklevel=_CALLER)


def _unsaid(excerpt: str) -> dict[str, Any]:
    """Tell excerpts from each other without what they say: that comes from outside, and may repeat a payload."""
    digest = hashlib.sha256(excerpt.encode()).hexdigest()[:12]
    return {"excerpt_characters": len(excerpt), "excerpt_hash": digest} if excerpt else {}


def log_each(event: LogEvent, each: Sequence[Mapping[str, Any]]) -> None:
    """Write a log line for each of the facts, all with the same fixed message."""
    if each:
        logger.info(event.value, each=each, stacklevel=_CALLER)


def log_error(event: LogEvent, error: BaseException, **facts: Any) -> None:
    """Write an error with its traceback under a fixed message."""
    logger.error(event.value, exc_info=error, stacklevel=_CALLER, **facts)


def count(metric: Metric, value: float = 1) -> None:
    """Add to a counter."""
    with _gathering:
        metrics.add_metric(name=metric.value, unit=MetricUnit.Count, value=value)


def measure_seconds(metric: Metric, value: float) -> None:
    """Record a duration."""
    with _gathering:
        metrics.add_metric(name=metric.value, unit=MetricUnit.Seconds, value=value)


def report(gauges: Mapping[Metric, float]) -> None:
    """Write the state of the whole stage as one EMF line at once, without any dimension.

    Counters have the dimension `service`, which Powertools adds to whatever it flushes; a state belongs to no
    service, and an alarm on it has nothing to name but the metric.
    """
    whole = AmazonCloudWatchEMFProvider(namespace=NAMESPACE, service="")
    for metric, value in gauges.items():
        unit = MetricUnit.Seconds if metric.value.endswith("_seconds") else MetricUnit.Count
        whole.add_metric(name=metric.value, unit=unit, value=value)
    with _one_line_at_a_time():
        whole.flush_metrics()


@contextmanager
def flushed_metrics() -> Iterator[None]:
    """Write the metrics gathered in the block as one EMF line, if there are any, however it ends."""
    try:
        yield
    finally:
        with _gathering, _one_line_at_a_time():
            if metrics.metric_set:
                metrics.flush_metrics()


@contextmanager
def _one_line_at_a_time() -> Iterator[None]:
    """Keep other threads' log lines from coming between metrics and their line feed: they are printed apart."""
    handler = logger.registered_handler
    handler.acquire()
    try:
        yield
    finally:
        handler.release()


_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")

_traceparent: ContextVar[str | None] = ContextVar("traceparent", default=None)


@contextmanager
def traced(incoming: str | None, random: Random) -> Iterator[str]:
    """Run the block as part of a trace: the incoming one, or a new one if there is none that is well formed.

    Events added inside carry its `traceparent` (https://www.w3.org/TR/trace-context/#traceparent-header),
    and log lines its trace id as the correlation id.
    """
    traceparent = incoming if incoming and _TRACEPARENT.fullmatch(incoming) else _new_traceparent(random)
    outer = _traceparent.get()
    token = _traceparent.set(traceparent)
    logger.thread_safe_append_keys(correlation_id=_trace_id(traceparent))
    try:
        yield traceparent
    finally:
        _traceparent.reset(token)
        logger.thread_safe_append_keys(correlation_id=outer and _trace_id(outer))


def traceparent() -> str | None:
    """Answer the trace that this code runs in."""
    return _traceparent.get()


def _trace_id(traceparent: str) -> str:
    return traceparent.split("-")[1]


def _new_traceparent(random: Random) -> str:
    return f"00-{random.getrandbits(128) or 1:032x}-{random.getrandbits(64) or 1:016x}-01"
