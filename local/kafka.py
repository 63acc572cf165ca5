"""A Kafka for tests: the cluster inside librdkafka, which speaks the real protocol and fails as it is told.

Python's client has no functions for it, its library has:
https://github.com/confluentinc/librdkafka/blob/v2.16.0/src/rdkafka_mock.h
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import confluent_kafka
from confluent_kafka import Consumer, TopicPartition

PRODUCE, METADATA, INIT_PRODUCER_ID = 0, 3, 22
"""https://kafka.apache.org/protocol#protocol_api_keys"""
_PRODUCER = 0
_BROKER = 1
_REASON_BYTES = 512
_READ_WITHIN = 10.0


class KafkaFailed(Exception):
    """The cluster did not do what it should."""


@dataclass(frozen=True, slots=True)
class Record:
    """What a consumer reads."""

    value: str
    key: str | None
    headers: dict[str, str]
    partition: int


class MockKafka:
    """One broker in this process, on a port of 127.0.0.1."""

    def __init__(self) -> None:
        self._library = _library()
        reason = ctypes.create_string_buffer(_REASON_BYTES)
        settings = self._library.rd_kafka_conf_new()
        self._library.rd_kafka_conf_set(settings, b"log_level", b"0", reason, _REASON_BYTES)
        self._handle = self._library.rd_kafka_new(_PRODUCER, settings, reason, _REASON_BYTES)
        _must(self._handle, reason.value.decode())
        self._cluster = self._library.rd_kafka_mock_cluster_new(self._handle, _BROKER)
        self.brokers = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def topic(self, partitions: int = 4) -> str:
        """Make a topic, and answer its name."""
        name = f"events-{uuid4().hex[:8]}"
        error = self._library.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, _BROKER)
        _must(error == 0, f"no topic was made: error {error}")
        return name

    def refuse_topic(self, name: str, error: int) -> None:
        """Answer with this error whoever asks for a topic; 0 takes it back."""
        self._library.rd_kafka_mock_topic_set_error(self._cluster, name.encode(), error)

    def answer(self, request: int, *errors: int) -> None:
        """Answer the next requests of a kind with these errors."""
        codes = (ctypes.c_int * len(errors))(*errors)
        self._library.rd_kafka_mock_push_request_errors_array(self._cluster, request, len(errors), codes)

    def forget_answers(self) -> None:
        """Answer as it should from now on."""
        for request in (PRODUCE, METADATA, INIT_PRODUCER_ID):
            self._library.rd_kafka_mock_clear_request_errors(self._cluster, request)

    def go_down(self) -> None:
        """Cut every connection, and take no more."""
        self._library.rd_kafka_mock_broker_set_down(self._cluster, _BROKER)

    def come_back(self) -> None:
        """Take connections again."""
        self._library.rd_kafka_mock_broker_set_up(self._cluster, _BROKER)

    def answer_late(self, milliseconds: int) -> None:
        """Let every request wait so long for its answer."""
        self._library.rd_kafka_mock_broker_set_rtt(self._cluster, _BROKER, milliseconds)

    def records(self, topic: str, partitions: int = 4, *, skip: int = 0) -> list[Record]:
        """Read a topic to its end, partition by partition, each without so many records at its beginning."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.brokers,
                "group.id": "tests",
                "enable.auto.commit": False,
                "enable.partition.eof": False,
                "log_level": 0,
            }
        )
        try:
            return [record for each in range(partitions) for record in _read(consumer, topic, each, skip)]
        finally:
            consumer.close()

    def close(self) -> None:
        """Let it go."""
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._handle)


@contextmanager
def mock_kafka() -> Iterator[MockKafka]:
    """Run a Kafka inside the block."""
    kafka = MockKafka()
    try:
        yield kafka
    finally:
        kafka.close()


def _read(consumer: Consumer, topic: str, partition: int, skip: int) -> Iterator[Record]:
    _, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_READ_WITHIN)
    consumer.assign([TopicPartition(topic, partition, skip)])
    for _ in range(skip, high):
        message = consumer.poll(_READ_WITHIN)
        if message is None or (error := message.error()) is not None:
            raise KafkaFailed(f"{topic} cannot be read: {'no record in time' if message is None else error}")
        key = message.key()
        yield Record(
            value=_text(message.value()),
            key=None if key is None else _text(key),
            headers={name: _text(value) for name, value in dict(message.headers() or []).items()},
            partition=partition,
        )


def _text(value: str | bytes | None) -> str:
    return value.decode() if isinstance(value, bytes) else value or ""


def _must(holds: object, otherwise: str) -> None:
    if not holds:
        raise KafkaFailed(otherwise)


_POINTER, _TEXT, _INT, _SIZE = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t
_FUNCTIONS = {
    "rd_kafka_conf_new": (_POINTER, []),
    "rd_kafka_conf_set": (_INT, [_POINTER, _TEXT, _TEXT, _TEXT, _SIZE]),
    "rd_kafka_new": (_POINTER, [_INT, _POINTER, _TEXT, _SIZE]),
    "rd_kafka_destroy": (None, [_POINTER]),
    "rd_kafka_mock_cluster_new": (_POINTER, [_POINTER, _INT]),
    "rd_kafka_mock_cluster_destroy": (None, [_POINTER]),
    "rd_kafka_mock_cluster_bootstraps": (_TEXT, [_POINTER]),
    "rd_kafka_mock_topic_create": (_INT, [_POINTER, _TEXT, _INT, _INT]),
    "rd_kafka_mock_topic_set_error": (None, [_POINTER, _TEXT, _INT]),
    "rd_kafka_mock_push_request_errors_array": (None, [_POINTER, ctypes.c_int16, _SIZE, _POINTER]),
    "rd_kafka_mock_clear_request_errors": (None, [_POINTER, ctypes.c_int16]),
    "rd_kafka_mock_broker_set_down": (_INT, [_POINTER, ctypes.c_int32]),
    "rd_kafka_mock_broker_set_up": (_INT, [_POINTER, ctypes.c_int32]),
    "rd_kafka_mock_broker_set_rtt": (_INT, [_POINTER, ctypes.c_int32, _INT]),
}


def _library() -> ctypes.CDLL:
    """Answer the library that the Python package brings along, on Linux and on macOS."""
    package = Path(confluent_kafka.__path__[0])
    places = [package.with_name("confluent_kafka.libs"), package / ".dylibs"]
    (path,) = (found for place in places for found in place.glob("librdkafka*"))
    library = ctypes.CDLL(str(path))
    for name, (answer, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = answer, arguments
    return library
