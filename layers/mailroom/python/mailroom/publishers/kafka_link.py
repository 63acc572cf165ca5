"""The way to Kafka: a producer that is made when it is needed, and what the brokers' answers mean for events.

Nothing but `kafka.py` imports this module, when it publishes: the client is in a layer of its own.
Its settings: https://github.com/confluentinc/librdkafka/blob/v2.16.0/CONFIGURATION.md
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from mailroom.clock import Clock
from mailroom.failures import Failure, FailureKind, Unavailable
from mailroom.outbox.event import Envelope
from mailroom.publishers.broker import AUTHORITY, CLOUD_EVENT, LOGIN, Suspect, permanent, unavailable
from mailroom.publishers.kafka import BROKERS_DEFAULT, Kafka
from mailroom.publishers.publisher import SENT, NotTaken, Outcome
from mailroom.publishers.secret import read_secret

_HEADERS: list[tuple[str, str | bytes | None]] = [("content-type", CLOUD_EVENT.encode())]
"""Structured mode, so that a consumer reads the same text here as from any other destination.
https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md#33-structured-content-mode"""
_PARTS = 3
"""How many requests without an answer fit into a batch's time: connections die while a function stands still."""
_NOTICED_WITHIN = 1.5
"""Seconds that the client may take to notice that a message's time is up: it looks once a second."""
_ROOM_AGAIN = 0.1
_SHORTEST_SETUP = 1000
_SILENT = logging.getLogger(f"{__name__}.client")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False  # whatever happens to a connection is in the outcome of what was sent over it

_CONTENT_REFUSED = frozenset(
    {
        KafkaError.INVALID_MSG, KafkaError.INVALID_MSG_SIZE, KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP,
        KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError._BAD_MSG,
    }
)  # fmt: skip
"""Errors of a record itself. A broker tells of them once for a whole batch of records.
https://kafka.apache.org/protocol#protocol_error_codes"""
_CLUSTER_REFUSES = frozenset(
    {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.INVALID_REQUIRED_ACKS,
        KafkaError.KAFKA_STORAGE_ERROR, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, KafkaError.REQUEST_TIMED_OUT, KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.THROTTLING_QUOTA_EXCEEDED, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.TOPIC_EXCEPTION,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT, KafkaError.UNSUPPORTED_VERSION,
    }
)  # fmt: skip
"""Errors of topic, cluster and us, as the cluster sees us; errors below `UNKNOWN` are the client's own."""
_REMEMBERED = frozenset(
    {
        KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)  # fmt: skip
"""Refusals that a client goes by for a while; a new one asks again, with what the secret has by then."""
_ADVICE = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: "make the topic",
    KafkaError._UNKNOWN_TOPIC: "make the topic",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "let the user of the URL's secret write to the topic",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "let the user of the URL's secret write idempotently to the cluster",
    KafkaError._INVALID_ARG: "see that the mechanism of the URL's secret is one, and its ca a certificate in PEM",
    KafkaError._AUTHENTICATION: "see that the user, the password and the mechanism of the URL's secret are right",
}


class _Nothing:
    """Stands for a report that has not come."""


_NOTHING = _Nothing()
_Reports = list[KafkaError | _Nothing | None]


class KafkaLink:
    """One producer at a time; it keeps the connections, and makes them anew when they are lost.

    Parameters
    ----------
    timeout
        Seconds in which a message is delivered or given up.
    idle
        Seconds after which an unused connection is closed.
    settings
        librdkafka's, besides and in place of ours.
    """

    def __init__(
        self, kafka: Kafka, *, clock: Clock, timeout: float, idle: float, settings: dict[str, Any] | None = None
    ) -> None:
        self._kafka = kafka
        self._clock = clock
        self._timeout = timeout
        self._idle = idle
        self._settings = settings or {}
        self._producer: Producer | None = None
        self._heard: tuple[KafkaError, ...] = ()

    def connect(self, deadline: float) -> None:
        """Make the producer, if there is none; it connects by itself, and tells what came of it with each event."""
        if self._producer is None:
            self._producer = self._make(deadline)

    def send(self, events: Sequence[Envelope], deadline: float) -> Sequence[Outcome | Suspect]:
        """Produce events and wait for all their delivery reports at once."""
        producer = self._producer
        assert producer is not None  # noqa: S101 - who sends has connected
        self._heard = ()
        reports: _Reports = [_NOTHING] * len(events)
        refused: dict[int, Failure] = {}
        try:
            for position, event in enumerate(events):
                refusal = self._produce(producer, event, partial(_note, reports, position), deadline)
                if refusal is not None:
                    refused[position] = refusal
            producer.flush(self._left(deadline) + _NOTICED_WITHIN)
        except (KafkaException, SystemError) as error:
            # This producer sends nothing any more. If the client says so while it goes on to call back, Python makes
            # a SystemError of it.
            reason = _reason(error)
            self._hear(reason)
            reports = [reason if report is _NOTHING else report for report in reports]
            self.hang_up()
        if not refused and all(report is None for report in reports):
            return [SENT] * len(events)
        if self._is_of_no_use(reports, refused):
            self.hang_up()
        answers = [refused.get(position) or self._answer(report) for position, report in enumerate(reports)]
        return [self._by_itself(answer) for answer in answers] if SENT in answers else answers

    def hang_up(self) -> None:
        """Let the producer go, and with it whatever it has not delivered."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()

    def _make(self, deadline: float) -> Producer:
        secret = self._secret()
        if not self._left(deadline):
            raise Unavailable(self._told("reading its secret took all the time that there was"))
        try:
            return Producer(self._ours() | secret | self._settings)
        except KafkaException as error:
            reason = _reason(error)
            advice = _ADVICE.get(reason.code(), _ADVICE[KafkaError._INVALID_ARG])
            raise Unavailable(self._told(f"{reason.str()}; {advice}")) from error

    def _ours(self) -> dict[str, Any]:
        milliseconds = round(self._timeout * 1000)
        return {
            "bootstrap.servers": self._kafka.brokers,
            "client.id": "mailroom",
            "acks": "all",
            "enable.idempotence": True,
            "partitioner": "murmur2_random",  # that of Kafka's own clients, which may write there too
            "message.max.bytes": BROKERS_DEFAULT,
            "delivery.timeout.ms": milliseconds,
            "request.timeout.ms": milliseconds // _PARTS,
            "socket.timeout.ms": milliseconds // _PARTS,
            "socket.connection.setup.timeout.ms": max(milliseconds // _PARTS, _SHORTEST_SETUP),
            "reconnect.backoff.max.ms": 1000,
            "connections.max.idle.ms": round(self._idle * 1000),
            "topic.metadata.propagation.max.ms": 1000,  # or a topic that is not there would only ever be late
            "error_cb": self._hear,
            "logger": _SILENT,
        }

    def _secret(self) -> dict[str, str]:
        name = self._kafka.secret
        if name is None:
            return {}
        secret = read_secret(name, *LOGIN, "mechanism", may_have=[AUTHORITY])
        authority = {"ssl.ca.pem": secret[AUTHORITY]} if AUTHORITY in secret else {}
        username, password = (secret[field] for field in LOGIN)
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": secret["mechanism"],
            "sasl.username": username,
            "sasl.password": password,
            **authority,
        }

    def _produce(self, producer: Producer, event: Envelope, report: Any, deadline: float) -> Failure | None:
        """Hand an event to the client; answer why not, if it does not take it."""
        while True:
            try:
                producer.produce(
                    self._kafka.topic,
                    event.to_json().encode(),
                    key=event.subject,  # without one any partition will do
                    headers=_HEADERS,
                    on_delivery=report,
                )
            except BufferError:  # the client's queue is full: what is in it has to go first
                if not self._left(deadline):
                    return unavailable("QueueFull", self._told("its client's queue stays full"))
                producer.poll(_ROOM_AGAIN)
            except KafkaException as error:
                if error.args[0].code() not in _CONTENT_REFUSED:
                    raise
                return permanent(error.args[0].name(), error.args[0].str())
            else:
                return None

    # What is heard

    def _hear(self, error: KafkaError) -> None:
        self._heard = (*self._heard, error)  # all of them: which one tells most is no question for a callback

    def _is_of_no_use(self, reports: _Reports, refused: Mapping[int, Failure]) -> bool:
        late = any(report is _NOTHING and position not in refused for position, report in enumerate(reports))
        errors = (*self._heard, *(report for report in reports if isinstance(report, KafkaError)))
        return late or any(error.code() in _REMEMBERED for error in errors)

    def _answer(self, report: KafkaError | _Nothing | None) -> Outcome | Suspect:
        if report is None:
            return SENT
        if isinstance(report, _Nothing):
            return unavailable("NotInTime", self._told("it was not confirmed in time"))
        code = report.code()
        if code in _CONTENT_REFUSED:
            return Suspect(permanent(report.name(), report.str()))
        if code < KafkaError.UNKNOWN or code in _CLUSTER_REFUSES or report.retriable():
            return self._unavailable(report)
        return Suspect(Failure(FailureKind.TRANSIENT, report.name(), report.str()))

    def _by_itself(self, answer: Outcome | Suspect) -> Outcome | Suspect:
        """Return what an answer means where others of the batch were taken: one partition may be without a leader.

        The client has tried it again for as long as a batch may take.
        """
        if not isinstance(answer, Failure) or answer.kind is not FailureKind.UNAVAILABLE:
            return answer
        return NotTaken.of(replace(answer, retry_after=self._timeout))

    def _unavailable(self, error: KafkaError) -> Failure:
        """Tell with it what was heard last: that time is up, or a message was withdrawn, does not say why."""
        said = [error, *(each for each in self._telling() if each is not error)]
        what = ", after ".join(each.str() for each in said)
        advice = next((advice for each in said if (advice := _ADVICE.get(each.code()))), None)
        return unavailable(error.name(), self._told(f"{what}; {advice}" if advice else what))

    def _telling(self) -> tuple[KafkaError, ...]:
        reasons = [error for error in self._heard if error.code() != KafkaError._ALL_BROKERS_DOWN]
        return tuple(reasons[-1:]) or self._heard[-1:]

    def _told(self, what: str) -> str:
        return f"Kafka at {self._kafka.brokers}, topic {self._kafka.topic}: {what}"

    def _left(self, deadline: float) -> float:
        return max(deadline - self._clock.monotonic(), 0)


def _note(reports: _Reports, position: int, error: KafkaError | None, _: Any) -> None:
    """Keep a report for later: in a callback the client may be about to raise, and then no call goes well."""
    reports[position] = error


def _reason(error: BaseException) -> KafkaError:
    if isinstance(error, KafkaException):
        told: KafkaError = error.args[0]
        return told
    if error.__cause__ is None:
        raise error
    return _reason(error.__cause__)
